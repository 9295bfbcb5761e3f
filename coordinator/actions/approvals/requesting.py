"""Creation of permission requests: one per question, however often and concurrently it is asked."""

from __future__ import annotations

import uuid
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from coordinator.actions import notifications
from coordinator.actions.approvals import expiry as ending
from coordinator.actions.approvals import pending_calls as holding
from coordinator.actions.approvals import rows
from coordinator.errors import Conflict, RequestTooLarge, TooManyRequests, UnprocessableRequest
from coordinator.identity.actors import Actor, system_actor
from coordinator.models import ApiKey, PermissionContext, PermissionRequest
from coordinator.models.permissions import RequestStatus
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.requests import approval_coverage, policy_in_force
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests.approval_coverage import Requester
from coordinator.policy.requests.approvals import (
    PermissionSubject,
    Scope,
    Validity,
    call_digest,
    legacy_call_digest,
)
from coordinator.policy.rules.tool_rules import Ruling
from coordinator.secrets.digests import keyed_digest
from coordinator.secrets.masking import mask_secrets_in_value

LONGEST_TEXT = 20_000
LARGEST_INPUT = 1_000_000
AUTO_APPROVER = "YOLO"
RULES = system_actor("rules")  # closes the requests that a rule denies
DENIED_AGAIN_AFTER = timedelta(minutes=10)
RETRY_AFTER = 30  # seconds; people decide, so nobody knows


@dataclass(frozen=True, slots=True)
class NewPermissionRequest:
    """What an agent asks for, before there is a row for it.

    Where it `outlasts` its hook, which waits until `waits_until`, its verdict is for one call: that hook's, or the
    same call's made again (actions.approvals.pending_calls).
    """

    subject: PermissionSubject
    justification: str
    metadata: Any = None
    session_id: str | None = None
    agent_id: str | None = None
    event_id: int | None = None
    deadline: datetime | None = None
    idempotency_key: str | None = None
    folder: str | None = None
    host: str | None = None
    outlasts: bool = False
    waits_until: datetime | None = None
    slot: str | None = None  # which of several equal calls it is; None where its asker does not say
    waited_by: str | None = None  # the process and the call that wait (PermissionContext.waited_by)

    def build_requester(self, actor: Actor) -> Requester:
        return Requester(self.agent_id, str(actor), self.session_id, self.folder, self.host)


@dataclass(frozen=True, slots=True)
class PermissionRequestResult:
    """The request that answers a `NewPermissionRequest`; `created` is false where it joined an existing one."""

    request: PermissionRequest
    created: bool


@dataclass(frozen=True, slots=True)
class PreparedQuestion:
    """A question ready to be stored: what is shown of it, and the digests of what was asked, made unmasked.

    Twins share `pending_key`: the same asker asks for the same, in the same place, with the same rules on offer, and
    does not say that it is another call (`slot`).
    """

    new_request: NewPermissionRequest
    subject: PermissionSubject
    by: Actor
    requester: Requester
    call: str
    pending_key: str
    idempotency_key: str | None
    repeat_key: str | None


def request_permission(
    ask: NewPermissionRequest, *, actor: Actor, now: datetime | None = None
) -> PermissionRequestResult:
    """Ask a person for a permission.

    The same asker's same question joins the request that is pending, unless it is about another of several equal calls
    (`slot`). One that an approval in force covers is answered by that approval. Raises UnprocessableRequest for what
    cannot be accepted, RequestTooLarge for what nobody can judge, Conflict for an idempotency key that was used for
    another question, TooManyRequests for an asker at its limit of waiting requests.
    """
    now = now or timezone.now()
    validate_new_request(ask, now)
    question = prepare_masked_question(replace(ask, folder=mask_secrets_in_value(ask.folder)), actor)
    return get_or_create_request(question, actor, now)


