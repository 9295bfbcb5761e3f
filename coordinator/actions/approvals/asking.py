"""Asking: one request a question, however often and however concurrently it is asked."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from coordinator import approvals as rules
from coordinator.actions import notifications
from coordinator.actions.approvals import ending, rows
from coordinator.actors import Actor, system
from coordinator.approvals import Subject, Validity
from coordinator.errors import Conflict, Invalid, TooLarge
from coordinator.models import ApiKey, PermissionContext, PermissionRequest
from coordinator.secrets.masking import without_secrets

LONGEST_TEXT = 20_000
LARGEST_INPUT = 1_000_000
AUTO_APPROVER = "YOLO"


@dataclass(frozen=True, slots=True)
class Ask:
    """What an agent asks for, before there is a row for it."""

    subject: Subject
    justification: str
    metadata: Any = None
    session_id: str | None = None
    agent_id: str | None = None
    event_id: int | None = None
    deadline: datetime | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """The request that answers an `Ask`; `created` is false where it joined one that stood already."""

    request: PermissionRequest
    created: bool


def request(ask: Ask, *, by: Actor, now: datetime | None = None) -> Asked:
    """Ask a person for a permission.

    The same asker's same question while it is pending joins the request that stands; one that an approval in
    force covers is answered by that approval. Raises Invalid for what cannot be accepted, TooLarge for what
    nobody can judge, Conflict for an idempotency key that was used for another question.
    """
    now = now or timezone.now()
    check(ask, now)
    ask = _shown(ask)
    for _attempt in range(5):
        with transaction.atomic():
            found = _standing_answer(ask, by, now)
            if found is not None:
                return Asked(found, created=False)
            try:
                with transaction.atomic():
                    return Asked(_create(ask, by, now), created=True)
            except IntegrityError:
                # A twin was first: its row is committed by now, so the next look joins it.
                _forget_orphan(ask, by)
    raise Conflict("The same request is being opened and closed too fast to join. Ask again.")


def _shown(ask: Ask) -> Ask:
    """Return the question as it is stored and judged: without its secrets. Raises TooLarge."""
    return replace(
        ask,
        subject=ask.subject.shown(),
        justification=without_secrets(ask.justification, judged=True),
        metadata=without_secrets(ask.metadata, judged=True),
    )


def check(ask: Ask, now: datetime) -> None:
    """Raise Invalid or TooLarge for a question that a person could not judge."""
    for name, text in (
        ("plugin_id", ask.subject.plugin_id),
        ("permission_type", ask.subject.permission_type),
        ("justification", ask.justification),
    ):
        if not text.strip():
            raise Invalid(f"{name} must say something: a person decides by it.")
    if ask.deadline is not None and ask.deadline <= now:
        raise Invalid("The deadline lies in the past: nobody could decide in time.")
    texts = (
        ask.justification,
        ask.subject.plugin_id,
        ask.subject.permission_type,
        ask.subject.target_resource,
    )
    if any(len(text or "") > LONGEST_TEXT for text in texts):
        raise TooLarge(f"No text of a request may be longer than {LONGEST_TEXT} characters.")
    if len(rules.canonical(ask.subject.tool_input)) > LARGEST_INPUT:
        raise TooLarge(
            f"tool_input is over {LARGEST_INPUT} bytes: nobody can judge that. Name a file instead."
        )


def _standing_answer(ask: Ask, by: Actor, now: datetime) -> PermissionRequest | None:
    """Return the row that already answers this question, if any."""
    if ask.idempotency_key is not None:
        told = (
            PermissionRequest.objects.with_context()
            .filter(context__idempotency_key=_idempotency(ask, by))
            .first()
        )
        if told is not None:
            if rules.subject_of(told).key != ask.subject.key:
                raise Conflict("This idempotency_key was used for another request.")
            return told
    twin = PermissionRequest.objects.with_context().filter(context__pending_key=_pending_key(ask, by)).first()
    if twin is not None:
        if rules.standing(twin, now).waiting:
            return twin
        ending.lapse(twin, now)
    approval = rules.approval_for(ask.subject, ask.agent_id, now)
    if approval is not None:
        rows.record(
            "PERMISSION_APPROVAL_USED", approval, by, "allowed", now, metadata={"agent_id": ask.agent_id}
        )
    return approval


def _forget_orphan(ask: Ask, by: Actor) -> None:
    """Free the keys of a context whose request is gone: a program without foreign keys (SQLite's own default)
    has deleted the row, and nothing could ever be asked again."""
    ours = Q(pending_key=_pending_key(ask, by)) | Q(idempotency_key=_idempotency(ask, by))
    PermissionContext.objects.filter(
        ours, ~Exists(PermissionRequest.objects.filter(request_id=OuterRef("pk")))
    ).delete()


def _create(ask: Ask, by: Actor, now: datetime) -> PermissionRequest:
    subject, auto = ask.subject, ask.subject.permission_type in settings.AUTO_APPROVE_TYPES
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
    row.context = PermissionContext.objects.create(
        request=row,
        requested_by=str(by),
        owner=_owner(by),
        session_id=ask.session_id,
        agent_id=ask.agent_id,
        event_id=ask.event_id,
        tool_name=subject.tool_name,
        tool_input=subject.tool_input,
        subject_key=subject.key,
        pending_key=None if auto else _pending_key(ask, by),
        idempotency_key=_idempotency(ask, by) if ask.idempotency_key is not None else None,
        deadline=ask.deadline,
        needed=2 if subject.permission_type in settings.TWO_PERSON_TYPES else 1,
        validity=Validity.ONCE if auto else None,
        closed_at=now if auto else None,
        closed_by=str(system("auto-approve")) if auto else None,
    )
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


def _pending_key(ask: Ask, by: Actor) -> str:
    return rules.digest(str(by), ask.agent_id, ask.session_id, ask.subject.key)


def _idempotency(ask: Ask, by: Actor) -> str:
    return rules.digest(str(by), ask.idempotency_key)
