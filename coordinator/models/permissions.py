"""Agents' permission requests to people."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Case, ExpressionWrapper, F, Q, When
from django.db.models.functions import Coalesce, Length

from coordinator.models.fields import IsoTextField, JsonTextField

LISTED_INPUT = 20_000


class RequestStatus(models.TextChoices):
    """The status of a request. The last three are Signalbox's own; foreign words are shown, never written.

    `auto-approved` is written only for the types that an operator lists in SIGNALBOX_AUTO_APPROVE_TYPES.
    """

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    AUTO_APPROVED = "auto-approved", "Auto-approved"


class PermissionRequestQuerySet(models.QuerySet["PermissionRequest"]):
    """The questions that pages and endpoints ask of many requests;
    coordinator.policy.requests.approvals.current_request_state reads one.
    """

    def with_context(self) -> PermissionRequestQuerySet:
        """Load each request together with its context (None for rows of other programs)."""
        return self.select_related("context")

    def defer_large_columns(self) -> PermissionRequestQuerySet:
        """Load each request and its context; the columns that may hold megabytes are read when they are asked for."""
        return self.select_related("context").defer("metadata", "context__tool_input", "context__answer")

    def annotate_short_listed_inputs(self) -> PermissionRequestQuerySet:
        """Load each request as lists show it: without bodies, but for an input of at most LISTED_INPUT characters.

        That one is its `listed_input`; `is_edited` says whether a person approved another.
        """
        listed_input = Case(
            When(input_length__lte=LISTED_INPUT, then=F("context__tool_input")), output_field=JsonTextField()
        )
        is_edited = Q(context__answer__isnull=False, context__answer__contains='"updated_input"')
        return (
            self.defer_large_columns()
            .alias(input_length=Length("context__tool_input"))
            .annotate(
                listed_input=listed_input, is_edited=ExpressionWrapper(is_edited, models.BooleanField())
            )
        )

    def list_ids_and_character_counts(self) -> models.QuerySet[PermissionRequest, tuple[int, int]]:
        """Return the row ids, in their order, and how many characters each request holds in columns of any length."""
        columns = ("justification", "target_resource", "metadata", "context__tool_input", "context__answer")
        size = sum(Coalesce(Length(column), 0) for column in columns)
        return self.annotate(size=size).values_list("pk", "size")

    def with_context_and_assignment(self) -> PermissionRequestQuerySet:
        """Load each request together with its context and with whom it is assigned to."""
        return self.select_related("context", "assignment")

    def awaiting_decision(self, now: datetime) -> PermissionRequestQuerySet:
        """Keep those that a person may decide at `now`: pending, and not past a readable deadline."""
        return self.filter(
            Q(expires_at__instant__isnull=True) | Q(expires_at__gt=now), status=RequestStatus.PENDING
        )

    def past_deadline(self, now: datetime) -> PermissionRequestQuerySet:
        """Keep those whose deadline passed, whether or not housekeeping has written that down."""
        return self.filter(
            Q(status=RequestStatus.EXPIRED) | Q(status=RequestStatus.PENDING, expires_at__lte=now)
        )

    def approvals_in_force(self, now: datetime) -> PermissionRequestQuerySet:
        """Keep the approvals that cover later requests: not for once, not over, not revoked.

        One that nobody decided counts only where another program's row says so: ours are for their own call alone.
        """
        return self.filter(
            Q(expires_at__isnull=True) | Q(expires_at__gt=now),
            Q(context__isnull=True)
            | Q(
                Q(context__validity__isnull=True) | ~Q(context__validity="once"),
                Q(context__scope__isnull=True) | ~Q(context__scope="call"),
                context__revoked_at__isnull=True,
            ),
            Q(status=RequestStatus.APPROVED) | Q(status=RequestStatus.AUTO_APPROVED, context__isnull=True),
        )


class PermissionRequest(models.Model):
    """Somebody's agent asks whether it may do one thing; a person says yes or no.

    `expires_at` is the deadline while the request is pending, and the end of the approval once decided.
    """

    Status = RequestStatus

    id = models.BigAutoField(primary_key=True)
    request_id = models.TextField(unique=True)
    created_at = IsoTextField()
    plugin_id = models.TextField()
    permission_type = models.TextField()
    target_resource = models.TextField(null=True, blank=True)
    justification = models.TextField()
    status = models.TextField(default="pending", db_default="pending")
    approved_by = models.TextField(null=True, blank=True)
    approved_at = IsoTextField(null=True, blank=True)
    expires_at = IsoTextField(null=True, blank=True)
    metadata = JsonTextField(null=True, blank=True)

    objects = PermissionRequestQuerySet.as_manager()

    class Meta:
        db_table = "permission_requests"

    def __str__(self) -> str:
        return self.request_id


class PermissionContext(models.Model):
    """What the schema document has no column for: who asked in which session with which input, and how it ended.

    `pending_key` is set while the request waits and unique, so that one asker's same question is one row however
    concurrently it is asked. `subject_key` is the digest of the call (policy.requests.approvals.call_digest), the same
    for all who ask for the same thing. `scope` is what an approval covers (policy.requests.approvals.Scope), of the
    call alone until a person says more; NULL in rows from before scopes. `cover_key` finds a lasting approval
    (policy.requests.approval_coverage). `deadline` keeps what `expires_at` was before a decision. Rows of other
    programs have no context until they are decided.

    A request with a `repeat_key` outlives the hook that asked (actions.approvals.pending_calls): the hook, or that of
    the same call made again, waits until `waits_until`; at `held_at` the agent was first asked to wait. Its verdict
    answers one call, `used_by` ("session call"), at `used_at`.

    `waited_by` names the process in which a hook waits by the request, and its call ("process call"); NULL for what
    is polled. Where that process is gone, nobody waits (actions.sessions.unawaited_calls).

    What a card shows must be part of what people judge: a new column that it shows belongs into SHOWN_OF_CONTEXT of
    policy/judged.py, and one with text into secrets/masked_columns.py.
    """

    request = models.OneToOneField(
        PermissionRequest,
        models.DO_NOTHING,  # the database cascades
        to_field="request_id",
        db_column="request_id",
        primary_key=True,
        related_name="context",
    )
    requested_by = models.TextField()
    owner = models.TextField(null=True, blank=True)
    session_id = models.TextField(null=True, blank=True)
    agent_id = models.TextField(null=True, blank=True)
    event_id = models.BigIntegerField(null=True, blank=True)
    tool_name = models.TextField(null=True, blank=True)
    tool_input = JsonTextField(null=True, blank=True)
    folder = models.TextField(null=True, blank=True)
    host = models.TextField(null=True, blank=True)
    subject_key = models.TextField()
    pending_key = models.TextField(null=True, blank=True, unique=True)
    idempotency_key = models.TextField(null=True, blank=True, unique=True)
    deadline = IsoTextField(null=True, blank=True)
    needed = models.IntegerField(default=1, db_default=1)
    validity = models.TextField(null=True, blank=True)
    scope = models.TextField(null=True, blank=True)
    cover_key = models.TextField(null=True, blank=True)
    reason = models.TextField(null=True, blank=True)
    granted = models.BooleanField(default=False, db_default=False)
    closed_at = IsoTextField(null=True, blank=True)
    closed_by = models.TextField(null=True, blank=True)
    revoked_at = IsoTextField(null=True, blank=True)
    revoked_by = models.TextField(null=True, blank=True)
    revoke_reason = models.TextField(null=True, blank=True)
    # What the person added to their verdict: `updated_input`, `suggestions` (actions/tool_calls.py).
    answer = JsonTextField(null=True, blank=True)
    repeat_key = models.TextField(null=True, blank=True)
    waits_until = IsoTextField(null=True, blank=True)
    held_at = IsoTextField(null=True, blank=True)
    used_at = IsoTextField(null=True, blank=True)
    used_by = models.TextField(null=True, blank=True)
    waited_by = models.TextField(null=True, blank=True)
    seen_at = IsoTextField(null=True, blank=True)
    seen_by = models.TextField(null=True, blank=True)
    # Who decided with another's right, in words: "bob for anna" (models.deciders.Delegation).
    decided_for = models.TextField(null=True, blank=True)

    class Meta:
        db_table = "permission_context"

    def __str__(self) -> str:
        return f"context of {self.request_id}"


class PermissionVote(models.Model):
    """One person's approval of a request that takes several. A denial needs no votes: one is enough."""

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey(
        PermissionRequest,
        models.DO_NOTHING,  # the database cascades
        to_field="request_id",
        db_column="request_id",
        db_index=False,
        related_name="votes",
    )
    voter = models.TextField()
    validity = models.TextField()
    until = IsoTextField(null=True, blank=True)  # the end that the voter wrote (Validity.UNTIL)
    # What it covers and which bytes were judged (policy.requests.judged_content.judged_card_digest). NULL in votes from
    # before scopes.
    scope = models.TextField(null=True, blank=True)
    judged = models.TextField(null=True, blank=True)
    reason = models.TextField(null=True, blank=True)
    wants_grant = models.BooleanField(default=False, db_default=False)
    at = IsoTextField()
    # Whose right it was given with, where that is not the voter's own (models.deciders.Delegation).
    right_of = models.TextField(null=True, blank=True)

    class Meta:
        db_table = "permission_votes"
        constraints = [models.UniqueConstraint(fields=["request", "voter"], name="permission_votes_once")]

    def __str__(self) -> str:
        return f"{self.voter} on {self.request_id}"