def get_or_create_denied_request(
    ask: NewPermissionRequest, ruling: Ruling, *, actor: Actor, now: datetime
) -> PermissionRequestResult:
    """Write a request that a rule denies, which nobody is asked about.

    The same asker's same question joins the one that was denied a moment ago, so that a loop fills no table. Raises as
    `request_permission` does.
    """
    validate_new_request(ask, now)
    question = prepare_masked_question(replace(ask, folder=mask_secrets_in_value(ask.folder)), actor)
    return get_or_create_request(question, actor, now, ruling)


def get_or_create_request(
    question: PreparedQuestion, actor: Actor, now: datetime, ruling: Ruling | None = None
) -> PermissionRequestResult:
    """Return the request that a question joins, else a new one: pending, or denied by a rule's `ruling`.

    Raises TooManyRequests for an asker at its limit of waiting requests, and Conflict.
    """
    for _attempt in range(5):
        with transaction.atomic():
            existing_request = (
                join_existing_request_or_none(question, now)
                if ruling is None
                else find_request_denied_by_rules(question, now)
            )
            if existing_request is not None:
                return PermissionRequestResult(existing_request, created=False)
            if ruling is None:
                require_pending_capacity_withdrawing_oldest(actor, now)
            try:
                with transaction.atomic():
                    return PermissionRequestResult(create_request_row(question, now, ruling), created=True)
            except IntegrityError:
                # A twin was first, and its row is committed by now, so the next look joins it; or one that is gone has
                # left its key behind.
                delete_orphan_request_context(question)
    raise Conflict("This request was closed while you sent it again. Send it once more.")


def find_request_denied_by_rules(question: PreparedQuestion, now: datetime) -> PermissionRequest | None:
    """Return the same question as it was denied, by its key or a moment ago.

    Raises Conflict where the key was used for another question.
    """
    denied = PermissionRequest.objects.with_context().filter(context__closed_by=str(RULES))
    if question.idempotency_key is not None:
        earlier = (
            PermissionRequest.objects.with_context()
            .filter(context__idempotency_key=question.idempotency_key)
            .first()
        )
        if earlier is not None and not is_same_question(earlier, question):
            raise Conflict("This idempotency_key was already used for a different request.")
        return earlier
    return (
        denied.filter(
            context__subject_key=question.call,
            context__requested_by=str(question.by),
            context__session_id=question.new_request.session_id,
            context__agent_id=question.new_request.agent_id,
            created_at__gte=now - DENIED_AGAIN_AFTER,
        )
        .order_by("-id")
        .first()
    )


def find_request_by_idempotency_key(idempotency_key: str, *, actor: Actor) -> PermissionRequest | None:
    """Return the request that `by` made under this key, with its context; None where there is none."""
    key = scope_idempotency_key(idempotency_key, actor)
    return PermissionRequest.objects.with_context().filter(context__idempotency_key=key).first()


def scope_idempotency_key(idempotency_key: str, actor: Actor) -> str:
    """Return an asker's key as it is stored: two askers may choose the same."""
    return rules.hash_json_parts(str(actor), idempotency_key)


def prepare_masked_question(ask: NewPermissionRequest, actor: Actor) -> PreparedQuestion:
    """Return the question as it is stored and judged: without its secrets. Raises RequestTooLarge."""
    requester, call = ask.build_requester(actor), call_digest(ask.subject)
    offered = ask.metadata.get("permission_suggestions") if isinstance(ask.metadata, dict) else None
    call_key = ask.idempotency_key
    shown_question = replace(
        ask,
        subject=ask.subject.copy_with_masked_secrets(),
        justification=mask_secrets_in_value(ask.justification, judged=True),
        metadata=mask_secrets_in_value(ask.metadata, judged=True),
    )
    return PreparedQuestion(
        shown_question,
        ask.subject,
        actor,
        requester,
        call,
        pending_key=keyed_digest(
            "pending", str(actor), *astuple(requester), call, offered, *([ask.slot] if ask.slot else [])
        ),
        idempotency_key=scope_idempotency_key(call_key, actor) if call_key is not None else None,
        repeat_key=holding.compute_repeated_call_key(actor, requester, call) if ask.outlasts else None,
    )


