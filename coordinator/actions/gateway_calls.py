"""Calls through the MCP gateway that a person decides: asked, begun once, ended, handed over; or lost, and told so.

Nothing of them lives in a process. What lets a call run is one compare-and-swap: the approval is taken and the row
becomes `running` in the same transaction, before a byte goes to the server. So of all who hold an approval one runs
it, and where that process dies, the row says that the call may have run.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from coordinator.actions import approvals, audit
from coordinator.actions.approvals import NewRequest
from coordinator.actions.approvals.holding import held_for
from coordinator.errors import Conflict, NotFound
from coordinator.gateway import deciding, servers, workers
from coordinator.gateway.binding import Binding, policy_version
from coordinator.gateway.deciding import Caller
from coordinator.gateway.servers import Server
from coordinator.identity.actors import Actor, system
from coordinator.lib import instants
from coordinator.models import GatewayCall, PermissionContext, PermissionRequest
from coordinator.models.gateway import CallState
from coordinator.notifications import messages
from coordinator.policy import approvals as rules
from coordinator.policy import in_force
from coordinator.policy.tool_rules import ASK, DENY, Ruling
from coordinator.secrets.sealing import seal, unseal

GRANTS_PAGE = "/ui/mcp/"
SEALED_AS = "mcp-gateway-call"
# For so long a result that its client did not hear is kept for the same call made again.
KEPT_FOR = timedelta(minutes=10)
BESIDE_FOR = timedelta(days=1)  # in which the end of a call beside its agent must be told
LONGEST_RESULT = 4 * 1024 * 1024  # bytes that are kept


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call is made: the session whose timeline shows it, the client's session, the call's own event."""

    session_id: str | None
    gateway_session: str | None = None
    event_id: int | None = None
    client: str = ""


def new_id() -> str:
    return f"sbx-{uuid.uuid4().hex}"


def card(request: PermissionRequest) -> str:
    """Return where a person decides."""
    return messages.link(request)


def allowed_at(denial: Ruling) -> str:
    """Return where a person allows what was denied: the page of grants, or that of budgets."""
    if denial.by.startswith("budget "):
        return messages.budgets_link()
    return f"{settings.PUBLIC_URL}{GRANTS_PAGE}"


def earlier(binding: Binding, now: datetime) -> GatewayCall | None:
    """Return the same call as it was begun before and not handed over: it runs, has a result, or is lost."""
    call = _begun(binding, now).order_by("-created_at").first()
    return call if call is None else lost_if_gone(call, by=binding, now=now)


def _begun(binding: Binding, now: datetime) -> QuerySet[GatewayCall]:
    return GatewayCall.objects.filter(
        Q(state=CallState.RUNNING)
        | Q(state=CallState.DONE, ended_at__gt=now - KEPT_FOR)
        | Q(state=CallState.LOST),
        call_key=binding.key,
        is_task=False,
        delivered_at__isnull=True,
    )


def lost_if_gone(call: GatewayCall, *, by: Binding | None, now: datetime) -> GatewayCall:
    """Return the call, marked as lost where it runs in a process that is gone, or for longer than it may."""
    over = isinstance(call.run_until, datetime) and call.run_until <= now
    if call.state != CallState.RUNNING or not (over or workers.is_gone(call.worker)):
        return call
    with transaction.atomic():
        free = GatewayCall.objects.filter(pk=call.pk, state=CallState.RUNNING)
        if free.update(state=CallState.LOST, ended_at=now):
            _audit("MCP_CALL_LOST", call, "failure", "Its end was never heard: it may have run.", now, by=by)
    return GatewayCall.objects.get(pk=call.pk)


def ask(
    binding: Binding, ruling: Ruling, place: Place, *, until: datetime | None, now: datetime
) -> PermissionRequest:
    """Put the call before people; return the request that answers it, which may be decided already.

    Raises what approvals.request raises: too large to judge, too many waiting.
    """
    subject = binding.subject
    lost = (
        GatewayCall.objects.filter(call_key=binding.key, state=CallState.LOST).order_by("-created_at").first()
    )
    words = [f"{ruling.by.capitalize()}: {ruling.reason}" if ruling.by else "Asks before it uses this tool."]
    if lost is not None and isinstance(lost.started_at, datetime):
        words.append(
            f"The same call was approved and begun at {instants.canonical(lost.started_at)}, and its end was never "
            "heard: it may have run."
        )
    found = approvals.request(
        NewRequest(
            subject=subject,
            justification=" · ".join(words)[:4_000],
            metadata={
                "server": binding.server_id,
                "tool": binding.tool,
                "arguments_sha256": binding.arguments_digest,
                "definition_sha256": binding.definition_digest,
                "policy_version": binding.policy_version,
                "rule": ruling.by or None,
                "client": place.client or None,
            },
            session_id=place.session_id,
            agent_id=binding.agent_id,
            event_id=place.event_id,
            deadline=now + held_for(),
            outlasts=True,
            waits_until=until,
        ),
        by=binding.by,
        now=now,
    )
    return found.request


