"""The state of a permission request, and what an approval covers: the rules that only read.

Cards, history, the machine endpoints and all code that enforces a permission use this module, so that no two of them
can answer differently. The writing half is `coordinator.actions.approvals`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models

from coordinator.errors import NotFound
from coordinator.identity.keys import KeyIdentity
from coordinator.identity.scopes import OVERSEERS
from coordinator.lib import instants, times
from coordinator.models import PermissionContext, PermissionRequest
from coordinator.models.permissions import RequestStatus as Status
from coordinator.policy.requests.gateway_requests import gateway_request_call_label
from coordinator.policy.requests.questions import question_or_plan_in_one_line
from coordinator.policy.requests.tool_calls import CAN_STOP_TURN, STOPS_TURN
from coordinator.secrets.digests import keyed_digest
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.agent_programs import AGENT_TITLES


class Validity(models.TextChoices):
    """How long an approval is valid. `once` answers the request itself and nothing that comes later."""

    ONCE = "once", "Once"
    HOUR = "1h", "1 hour"
    TWO_HOURS = "2h", "2 hours"
    SHIFT = "8h", "8 hours"
    WEEK = "7d", "7 days"
    UNTIL = "until", "Until a time"  # that a person wrote; the row's `expires_at` has it
    UNTIL_REVOKED = "until-revoked", "Until revoked"


_LENGTHS = {
    Validity.ONCE: timedelta(0),
    Validity.HOUR: timedelta(hours=1),
    Validity.TWO_HOURS: timedelta(hours=2),
    Validity.SHIFT: timedelta(hours=8),
    Validity.WEEK: timedelta(days=7),
}
LAST_INSTANT = datetime.max.replace(tzinfo=UTC)
APPROVED = (Status.APPROVED, Status.AUTO_APPROVED)
DECIDED = (Status.APPROVED, Status.DENIED)  # by a person
UNDECIDED = (Status.PENDING, Status.EXPIRED, Status.WITHDRAWN)


def approval_end(validity: Validity, start: datetime, chosen_end: datetime | None = None) -> datetime | None:
    """Return when an approval given at `start` ends; None: it is valid until somebody revokes it.

    `chosen_end` is the time that a person wrote (Validity.UNTIL).

    One that is valid once ends as it begins: other programs that read the table must not reuse it.
    """
    if validity is Validity.UNTIL_REVOKED:
        return None
    return chosen_end or start if validity is Validity.UNTIL else start + _LENGTHS[validity]


def shortest_validity(
    choices: Iterable[tuple[Validity, datetime | None]], start: datetime
) -> tuple[Validity, datetime | None]:
    """Return the most careful of several people's choices: that of which an approval given at `start` ends first.

    A choice is a validity with the time that the person wrote, if any.
    """
    return min(choices, key=lambda choice: approval_end(choice[0], start, choice[1]) or LAST_INSTANT)


class Scope(models.TextChoices):
    """Where an approval counts, narrowest first. Each is within the next where the folder is known."""

    CALL = "call", "This call"
    SESSION = "session", "This session"
    FOLDER = "folder", "This folder on this host"
    EVERYWHERE = "everywhere", "Everywhere"


def narrower_scope(scope: Scope, other: Scope) -> Scope:
    """Return the more careful of two people's choices."""
    order = list(Scope)
    return min(scope, other, key=order.index)


@dataclass(frozen=True, slots=True)
class PermissionSubject:
    """What is asked for: everything that a person judges, and so everything an approval covers."""

    plugin_id: str
    permission_type: str
    target_resource: str | None = None
    tool_name: str | None = None
    tool_input: Any = None

    @property
    def subject_digest(self) -> str:
        """Return the digest that two requests share exactly when they ask for the same thing."""
        return call_digest(self)

    def copy_with_masked_secrets(self) -> PermissionSubject:
        """Return what a card shows of it: its secrets masked, each so that it is known again, never what could act.

        The asker goes on with what it asked with. Raises TooLarge for what a card cannot show whole.
        """
        return PermissionSubject(
            *(mask_secrets_in_value(getattr(self, field.name), judged=True) for field in fields(self))
        )