def require_pending_capacity_withdrawing_oldest(actor: Actor, now: datetime) -> None:
    """Raise TooManyRequests if the asker is at its limit of waiting requests, so that others' remain visible.

    A call that was asked to wait makes way: its agent has gone on, and can ask again. Concurrent requests may exceed
    the limit together, by as many as there are threads.
    """
    pending_requests = PermissionRequest.objects.awaiting_decision(now).filter(
        context__requested_by=str(actor), context__pending_key__isnull=False
    )
    too_many = pending_requests.count() - settings.MAX_PENDING_REQUESTS + 1
    if too_many > 0 and not ending.withdraw_oldest_unawaited_requests(pending_requests, too_many, actor, now):
        raise TooManyRequests(
            f"{actor} already has {settings.MAX_PENDING_REQUESTS} waiting requests, which is the limit. "
            "Wait until some are decided, or withdraw some.",
            retry_after=RETRY_AFTER,
        )


def validate_new_request(ask: NewPermissionRequest, now: datetime) -> None:
    """Raise UnprocessableRequest or RequestTooLarge for a question that a person could not judge."""
    for name, text in (
        ("plugin_id", ask.subject.plugin_id),
        ("permission_type", ask.subject.permission_type),
        ("justification", ask.justification),
    ):
        if not text.strip():
            raise UnprocessableRequest(f"{name} must not be empty: people need it to decide.")
    if ask.deadline is not None and ask.deadline <= now:
        raise UnprocessableRequest("The deadline is in the past. Choose a later one.")
    texts = (
        ask.justification,
        ask.subject.plugin_id,
        ask.subject.permission_type,
        ask.subject.target_resource,
    )
    if any(len(text or "") > LONGEST_TEXT for text in texts):
        raise RequestTooLarge(f"Each text of a request may have at most {LONGEST_TEXT} characters.")
    if len(rules.canonical_json_bytes(ask.subject.tool_input)) > LARGEST_INPUT:
        raise RequestTooLarge(
            f"tool_input is larger than {LARGEST_INPUT} bytes, too large for a person to judge. Name a file instead."
        )


def join_existing_request_or_none(question: PreparedQuestion, now: datetime) -> PermissionRequest | None:
    """Return the row that already answers this question, if any."""
    requests = PermissionRequest.objects.with_context()
    if question.idempotency_key is not None:
        earlier = requests.filter(context__idempotency_key=question.idempotency_key).first()
        if earlier is not None:
            if not is_same_question(earlier, question):
                raise Conflict("This idempotency_key was already used for a different request.")
            if question.repeat_key is not None and earlier.status == PermissionRequest.Status.PENDING:
                holding.record_hook_wait_deadline(
                    earlier, question.new_request.waits_until, question.new_request.waited_by
                )
            return earlier
    if question.repeat_key is not None:
        waited_by = question.new_request.waited_by
        existing_request = holding.find_request_for_call(
            question.repeat_key, question.requester, now, waited_by=waited_by
        )
        if existing_request is not None:
            if existing_request.status == PermissionRequest.Status.PENDING:
                holding.record_hook_wait_deadline(
                    existing_request, question.new_request.waits_until, waited_by
                )
            return existing_request
    twin = requests.filter(context__pending_key=question.pending_key).first()
    if twin is not None:
        if rules.current_request_state(twin, now).waiting:
            if question.new_request.waited_by is not None:
                PermissionContext.objects.filter(request=twin).update(
                    waited_by=question.new_request.waited_by
                )
            return twin
        ending.expire_request(twin, now)
    approval = approval_coverage.find_covering_approval(question.subject, question.requester, now)
    if approval is not None:
        used = {"agent_id": question.requester.agent_id, "session_id": question.requester.session_id}
        rows.audit_request_event(
            "PERMISSION_APPROVAL_USED", approval, question.by, "allowed", now, metadata=used
        )
    return approval