def ask_unless_begun(
    binding: Binding,
    ruling: Ruling,
    place: Place,
    *,
    until: datetime | None,
    now: datetime,
    kept: tuple[str, Any] | None = None,
) -> PermissionRequest | None:
    """Put the call before people as `ask` does; None where it was begun meanwhile, by an earlier line of its client.

    Looked at after the question is written: whoever took its approval before had begun the call in the same step, and
    a person who approved a call shall not be asked about it again while it runs.

    `kept` is the id that the call would run as, and its client's for it: by these a call of a session can be cancelled
    from the moment on that people are asked.
    """
    with transaction.atomic():
        found = ask(binding, ruling, place, until=until, now=now)
        if found.status == PermissionRequest.Status.PENDING and _begun(binding, now).exists():
            transaction.set_rollback(True)
            return None
        if kept is not None and found.status == PermissionRequest.Status.PENDING:
            _keep_on_line(binding, place, found, *kept, now=now)
    return found


def _keep_on_line(
    binding: Binding, place: Place, request: PermissionRequest, call_id: str, number: Any, *, now: datetime
) -> None:
    """Note that the client waits for this call on its line; once more where it is asked about anew."""
    row = _row(
        call_id,
        binding,
        place,
        now,
        state=CallState.WAITING,
        request_id=request.request_id,
        message=seal(SEALED_AS, json.dumps(number).encode()).decode(),
    )
    known = GatewayCall.objects.filter(pk=call_id)
    if not known.exists():
        row.save(force_insert=True)
    else:
        about = ("request_id", "call_key", "definition_digest", "policy_version")
        known.filter(state=CallState.WAITING).update(**{name: getattr(row, name) for name in about})


def leave_line(call_id: str) -> None:
    """Forget a call for which its client does not wait on its line any more, and that was not begun."""
    GatewayCall.objects.filter(pk=call_id, is_task=False, state=CallState.WAITING).delete()


def is_cancelled(call_id: str) -> bool:
    return GatewayCall.objects.filter(pk=call_id, state=CallState.CANCELLED).exists()


def cancel_on_line(
    gateway_session: str, number: Any, by: Actor, *, keeps_card: bool = False, now: datetime
) -> bool:
    """Cancel the call for which a client waits under its id `number`, so that it is not begun; False for none.

    Its card is closed, unless another call of the same waits for it, or it `keeps_card`.
    """
    waiting = GatewayCall.objects.filter(state=CallState.WAITING)
    on_line = waiting.filter(gateway_session=gateway_session, is_task=False)
    meant = [call for call in on_line if _number_of(call) == json.dumps(number)]
    cancelled = [
        call
        for call in meant
        if waiting.filter(pk=call.pk).update(state=CallState.CANCELLED, ended_at=now, message=None)
    ]
    for call in cancelled:
        if not keeps_card and not waiting.filter(request_id=call.request_id).exists():
            _close_card(call, by, "The client cancelled the call.", now)
    return bool(cancelled)


def _number_of(call: GatewayCall) -> str | None:
    try:
        return _opened(call.message).decode()
    except NotFound:
        return None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to run a call: what it is bound to, whose client it is, where it is made, and the id it would run as.

    One that `is_beside` is sent by its agent's own machine, to a server that runs there.
    """

    call_id: str
    binding: Binding
    caller: Caller
    place: Place
    is_beside: bool = False


def begin(attempt: Attempt, request_id: str, *, now: datetime) -> Ruling | None:
    """Take the approval for this call and note that it runs; None once it may be sent, and must be, by this process.

    Else the ruling that stands against it: policy denies by now, or it is not what was approved any more, or the
    approval was used or has ended (ASK: it must be put before people again).
    """
    binding = attempt.binding
    caller = replace(attempt.caller, session_id=attempt.place.session_id)  # budgets are asked, too
    with transaction.atomic():
        server = servers.load(binding.server_id)
        if server is None or server.is_off or (server.target is None and not attempt.is_beside):
            return Ruling(DENY, f"The server {server.fault if server else 'is not registered'}.", "gateway")
        ruling, _ = deciding.now(server, binding.tool, caller, binding.arguments, now)
        if ruling.decision == DENY:
            return ruling
        if ruling.decision == ASK and (stale := _stale(attempt, ruling, server, request_id, now)):
            return replace(ruling, reason=stale)
        if ruling.decision != ASK:
            # It was asked about before: its approval must not be left for another call.
            _take(attempt, request_id, now)
        if not _note_running(attempt, request_id, server, now):
            return replace(ruling, decision=ASK, reason="The call was begun already.")
    return None


def _stale(attempt: Attempt, ruling: Ruling, server: Server, request_id: str, now: datetime) -> str:
    """Take the approval; return why it does not count for this call, or nothing."""
    binding = attempt.binding
    if server.tools[binding.tool].definition != binding.definition_digest:
        return "The tool's definition changed since this was asked."
    if policy_version(ruling) != binding.policy_version:
        return "The policy changed since this was asked."
    if not rules.standing(rules.find(request_id), now).allowed or not _take(attempt, request_id, now):
        return "The approval was used, or has ended."
    return ""


def _take(attempt: Attempt, request_id: str, now: datetime) -> bool:
    return approvals.take(
        request_id,
        by=attempt.binding.by,
        call=attempt.binding.subject.key,
        session_id=attempt.place.session_id or "",
        call_id=attempt.call_id,
        now=now,
    )


def take_denial(attempt: Attempt, request_id: str, *, now: datetime) -> None:
    """Note that the asker was told a person's no; the same call made again is a new question."""
    _take(attempt, request_id, now)