def call_digest(subject: PermissionSubject) -> str:
    """Return the keyed SHA-256, in hexadecimal, of everything that is asked for. Give it the unmasked values.

    The one digest of a call: joining, lasting approvals, repeats and edits compare this and never masked text.
    """
    return keyed_digest("call", *subject_field_values(subject))


def legacy_call_digest(subject: PermissionSubject) -> str:
    """Return the digest stored with requests from before scopes: of the masked values, without a key."""
    return hash_json_parts(*subject_field_values(subject))


def subject_field_values(subject: PermissionSubject) -> tuple[Any, ...]:
    return (
        subject.plugin_id,
        subject.permission_type,
        subject.target_resource,
        subject.tool_name,
        subject.tool_input,
    )


def hash_json_parts(*parts: Any) -> str:
    """Return the SHA-256 of `parts` as canonical JSON, so that no two different lists read alike."""
    return hashlib.sha256(canonical_json_bytes(parts)).hexdigest()


def canonical_json_bytes(value: Any) -> bytes:
    """Return `value` as JSON in the one form that equal values share."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def request_subject(request: PermissionRequest) -> PermissionSubject:
    """Return what `request` asks for, as cards show it; a row of another program has no tool and no input."""
    context = request_context(request)
    return PermissionSubject(
        request.plugin_id,
        request.permission_type,
        request.target_resource,
        context.tool_name if context else None,
        context.tool_input if context else None,
    )


NOT_LISTED = object()  # was not loaded by PermissionRequestQuerySet.as_listed


def permission_request_gist(request: PermissionRequest) -> str:
    """Return what `request` asks for in as few words as a list has room for: a command, or the target."""
    tool_input = already_loaded_tool_input(request)
    command = tool_input.get("command") if isinstance(tool_input, dict) else None
    if (call := gateway_request_call_label(request)) is not None:
        return call
    context = request_context(request)
    if context is not None and (question := question_or_plan_in_one_line(context.tool_name, tool_input)):
        return question
    return command if isinstance(command, str) and command else request.target_resource or ""


def request_call_digest(request: PermissionRequest) -> str:
    """Return the digest of the call that `request` asks for; of a row from before scopes, of what it shows."""
    context = request_context(request)
    if context is None or context.scope is None:
        return call_digest(request_subject(request))
    return context.subject_key


def already_loaded_tool_input(request: PermissionRequest) -> Any:
    """Return the request's input, as far as it was loaded: lists leave out large ones."""
    loaded = getattr(request, "listed_input", NOT_LISTED)
    return request_subject(request).tool_input if loaded is NOT_LISTED else loaded


def find_offered_rules(request: PermissionRequest) -> list[dict[str, Any]]:
    """Return the rules that the asker offers to add with an approval ("always allow")."""
    offered = request.metadata.get("permission_suggestions") if isinstance(request.metadata, dict) else None
    return (
        [offered_entry for offered_entry in offered if isinstance(offered_entry, dict)]
        if isinstance(offered, list)
        else []
    )


def approved_edited_input(request: PermissionRequest) -> Any:
    """Return the input that a person approved in place of the one asked for; None where they approved that."""
    return approval_additions_by_name(request).get("updated_input")


def approval_additions_by_name(request: PermissionRequest) -> dict[str, Any]:
    """Return what the person added to their approval: an edited input, rules, an answer; empty where nothing was."""
    context = request_context(request)
    added = context.answer if context is not None else None
    return added if isinstance(added, dict) else {}


def can_stop_turn(request: PermissionRequest) -> bool:
    """Say whether a denial can also end the turn of the agent that asks."""
    metadata = request.metadata if isinstance(request.metadata, dict) else {}
    return request.plugin_id in AGENT_TITLES and metadata.get(CAN_STOP_TURN) is True


def is_turn_stopped(request: PermissionRequest) -> bool:
    """Say whether a person denied the request and ended the agent's turn with it."""
    return approval_additions_by_name(request).get(STOPS_TURN) is True


