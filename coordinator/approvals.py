"""Where a permission request stands, and what an approval covers: the rules that only read.

Cards, history, the machine doors and whatever enforces a permission all ask here, so that no two of them can
answer differently. The writing half is `coordinator.actions.approvals`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from coordinator import instants
from coordinator.actions.keys import KeyIdentity
from coordinator.errors import NotFound, TooLarge
from coordinator.models import PermissionContext, PermissionRequest
from coordinator.secrets.masking import without_secrets


class Validity(models.TextChoices):
    """For how long an approval stands. `once` answers the request itself and nothing that comes later."""

    ONCE = "once", "Once"
    HOUR = "1h", "1 hour"
    SHIFT = "8h", "8 hours"
    WEEK = "7d", "7 days"
    UNTIL_REVOKED = "until-revoked", "Until revoked"


_LENGTHS = {
    Validity.ONCE: timedelta(0),
    Validity.HOUR: timedelta(hours=1),
    Validity.SHIFT: timedelta(hours=8),
    Validity.WEEK: timedelta(days=7),
}
APPROVED = ("approved", "auto-approved")


def end_of(validity: Validity, start: datetime) -> datetime | None:
    """Return when an approval given at `start` ends; None stands until somebody revokes it.

    One that is valid once ends as it begins: other programs that read the table must not reuse it.
    """
    return None if validity is Validity.UNTIL_REVOKED else start + _LENGTHS[validity]


def shorter(one: Validity, other: Validity) -> Validity:
    """Return the more careful of two people's choices."""
    order = list(Validity)
    return min(one, other, key=order.index)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked for: everything that a person judges, and so everything an approval covers."""

    plugin_id: str
    permission_type: str
    target_resource: str | None = None
    tool_name: str | None = None
    tool_input: Any = None

    @property
    def key(self) -> str:
        """Return a digest that two requests share exactly when they ask for the same thing."""
        return digest(
            self.plugin_id, self.permission_type, self.target_resource, self.tool_name, self.tool_input
        )

    def shown(self) -> Subject:
        """Return what a card shows of it: its secrets masked, each so that it is known again, never what could act.

        That, and so the same secrets, is what an approval covers. The asker goes on with what it asked with.
        Raises TooLarge for what a card cannot show whole.
        """
        target = without_secrets(self.target_resource, judged=True)
        return replace(self, target_resource=target, tool_input=without_secrets(self.tool_input, judged=True))


def digest(*parts: Any) -> str:
    """Return the SHA-256 of `parts` as canonical JSON, so that no two different lists read alike."""
    return hashlib.sha256(canonical(parts)).hexdigest()


def canonical(value: Any) -> bytes:
    """Return `value` as JSON in the one form that equal values share."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def subject_of(request: PermissionRequest) -> Subject:
    """Return what `request` asks for; a row that another program wrote has no tool and no input."""
    context = context_of(request)
    return Subject(
        request.plugin_id,
        request.permission_type,
        request.target_resource,
        context.tool_name if context else None,
        context.tool_input if context else None,
    )


def context_of(request: PermissionRequest) -> PermissionContext | None:
    """Return what the request's own table has no column for, or None for a row of another program."""
    return getattr(request, "context", None)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a request stands at one instant: its row read together with the clock.

    `status` is the table's word, with `expired` for a pending row whose deadline has passed. `word` is what
    people read. `waiting`: a person may decide it. `allowed`: its own asker may go on. `in_force`: it also
    stands for later requests of the same kind. `until`: the deadline while waiting, else the end of validity.
    """

    status: str
    word: str
    waiting: bool = False
    allowed: bool = False
    in_force: bool = False
    until: datetime | None = None


def standing(request: PermissionRequest, now: datetime) -> Standing:
    """Say where `request` stands at `now`. The one place that reads a status."""
    until = request.expires_at if isinstance(request.expires_at, datetime) else None
    if request.status == "pending":
        if until is not None and until <= now:
            return Standing("expired", "Expired", until=until)
        return Standing("pending", "Waiting", waiting=True, until=until)
    if request.status in APPROVED:
        return _approved(request, until, now)
    return Standing(request.status, _WORDS.get(request.status, request.status))


_WORDS = {"denied": "Denied", "expired": "Expired", "withdrawn": "Withdrawn"}


def _approved(request: PermissionRequest, until: datetime | None, now: datetime) -> Standing:
    context = context_of(request)
    if context is not None and context.revoked_at is not None:
        return Standing(request.status, "Revoked", until=until)
    if context is not None and context.validity == Validity.ONCE:
        return Standing(request.status, "Approved once", allowed=True, until=until)
    if request.expires_at is not None and (until is None or until <= now):
        return Standing(request.status, "Approval over", until=until)
    # Only a person's word stands for later requests: what nobody decided is decided again each time.
    return Standing(
        request.status, "Approved", allowed=True, in_force=request.status == "approved", until=until
    )


def needed(request: PermissionRequest) -> int:
    """Return how many different people must approve; a rule made since it was asked counts too."""
    context = context_of(request)
    two = request.permission_type in settings.TWO_PERSON_TYPES
    return max(context.needed if context else 1, 2 if two else 1)


def can_revoke(request: PermissionRequest, now: datetime) -> bool:
    """Say whether there is something to take back: an approval in force, or a permission it granted."""
    context = context_of(request)
    granted = context is not None and context.granted and context.revoked_at is None
    return standing(request, now).in_force or (request.status in APPROVED and granted)


def story(request: PermissionRequest, now: datetime) -> str:
    """Return one sentence that tells how the request ended, for whoever came too late."""
    state, context = standing(request, now), context_of(request)
    if state.waiting:
        return "It still waits for a decision."
    if state.status == "expired":
        return f"its deadline passed {ago(state.until or request.expires_at, now)}."
    if state.status == "withdrawn":
        return f"its asker withdrew it {ago(context.closed_at if context else None, now)}."
    told = f"{request.approved_by or 'somebody'} {state.status} it {ago(request.approved_at, now)}"
    if context is not None and context.revoked_at is not None:
        told += f", and {context.revoked_by} revoked that {ago(context.revoked_at, now)}"
    return f"{told}."


def waited(request: PermissionRequest) -> timedelta | None:
    """Return how long the asker waited for a person's verdict; None where no person gave one."""
    if request.status not in ("approved", "denied"):
        return None
    if not isinstance(request.created_at, datetime) or not isinstance(request.approved_at, datetime):
        return None
    return max(request.approved_at - request.created_at, timedelta(0))