def _note_running(attempt: Attempt, request_id: str, server: Server, now: datetime) -> bool:
    running = {
        "state": CallState.RUNNING,
        "request_id": request_id,
        "worker": None if attempt.is_beside else workers.own(),
        "started_at": now,
        "run_until": now + (BESIDE_FOR if attempt.is_beside else timedelta(seconds=server.call_seconds + 60)),
        # What runs beside its agent has no result here that anybody could come back for.
        "delivered_at": now if attempt.is_beside else None,
    }
    task = GatewayCall.objects.filter(pk=attempt.call_id)
    if task.exists():  # who calls beside the gateway names the id: no other caller's task is theirs
        own = task.filter(key_id=attempt.binding.key_id, agent_id=attempt.binding.agent_id)
        return not attempt.is_beside and bool(own.filter(state=CallState.WAITING).update(**running))
    _row(attempt.call_id, attempt.binding, attempt.place, now, **running).save(force_insert=True)
    return True


def _row(call_id: str, binding: Binding, place: Place, now: datetime, **more: object) -> GatewayCall:
    return GatewayCall(
        call_id=call_id,
        key_id=binding.key_id,
        agent_id=binding.agent_id,
        server_id=binding.server_id,
        tool_name=binding.tool,
        session_id=place.session_id,
        gateway_session=place.gateway_session,
        call_key=binding.key,
        arguments_digest=binding.arguments_digest,
        definition_digest=binding.definition_digest,
        policy_version=binding.policy_version,
        created_at=now,
        expires_at=now + held_for(),
        **more,
    )


def begin_beside(attempt: Attempt, *, now: datetime) -> None:
    """Note that an allowed call is sent by its agent's own machine; once, where it asks again. Raises Conflict."""
    running = {
        "state": CallState.RUNNING,
        "started_at": now,
        "run_until": now + BESIDE_FOR,
        "delivered_at": now,
    }
    try:
        with transaction.atomic():
            _row(attempt.call_id, attempt.binding, attempt.place, now, **running).save(force_insert=True)
    except IntegrityError:
        if not is_begun_beside(attempt):
            raise Conflict("This call has ended already, or its id is another call's.") from None


def is_begun_beside(attempt: Attempt) -> bool:
    """Say whether this very call was allowed already, and whoever asked did not hear it."""
    return GatewayCall.objects.filter(
        pk=attempt.call_id, state=CallState.RUNNING, worker=None, call_key=attempt.binding.key
    ).exists()


def end_beside(call_id: str, *, key_id: int, agent_id: str, now: datetime) -> GatewayCall:
    """Note that a call has ended that its agent's own machine sent; return it. Raises NotFound, Conflict."""
    call = GatewayCall.objects.filter(pk=call_id, key_id=key_id, agent_id=agent_id, worker=None).first()
    if call is None or call.started_at is None:
        raise NotFound("There is no such call.")
    free = GatewayCall.objects.filter(pk=call_id, state=CallState.RUNNING)
    if not free.update(state=CallState.DONE, ended_at=now):
        raise Conflict("This call has ended already.")
    return call


def create_task(attempt: Attempt, request_id: str, message: bytes, *, now: datetime) -> GatewayCall:
    """Keep a call that a client polls for; it stands in the database when this returns."""
    call = _row(
        attempt.call_id,
        attempt.binding,
        attempt.place,
        now,
        state=CallState.WAITING,
        is_task=True,
        request_id=request_id,
        message=seal(SEALED_AS, message).decode(),
    )
    call.save(force_insert=True)
    return call