def has_edited_input(request: PermissionRequest) -> bool:
    """Say whether a person approved another input than the one asked for."""
    listed = getattr(request, "is_edited", NOT_LISTED)
    return approved_edited_input(request) is not None if listed is NOT_LISTED else bool(listed)


def request_context(request: PermissionRequest) -> PermissionContext | None:
    """Return what the request's own table has no column for, or None for a row of another program."""
    return getattr(request, "context", None)


@dataclass(frozen=True, slots=True)
class RequestState:
    """The state of a request at one instant: its row read together with the clock.

    `status` is the table's word, with `expired` for a pending row whose deadline has passed. `word` is what
    people read. `waiting`: a person may decide it. `allowed`: its own requester may go on. `in_force`: it also
    covers later requests of the same kind. `until`: the deadline while waiting, else the end of validity.
    """

    status: str
    word: str
    waiting: bool = False
    allowed: bool = False
    in_force: bool = False
    until: datetime | None = None


def current_request_state(request: PermissionRequest, now: datetime) -> RequestState:
    """Return the state of `request` at `now`. The one place that reads a status."""
    until = request.expires_at if isinstance(request.expires_at, datetime) else None
    if request.status == Status.PENDING:
        if until is not None and until <= now:
            return RequestState(Status.EXPIRED.value, Status.EXPIRED.label, until=until)
        return RequestState(Status.PENDING.value, "Waiting", waiting=True, until=until)
    if request.status in APPROVED:
        return approved_request_state(request, until, now)
    return RequestState(request.status, dict(Status.choices).get(request.status, request.status))


def approved_request_state(request: PermissionRequest, until: datetime | None, now: datetime) -> RequestState:
    context = request_context(request)
    if context is not None and context.revoked_at is not None:
        return RequestState(request.status, "Revoked", until=until)
    if context is not None and context.validity == Validity.ONCE:
        return RequestState(request.status, "Approved once", allowed=True, until=until)
    if request.expires_at is not None and (until is None or until <= now):
        return RequestState(request.status, "Approval over", until=until)
    # What nobody decided is decided again each time, except where another program's row says that it lasts.
    lasts = context is None or (request.status == Status.APPROVED and context.scope != Scope.CALL)
    return RequestState(request.status, "Approved", allowed=True, in_force=lasts, until=until)


def required_approver_count(request: PermissionRequest) -> int:
    """Return how many different people must approve; a setting made since it was asked counts too.

    A request keeps what held when it was asked; where stricter rows come, they are written to it (policy.deciders).
    """
    context = request_context(request)
    two = request.permission_type in settings.TWO_PERSON_TYPES
    return max(context.needed if context else 1, 2 if two else 1)


def has_revocable_approval(request: PermissionRequest, now: datetime) -> bool:
    """Say whether there is something to take back: an approval in force, or a permission it granted."""
    context = request_context(request)
    granted = context is not None and context.granted and context.revoked_at is None
    return (
        current_request_state(request, now).in_force
        or (request.status in APPROVED and granted)
        or single_use_valid_until(request, now) is not None
    )


def single_use_valid_until(request: PermissionRequest, now: datetime) -> datetime | None:
    """Return until when the call whose agent was asked to wait may run by this approval; None where none may."""
    context = request_context(request)
    if request.status != Status.APPROVED or context is None or context.repeat_key is None:
        return None
    if context.validity != Validity.ONCE or context.used_at is not None or context.revoked_at is not None:
        return None
    end = context.closed_at + timedelta(seconds=settings.HELD_FOR)
    return end if end > now else None


def requester_name(request: PermissionRequest) -> str:
    """Return the requester's name: the agent, else the key or person, else the plugin."""
    context = request_context(request)
    return (context and (context.agent_id or context.requested_by)) or request.plugin_id


def is_denied_by_policy(request: PermissionRequest) -> bool:
    """Say whether a rule, a brake or the like denied it as it was made, and no person."""
    return (
        request.status == Status.DENIED
        and request.approved_at is not None
        and request.approved_at == request.created_at
    )


