"""Asking: one request a question, however often and however concurrently it is asked."""

from __future__ import annotations

import uuid
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from coordinator.actions import notifications
from coordinator.actions.approvals import ending, holding, rows
from coordinator.errors import Conflict, Invalid, TooLarge, TooMany
from coordinator.identity.actors import Actor, system
from coordinator.models import ApiKey, PermissionContext, PermissionRequest
from coordinator.policy import approvals as rules
from coordinator.policy import coverage, deciders
from coordinator.policy.approvals import Scope, Subject, Validity, call_digest, old_digest
from coordinator.policy.coverage import Requester
from coordinator.secrets.digests import keyed_digest
from coordinator.secrets.masking import without_secrets

LONGEST_TEXT = 20_000
LARGEST_INPUT = 1_000_000
AUTO_APPROVER = "YOLO"
RETRY_AFTER = 30  # seconds; people decide, so nobody knows


@dataclass(frozen=True, slots=True)
class NewRequest:
    """What an agent asks for, before there is a row for it.

    Where it `outlasts` its hook, which waits until `waits_until`, its verdict is for one call: that hook's, or the
    same call's made again (actions.approvals.holding).
    """

    subject: Subject
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

    def requester(self, by: Actor) -> Requester:
        return Requester(self.agent_id, str(by), self.session_id, self.folder, self.host)


@dataclass(frozen=True, slots=True)
class AskResult:
    """The request that answers an `NewRequest`; `created` is false where it joined one that stood already."""

    request: PermissionRequest
    created: bool


@dataclass(frozen=True, slots=True)
class _Question:
    """A question ready to be stored: what is shown of it, and the digests of what was asked, made unmasked.

    Twins share `pending_key`: the same asker asks for the same, in the same place, with the same rules on offer, and
    does not say that it is another call (`slot`).
    """

    shown: NewRequest
    subject: Subject
    by: Actor
    requester: Requester
    call: str
    pending_key: str
    idempotency_key: str | None
    repeat_key: str | None


def request(ask: NewRequest, *, by: Actor, now: datetime | None = None) -> AskResult:
    """Ask a person for a permission.

    The same asker's same question while it is pending joins the request that stands, unless it is about another
    of several equal calls (`slot`); one that an approval in force covers is answered by that approval.
    Raises Invalid for what cannot be accepted, TooLarge for what nobody can judge, Conflict for an idempotency key
    that was used for another question, TooMany for an asker who has as many requests waiting as one may.
    """
    now = now or timezone.now()
    check(ask, now)
    question = _question(replace(ask, folder=without_secrets(ask.folder)), by)
    for _attempt in range(5):
        with transaction.atomic():
            found = _standing_answer(question, now)
            if found is not None:
                return AskResult(found, created=False)
            _require_room(by, now)
            try:
                with transaction.atomic():
                    return AskResult(_create(question, now), created=True)
            except IntegrityError:
                # A twin was first: its row is committed by now, so the next look joins it.
                _forget_orphan(question)
    raise Conflict("This request was closed while you sent it again. Send it once more.")


def asked_as(idempotency_key: str, *, by: Actor) -> PermissionRequest | None:
    """Return the request that `by` made under this key, with its context; None where there is none."""
    key = _own_key(idempotency_key, by)
    return PermissionRequest.objects.with_context().filter(context__idempotency_key=key).first()


def _own_key(idempotency_key: str, by: Actor) -> str:
    """Return an asker's key as it is stored: two askers may choose the same."""
    return rules.digest(str(by), idempotency_key)


def _question(ask: NewRequest, by: Actor) -> _Question:
    """Return the question as it is stored and judged: without its secrets. Raises TooLarge."""
    requester, call = ask.requester(by), call_digest(ask.subject)
    offered = ask.metadata.get("permission_suggestions") if isinstance(ask.metadata, dict) else None
    known = ask.idempotency_key
    shown = replace(
        ask,
        subject=ask.subject.shown(),
        justification=without_secrets(ask.justification, judged=True),
        metadata=without_secrets(ask.metadata, judged=True),
    )
    return _Question(
        shown,
        ask.subject,
        by,
        requester,
        call,
        pending_key=keyed_digest(
            "pending", str(by), *astuple(requester), call, offered, *([ask.slot] if ask.slot else [])
        ),
        idempotency_key=_own_key(known, by) if known is not None else None,
        repeat_key=holding.repeat_key(by, requester, call) if ask.outlasts else None,
    )


def _require_room(by: Actor, now: datetime) -> None:
    """Raise TooMany where the asker has as many requests waiting as one may: others must be seen beside them.

    A call that was told to wait makes way: its agent has gone on, and can ask again. Those who ask at the same
    instant may pass the limit together, by as many as there are threads.
    """
    mine = PermissionRequest.objects.waiting(now).filter(
        context__requested_by=str(by), context__pending_key__isnull=False
    )
    too_many = mine.count() - settings.MAX_PENDING_REQUESTS + 1
    if too_many > 0 and not ending.make_way(mine, too_many, by, now):
        raise TooMany(
            f"{by} already has {settings.MAX_PENDING_REQUESTS} waiting requests, which is the limit. "
            "Wait until some are decided, or withdraw some.",
            retry_after=RETRY_AFTER,
        )