def find_task(call_id: str, *, key_id: int, agent_id: str, now: datetime) -> GatewayCall:
    """Return a task of this caller. Raises NotFound."""
    call = GatewayCall.objects.filter(pk=call_id, is_task=True, key_id=key_id, agent_id=agent_id).first()
    if call is None:
        raise NotFound("There is no such task.")
    return lost_if_gone(call, by=None, now=now)


def message_of(call: GatewayCall) -> bytes:
    """Return the request that a task keeps. Raises NotFound where it cannot be opened any more."""
    return _opened(call.message)


def result_of(call: GatewayCall) -> bytes:
    """Return the response that the server gave. Raises NotFound where it was not kept."""
    return _opened(call.result)


def _opened(sealed: str | None) -> bytes:
    try:
        return unseal(SEALED_AS, (sealed or "").encode())
    except ValueError:
        raise NotFound("It was not kept.") from None


def answer_task(call_id: str, response: bytes, state: CallState, *, now: datetime) -> None:
    """End a task that does not run: denied, expired, or overtaken by another policy."""
    GatewayCall.objects.filter(pk=call_id, state=CallState.WAITING).update(
        state=state, result=seal(SEALED_AS, response).decode(), ended_at=now, message=None
    )


def cancel_task(call: GatewayCall, by: Actor, *, now: datetime) -> None:
    """Cancel a task that still waits, and close its card. One that runs goes on."""
    waiting = GatewayCall.objects.filter(pk=call.pk, state=CallState.WAITING)
    if waiting.update(state=CallState.CANCELLED, ended_at=now, message=None):
        _close_card(call, by, "The client cancelled the task.", now)


def _close_card(call: GatewayCall, by: Actor, reason: str, now: datetime) -> None:
    with suppress(Conflict, NotFound):  # a person was faster
        approvals.withdraw(call.request_id or "", by=by, reason=reason, now=now)


def end(call_id: str, response: bytes | None, *, delivered: bool, now: datetime) -> None:
    """Note how a running call ended: with the server's response, or (None) without one, and then nobody knows."""
    kept = response if response is not None and len(response) <= LONGEST_RESULT else None
    GatewayCall.objects.filter(pk=call_id, state=CallState.RUNNING).update(
        state=CallState.DONE if response is not None else CallState.LOST,
        result=None if kept is None else seal(SEALED_AS, kept).decode(),
        message=None,
        ended_at=now,
        delivered_at=now if delivered else None,
    )


def undo(call_id: str, *, now: datetime) -> None:
    """Give an approval back whose call was begun and not sent: nothing has run."""
    with transaction.atomic():
        call = GatewayCall.objects.filter(pk=call_id, state=CallState.RUNNING).first()
        if call is None:
            return
        GatewayCall.objects.filter(pk=call_id).update(
            state=CallState.CANCELLED, ended_at=now, delivered_at=now, message=None
        )
        user = f"{call.session_id or ''} {call_id}".strip()
        PermissionContext.objects.filter(request__request_id=call.request_id, used_by=user).update(
            used_at=None, used_by=None
        )


def deliver(call_id: str, *, now: datetime) -> None:
    """Note that a call's result was handed over."""
    GatewayCall.objects.filter(pk=call_id, delivered_at__isnull=True).update(delivered_at=now, result=None)


def claim(call_id: str, *, now: datetime) -> bool:
    """Take it over to tell how a call ended; False where another line does. Its result is kept a while longer."""
    return bool(GatewayCall.objects.filter(pk=call_id, delivered_at__isnull=True).update(delivered_at=now))


def unclaim(call_id: str) -> None:
    """Leave it to the same call made again: who was to be told how it ended had gone."""
    GatewayCall.objects.filter(pk=call_id).update(delivered_at=None)


def go_on(call_id: str, round_: int) -> bool:
    """Let a call that its server asked something about go on, once for each of its questions."""
    return bool(GatewayCall.objects.filter(pk=call_id, rounds=round_).update(rounds=round_ + 1))


def note_denial(binding: Binding, ruling: Ruling, place: Place, *, now: datetime) -> None:
    """Write a call that policy denied into the audit log."""
    audit.record(
        "TOOL_CALL_DENIED",
        actor=binding.by,
        target=place.session_id,
        permission=binding.tool_name,
        result="denied",
        reason=ruling.reason,
        metadata={"by": ruling.by, "agent_id": binding.agent_id, **in_force.that_decided(ruling)},
        now=now,
    )


def _audit(
    event: str, call: GatewayCall, result: str, reason: str, now: datetime, *, by: Binding | None
) -> None:
    audit.record(
        event,
        actor=by.by if by is not None else system("mcp-gateway"),
        target=call.session_id,
        permission=call.tool_name,
        result=result,
        reason=reason,
        metadata={"server": call.server_id, "agent_id": call.agent_id, "request_id": call.request_id},
        now=now,
    )