def describe_request_outcome(request: PermissionRequest, now: datetime) -> str:
    """Return one sentence that says how the request ended, for a person who came too late."""
    state, context = current_request_state(request, now), request_context(request)
    if state.waiting:
        return "the request is still waiting for a decision."
    if state.status == Status.EXPIRED:
        return f"its deadline passed {describe_time_ago(state.until or request.expires_at, now)}."
    if state.status == Status.WITHDRAWN:
        return f"its requester withdrew it {describe_time_ago(context.closed_at if context else None, now)}."
    is_answered = state.status == Status.APPROVED and "answers" in approval_additions_by_name(request)
    sentence = (
        f"{request.approved_by or 'somebody'} {'answered' if is_answered else state.status} it"
        f" {describe_time_ago(request.approved_at, now)}"
    )
    if approved_edited_input(request) is not None:
        sentence += ", with an edited input"
    if is_turn_stopped(request):
        sentence += ", turn ended"
    if context is not None and context.decided_for:
        sentence += f" ({context.decided_for})"
    if context is not None and context.revoked_at is not None:
        sentence += f", and {context.revoked_by} revoked that {describe_time_ago(context.revoked_at, now)}"
    return f"{sentence}."


def describe_time_ago(then: datetime | str | None, now: datetime) -> str:
    """Return how long ago `then` was; a row of another program may not say it."""
    return times.format_time_ago(then, now) if isinstance(then, datetime) else "earlier"


def time_waited_for_decision(request: PermissionRequest) -> timedelta | None:
    """Return how long the asker waited for a person's verdict; None where no person gave one."""
    if request.status not in DECIDED or is_denied_by_policy(request):
        return None
    if not isinstance(request.created_at, datetime) or not isinstance(request.approved_at, datetime):
        return None
    return max(request.approved_at - request.created_at, timedelta(0))


def approval_scope(request: PermissionRequest) -> str | None:
    """Return what an approval covers; None where there is none. One from before scopes covers everything alike."""
    if request.status not in APPROVED:
        return None
    context = request_context(request)
    if context is not None and context.validity == Validity.ONCE:
        return Scope.CALL.value
    return (context.scope if context else None) or Scope.EVERYWHERE.value


def canonical_instant_or_text(value: datetime | str | None) -> str | None:
    """Return an instant in the canonical form; what could not be read as one stays as it was."""
    if isinstance(value, datetime):
        return instants.format_canonical_instant(value)
    return value


def require_permission_request(request_id: str) -> PermissionRequest:
    """Return the request. Raises NotFound."""
    row = PermissionRequest.objects.with_context().filter(request_id=request_id).first()
    if row is None:
        raise NotFound("No such permission request.")
    return row


def require_visible_request(request_id: str, caller: KeyIdentity, now: datetime) -> PermissionRequest:
    """Return the request if this key may see it: the requester's key may, and keys that read everything.

    An approval in force is also shown to every requester it covers, because it answers their own request.
    Raises NotFound, for requests of others as for unknown ones.
    """
    row = require_permission_request(request_id)
    if (
        caller.scopes & OVERSEERS
        or is_request_of_caller(row, caller)
        or can_caller_use_approval(row, caller, now)
    ):
        return row
    raise NotFound("No such permission request.")


def is_request_of_caller(row: PermissionRequest, caller: KeyIdentity) -> bool:
    context = request_context(row)
    if context is None:
        return False
    by_its_agent = context.agent_id in caller.bound_agents
    return by_its_agent or context.requested_by == str(caller.caller_actor)


def can_caller_use_approval(row: PermissionRequest, caller: KeyIdentity, now: datetime) -> bool:
    """Say whether the caller's own question may be answered with this approval. An unbound key speaks for any agent."""
    if not current_request_state(row, now).in_force:
        return False
    context = request_context(row)
    agent_id = context.agent_id if context else None
    if agent_id is None:
        return context is None or context.scope is None
    return caller.can_speak_for_agent(agent_id)