def is_same_question(row: PermissionRequest, question: PreparedQuestion) -> bool:
    """Return whether the row is the same call by the same asker in the same place; older rows do not say the place."""
    if row.context.scope is None:
        return row.context.subject_key in (question.call, legacy_call_digest(question.subject))
    return (
        row.context.subject_key == question.call
        and approval_coverage.request_requester(row) == question.requester
    )


def delete_orphan_request_context(question: PreparedQuestion) -> None:
    """Free the keys of a context whose request is gone: a program without foreign keys (SQLite's own default)
    has deleted the row, and nothing could ever be asked again."""
    same_question = Q(pending_key=question.pending_key)
    if question.idempotency_key is not None:
        same_question |= Q(idempotency_key=question.idempotency_key)
    PermissionContext.objects.filter(
        same_question, ~Exists(PermissionRequest.objects.filter(request_id=OuterRef("pk")))
    ).delete()


def create_request_row(
    question: PreparedQuestion, now: datetime, denial: Ruling | None = None
) -> PermissionRequest:
    """Write a request: pending, approved by its type, or, with a `denial`, denied by a rule."""
    ask, by, subject = question.new_request, question.by, question.new_request.subject
    auto = denial is None and subject.permission_type in settings.AUTO_APPROVE_TYPES
    is_closed = auto or denial is not None
    status = RequestStatus.AUTO_APPROVED if auto else RequestStatus.PENDING
    if denial is not None:
        status = RequestStatus.DENIED
    row = PermissionRequest.objects.create(
        request_id=f"req_{uuid.uuid4().hex[:12]}",
        created_at=now,
        plugin_id=subject.plugin_id,
        permission_type=subject.permission_type,
        target_resource=subject.target_resource,
        justification=ask.justification,
        status=status,
        approved_by=denial.by if denial else AUTO_APPROVER if auto else None,
        approved_at=now if is_closed else None,
        expires_at=now if auto else None if denial else ask.deadline,
        metadata=ask.metadata,
    )
    row.context = PermissionContext(
        request=row,
        requested_by=str(by),
        owner=find_username_behind_actor(by),
        session_id=ask.session_id,
        agent_id=ask.agent_id,
        event_id=ask.event_id,
        tool_name=subject.tool_name,
        tool_input=subject.tool_input,
        folder=ask.folder,
        host=ask.host,
        subject_key=question.call,
        scope=Scope.CALL,
        pending_key=None if is_closed else question.pending_key,
        idempotency_key=question.idempotency_key,
        repeat_key=None if is_closed else question.repeat_key,
        waits_until=ask.waits_until,
        waited_by=ask.waited_by,
        deadline=ask.deadline,
        validity=Validity.ONCE if auto else None,
        closed_at=now if is_closed else None,
        closed_by=str(RULES if denial else system_actor("auto-approve")) if is_closed else None,
        reason=denial.reason if denial else None,
    )
    row.context.needed = deciders.load_decider_book(now).required_approval_count(row)
    row.context.save(force_insert=True)
    rows.audit_request_event("PERMISSION_REQUEST_CREATED", row, by, "success", now, reason=ask.justification)
    if denial is not None:
        rows.audit_request_event(
            "PERMISSION_REQUEST_DENIED",
            row,
            RULES,
            "denied",
            now,
            reason=denial.reason,
            metadata={"by": denial.by, **policy_in_force.ruling_source_as_json(denial)},
        )
    elif auto:
        rows.audit_request_event(
            "PERMISSION_REQUEST_AUTO_APPROVED", row, system_actor("auto-approve"), "allowed", now
        )
    else:
        notifications.announce_waiting_request(row, now=now)
    return row


def find_username_behind_actor(actor: Actor) -> str | None:
    """Return the person behind the asker: themselves, or who made the key."""
    if actor.kind == "user":
        return actor.name
    made_by = ApiKey.objects.filter(name=actor.name).values_list("created_by", flat=True).first() or ""
    return made_by.removeprefix("user:") if actor.kind == "key" and made_by.startswith("user:") else None