def check(ask: NewRequest, now: datetime) -> None:
    """Raise Invalid or TooLarge for a question that a person could not judge."""
    for name, text in (
        ("plugin_id", ask.subject.plugin_id),
        ("permission_type", ask.subject.permission_type),
        ("justification", ask.justification),
    ):
        if not text.strip():
            raise Invalid(f"{name} must not be empty: people need it to decide.")
    if ask.deadline is not None and ask.deadline <= now:
        raise Invalid("The deadline is in the past. Choose a later one.")
    texts = (
        ask.justification,
        ask.subject.plugin_id,
        ask.subject.permission_type,
        ask.subject.target_resource,
    )
    if any(len(text or "") > LONGEST_TEXT for text in texts):
        raise TooLarge(f"Each text of a request may have at most {LONGEST_TEXT} characters.")
    if len(rules.canonical(ask.subject.tool_input)) > LARGEST_INPUT:
        raise TooLarge(
            f"tool_input is larger than {LARGEST_INPUT} bytes, too large for a person to judge. Name a file instead."
        )


def _standing_answer(question: _Question, now: datetime) -> PermissionRequest | None:
    """Return the row that already answers this question, if any."""
    requests = PermissionRequest.objects.with_context()
    if question.idempotency_key is not None:
        earlier = requests.filter(context__idempotency_key=question.idempotency_key).first()
        if earlier is not None:
            if not _asks_the_same(earlier, question):
                raise Conflict("This idempotency_key was already used for a different request.")
            if question.repeat_key is not None and earlier.status == PermissionRequest.Status.PENDING:
                holding.join(earlier, question.shown.waits_until, question.shown.waited_by)
            return earlier
    if question.repeat_key is not None:
        waited_by = question.shown.waited_by
        known = holding.for_call(question.repeat_key, question.requester, now, waited_by=waited_by)
        if known is not None:
            if known.status == PermissionRequest.Status.PENDING:
                holding.join(known, question.shown.waits_until, waited_by)
            return known
    twin = requests.filter(context__pending_key=question.pending_key).first()
    if twin is not None:
        if rules.standing(twin, now).waiting:
            if question.shown.waited_by is not None:
                PermissionContext.objects.filter(request=twin).update(waited_by=question.shown.waited_by)
            return twin
        ending.expire(twin, now)
    approval = coverage.approval_for(question.subject, question.requester, now)
    if approval is not None:
        used = {"agent_id": question.requester.agent_id, "session_id": question.requester.session_id}
        rows.record("PERMISSION_APPROVAL_USED", approval, question.by, "allowed", now, metadata=used)
    return approval


def _asks_the_same(row: PermissionRequest, question: _Question) -> bool:
    """Say whether the row is the same call by the same asker in the same place; older rows do not say the place."""
    if row.context.scope is None:
        return row.context.subject_key in (question.call, old_digest(question.subject))
    return row.context.subject_key == question.call and coverage.requester_of(row) == question.requester


def _forget_orphan(question: _Question) -> None:
    """Free the keys of a context whose request is gone: a program without foreign keys (SQLite's own default)
    has deleted the row, and nothing could ever be asked again."""
    ours = Q(pending_key=question.pending_key)
    if question.idempotency_key is not None:
        ours |= Q(idempotency_key=question.idempotency_key)
    PermissionContext.objects.filter(
        ours, ~Exists(PermissionRequest.objects.filter(request_id=OuterRef("pk")))
    ).delete()


def _create(question: _Question, now: datetime) -> PermissionRequest:
    ask, by, subject = question.shown, question.by, question.shown.subject
    auto = subject.permission_type in settings.AUTO_APPROVE_TYPES
    row = PermissionRequest.objects.create(
        request_id=f"req_{uuid.uuid4().hex[:12]}",
        created_at=now,
        plugin_id=subject.plugin_id,
        permission_type=subject.permission_type,
        target_resource=subject.target_resource,
        justification=ask.justification,
        status="auto-approved" if auto else "pending",
        approved_by=AUTO_APPROVER if auto else None,
        approved_at=now if auto else None,
        expires_at=now if auto else ask.deadline,
        metadata=ask.metadata,
    )
    row.context = PermissionContext(
        request=row,
        requested_by=str(by),
        owner=_owner(by),
        session_id=ask.session_id,
        agent_id=ask.agent_id,
        event_id=ask.event_id,
        tool_name=subject.tool_name,
        tool_input=subject.tool_input,
        folder=ask.folder,
        host=ask.host,
        subject_key=question.call,
        scope=Scope.CALL,
        pending_key=None if auto else question.pending_key,
        idempotency_key=question.idempotency_key,
        repeat_key=None if auto else question.repeat_key,
        waits_until=ask.waits_until,
        waited_by=ask.waited_by,
        deadline=ask.deadline,
        validity=Validity.ONCE if auto else None,
        closed_at=now if auto else None,
        closed_by=str(system("auto-approve")) if auto else None,
    )
    row.context.needed = deciders.load(now).needed(row)
    row.context.save(force_insert=True)
    rows.record("PERMISSION_REQUEST_CREATED", row, by, "success", now, reason=ask.justification)
    if auto:
        rows.record("PERMISSION_REQUEST_AUTO_APPROVED", row, system("auto-approve"), "allowed", now)
    else:
        notifications.announce(row, now=now)
    return row


def _owner(by: Actor) -> str | None:
    """Return the person behind the asker: themselves, or who made the key."""
    if by.kind == "user":
        return by.name
    made_by = ApiKey.objects.filter(name=by.name).values_list("created_by", flat=True).first() or ""
    return made_by.removeprefix("user:") if by.kind == "key" and made_by.startswith("user:") else None