def ago(then: datetime | str | None, now: datetime) -> str:
    """Return how long ago `then` was, in the largest unit that says it: `12 s ago`."""
    if not isinstance(then, datetime):
        return "earlier"
    seconds = max(0, int((now - then).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def approval_for(subject: Subject, agent_id: str | None, now: datetime) -> PermissionRequest | None:
    """Return the newest approval in force that covers `subject` for this agent, or None.

    It covers what the person saw on the card: the same plugin, type, target, tool and input. One that named
    an agent covers that agent alone; one that named none covers the plugin, whoever runs it.
    """
    try:
        subject = subject.shown()
    except TooLarge:  # no person saw it whole
        return None
    rows = (
        PermissionRequest.objects.with_context()
        .in_force(now)
        .filter(
            plugin_id=subject.plugin_id,
            permission_type=subject.permission_type,
            target_resource=subject.target_resource,
        )
        .order_by("-id")
    )
    return next((row for row in rows if _covers(row, subject, agent_id, now)), None)


def _covers(row: PermissionRequest, subject: Subject, agent_id: str | None, now: datetime) -> bool:
    context = context_of(row)
    named = context.agent_id if context else None
    return standing(row, now).in_force and named in (None, agent_id) and subject_of(row).key == subject.key


def is_approved(
    plugin_id: str,
    permission_type: str,
    target: str | None,
    now: datetime | None = None,
    *,
    agent_id: str | None = None,
    tool_name: str | None = None,
    tool_input: Any = None,
) -> bool:
    """Say whether a person's approval in force covers exactly this. Anything unclear is a no."""
    subject = Subject(plugin_id, permission_type, target, tool_name, tool_input)
    return approval_for(subject, agent_id, now or timezone.now()) is not None


def answer(request: PermissionRequest, now: datetime) -> dict[str, Any]:
    """Return the request as the machine doors and exports tell it, at `now`."""
    state, context = standing(request, now), context_of(request)
    return {
        "request_id": request.request_id,
        "status": state.status,
        "allowed": state.allowed,
        "approved_by": request.approved_by,
        "approved_at": moment(request.approved_at),
        "expires_at": moment(request.expires_at),
        "reason": context.reason if context else None,
        "validity": context.validity if context else None,
        "revoked_at": moment(context.revoked_at) if context else None,
        "created_at": moment(request.created_at),
        "deadline": moment(context.deadline if context else request.expires_at if state.waiting else None),
        "plugin_id": request.plugin_id,
        "permission_type": request.permission_type,
        "target_resource": request.target_resource,
        "justification": request.justification,
        "metadata": request.metadata,
        "session_id": context.session_id if context else None,
        "agent_id": context.agent_id if context else None,
        "tool_name": context.tool_name if context else None,
        "tool_input": context.tool_input if context else None,
    }


def moment(value: datetime | str | None) -> str | None:
    """Return an instant in the canonical form; what could not be read as one stays as it was."""
    if isinstance(value, datetime):
        return instants.canonical(value)
    return value


def verdict(request_id: str, now: datetime | None = None) -> dict[str, Any] | None:
    """Return the answer once there is one (decided, lapsed or withdrawn), or None while a person is awaited.

    Raises NotFound for an unknown request: nothing would ever free that waiter.
    """
    now, row = now or timezone.now(), find(request_id)
    return None if standing(row, now).waiting else answer(row, now)


def find(request_id: str) -> PermissionRequest:
    """Return the request. Raises NotFound."""
    row = PermissionRequest.objects.with_context().filter(request_id=request_id).first()
    if row is None:
        raise NotFound("No such permission request.")
    return row


def visible(request_id: str, caller: KeyIdentity, now: datetime) -> PermissionRequest:
    """Return the request as far as this key may see it: who asked may, and keys that read everything.

    An approval in force is also told to whoever it covers, because their own question is answered with it.
    Raises NotFound, for requests of others as for unknown ones.
    """
    row = find(request_id)
    if caller.scopes & READ_ALL or _asked_by(row, caller) or _is_covered(row, caller, now):
        return row
    raise NotFound("No such permission request.")


READ_ALL = frozenset({"read", "operator"})


def _asked_by(row: PermissionRequest, caller: KeyIdentity) -> bool:
    context = context_of(row)
    if context is None:
        return False
    by_its_agent = caller.agent_id is not None and context.agent_id == caller.agent_id
    return by_its_agent or context.requested_by == str(caller.actor)


def _is_covered(row: PermissionRequest, caller: KeyIdentity, now: datetime) -> bool:
    named = context.agent_id if (context := context_of(row)) else None
    return standing(row, now).in_force and (None in (named, caller.agent_id) or named == caller.agent_id)


def groups(rows: Iterable[PermissionRequest]) -> list[list[PermissionRequest]]:
    """Return `rows` with those that ask for the same thing together, in the order they first appeared."""
    found: dict[str, list[PermissionRequest]] = {}
    for row in rows:
        found.setdefault(subject_of(row).key, []).append(row)
    return list(found.values())
