"""Calls through the MCP gateway that a person decides: requested, begun once, ended, delivered; or reported as lost.

No state is in a process. What lets a call run is one compare-and-swap: the approval is taken and the row becomes
`running` in the same transaction, before a byte goes to the server. So of all callers with an approval one runs it, and
if that process dies, the row says that the call may have run.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from coordinator.actions import approvals
from coordinator.actions.approvals import NewPermissionRequest, rows
from coordinator.actions.approvals.pending_calls import pending_call_lifetime
from coordinator.actions.audit import audit
from coordinator.actions.policy import denials
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import Actor, system_actor
from coordinator.lib import instants
from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway import servers, workers
from coordinator.mcp.gateway.binding import CallBinding, hash_ruling_as_policy_version
from coordinator.mcp.gateway.call_limits import WHOLE_SERVER
from coordinator.mcp.gateway.mcp_request_headlines import describe_mcp_request
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.gateway.states import ContinuationState, WaitState
from coordinator.models import GatewayCall, PermissionContext, PermissionRequest
from coordinator.models.gateway import CallState
from coordinator.notifications import messages
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests import policy_in_force
from coordinator.policy.rules.tool_rules import ASK, DENY, Ruling
from coordinator.secrets.sealing import seal_for_purpose, unseal_for_purpose

GRANTS_PAGE = "/ui/mcp/"
SEALED_AS = "mcp-gateway-call"
# In which a call may come whose cancellation came first, on another line or to another process.
OVERTAKEN_FOR = timedelta(minutes=1)
# How long a result that its client did not receive is kept for the same call made again.
RESULT_TTL = timedelta(minutes=10)
LOCAL_CALL_TTL = timedelta(days=1)  # in which the end of a local call must be reported
# A local caller that does not ask again within this time counts as gone: each question is held for 25 seconds.
LOCAL_WAIT_TTL = timedelta(minutes=2)
DENIED = "TOOL_CALL_DENIED"
CANCELLED_BY_CLIENT = "The client cancelled the call."
ALLOWED_BY_NOW = "The policy allows the call by now."
LONGEST_RESULT = 4 * 1024 * 1024  # bytes that are kept
STARTS_WITHIN = timedelta(seconds=75)  # for reaching its server, which may have to be started
ENDS_WITHIN = timedelta(seconds=15)  # for writing down how it ended


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """The origin of a call: the session whose timeline shows it, the client's session, the call's own event.

    `sent_along` is what its server gets in addition to the call, shown to the person who decides: the client's id for
    it, and the like.
    """

    session_id: str | None
    gateway_session: str | None = None
    event_id: int | None = None
    client: str = ""
    sent_along: dict[str, Any] = field(default_factory=dict)


def new_gateway_call_id() -> str:
    return f"sbx-{uuid.uuid4().hex}"


def approval_url(request: PermissionRequest) -> str:
    """Return the URL of the request's approval page, as it is sent to agents."""
    return messages.approval_page_url(request, to_agent=True)


def policy_page_url(denial: Ruling) -> str:
    """Return where a person allows what was denied: the page of grants, or that of budgets."""
    if denial.by.startswith("budget "):
        return messages.budgets_page_url(to_agent=True)
    return f"{settings.AGENT_URL}{GRANTS_PAGE}"


def find_undelivered_call_marking_lost(binding: CallBinding, now: datetime) -> GatewayCall | None:
    """Return the same call as it was begun before and not handed over: it runs, has a result, or is lost."""
    call = filter_same_undelivered_calls(binding, now).order_by("-created_at").first()
    return call if call is None else reload_call_marking_lost(call, binding=binding, now=now)


def filter_same_undelivered_calls(binding: CallBinding, now: datetime) -> QuerySet[GatewayCall]:
    return GatewayCall.objects.filter(
        Q(state=CallState.RUNNING)
        | Q(state=CallState.DONE, ended_at__gt=now - RESULT_TTL)
        | Q(state=CallState.LOST),
        call_key=binding.approval_question_digest,
        is_task=False,
        delivered_at__isnull=True,
    )


def reload_call_marking_lost(call: GatewayCall, *, binding: CallBinding | None, now: datetime) -> GatewayCall:
    """Return the call, marked as lost where it runs in a process that is gone, or for longer than it may."""
    over = isinstance(call.run_until, datetime) and call.run_until <= now
    if call.state != CallState.RUNNING or not (over or workers.is_worker_known_to_have_ended(call.worker)):
        return call
    mark_call_lost(call.pk, "Its end was never heard: it may have run.", binding=binding, now=now)
    return GatewayCall.objects.get(pk=call.pk)


def mark_call_lost(call_id: str, reason: str, *, binding: CallBinding | None, now: datetime) -> None:
    """Note that a running call was sent, and that nobody knows how it ended."""
    with transaction.atomic():
        running = GatewayCall.objects.filter(pk=call_id, state=CallState.RUNNING)
        if running.update(state=CallState.LOST, ended_at=now, message=None):
            call = GatewayCall.objects.get(pk=call_id)
            audit_gateway_call_event("MCP_CALL_LOST", call, "failure", reason, now, binding=binding)


def request_person_approval(
    binding: CallBinding, ruling: Ruling, origin: CallOrigin, *, until: datetime | None, now: datetime
) -> PermissionRequest:
    """Put the call to people; return the request that answers it, which may be decided already.

    Raises what approvals.request_permission raises: too large to judge, too many waiting.
    """
    subject = binding.approval_subject
    lost = (
        GatewayCall.objects.filter(call_key=binding.approval_question_digest, state=CallState.LOST)
        .order_by("-created_at")
        .first()
    )
    sentences = [
        f"{ruling.by.capitalize()}: {ruling.reason}" if ruling.by else "Asks before it uses this tool."
    ]
    if binding.is_read:
        sentences.insert(0, describe_mcp_request(binding.server_id, binding.tool, binding.arguments or {}))
    if lost is not None and isinstance(lost.started_at, datetime):
        sentences.append(
            f"The same call was approved and begun at {instants.format_canonical_instant(lost.started_at)},"
            " and its end was never heard: it may have run."
        )
    request = approvals.request_permission(
        NewPermissionRequest(
            subject=subject,
            justification=" · ".join(sentences)[:4_000],
            metadata={
                "server": binding.server_id,
                "tool": binding.tool,
                "arguments_sha256": binding.arguments_digest,
                "definition_sha256": binding.definition_digest,
                "policy_version": binding.policy_version,
                "rule": ruling.by or None,
                "client": origin.client or None,
                "sent_along": origin.sent_along,
            },
            session_id=origin.session_id,
            agent_id=binding.agent_id,
            event_id=origin.event_id,
            deadline=now + pending_call_lifetime(),
            outlasts=True,
            waits_until=until,
        ),
        actor=binding.by,
        now=now,
    )
    return request.request


def request_approval_unless_call_begun(
    binding: CallBinding,
    ruling: Ruling,
    origin: CallOrigin,
    *,
    until: datetime | None,
    now: datetime,
    known_call: tuple[str, Any] | None = None,
) -> PermissionRequest | None:
    """Put the call to people as `request_person_approval` does; None where its client began it meanwhile.

    This is checked after the question is written: a request that took its approval before had begun the call in the
    same step, and a person who approved a call must not be asked about it again while it runs.

    `known_call` is the id that the call would run as, and its client's for it: by these a call of a session can be
    cancelled. Raises CallCancelled where it was, before or meanwhile.
    """
    if known_call is not None and is_call_cancelled_early(origin, known_call[1], now):
        raise CallCancelled
    with transaction.atomic():
        person_request = request_person_approval(binding, ruling, origin, until=until, now=now)
        if (
            person_request.status == PermissionRequest.Status.PENDING
            and filter_same_undelivered_calls(binding, now).exists()
        ):
            transaction.set_rollback(True)
            return None
        if known_call is not None and person_request.status == PermissionRequest.Status.PENDING:
            save_waiting_call(binding, origin, person_request, *known_call, now=now)
    if known_call is not None and is_call_cancelled_early(origin, known_call[1], now):
        # Looked at once more now that the call can be found: a cancellation is noted first and looks for calls then.
        try_cancel_waiting_call(origin.gateway_session or "", known_call[1], binding.by, now=now)
        raise CallCancelled
    return person_request


def save_waiting_call(
    binding: CallBinding,
    origin: CallOrigin,
    request: PermissionRequest,
    call_id: str,
    number: Any,
    *,
    now: datetime,
) -> None:
    """Record that the client waits for this call on its response stream; update the row if it is asked about again."""
    row = build_gateway_call(
        call_id,
        binding,
        origin,
        now,
        state=CallState.WAITING,
        request_id=request.request_id,
        message=seal_for_purpose(SEALED_AS, json.dumps(number).encode()).decode(),
    )
    gateway_calls = GatewayCall.objects.filter(pk=call_id)
    if not gateway_calls.exists():
        row.save(force_insert=True)
    else:
        about = ("request_id", "call_key", "definition_digest", "policy_version")
        gateway_calls.filter(state=CallState.WAITING).update(**{name: getattr(row, name) for name in about})


def delete_waiting_call(call_id: str) -> None:
    """Delete a call that was not begun and whose client no longer waits on its response stream."""
    GatewayCall.objects.filter(pk=call_id, is_task=False, state=CallState.WAITING).delete()


class CallCancelled(Exception):
    """The client does not want its call any more."""


def raise_if_call_cancelled(call_id: str) -> None:
    """Raise CallCancelled where the client has cancelled the call."""
    if GatewayCall.objects.filter(pk=call_id, state=CallState.CANCELLED).exists():
        raise CallCancelled


def cancel_existing_or_future_call(
    gateway_session: str,
    number: Any,
    actor: Actor,
    *,
    key_id: int,
    agent_id: str,
    keeps_card: bool = False,
    now: datetime,
) -> bool:
    """Cancel a call as `try_cancel_waiting_call` does; one that is not there yet, as soon as people are to be asked.

    Two requests of a client may be taken in in any order, and by two processes.
    """
    note = build_early_cancellation_row(
        new_gateway_call_id(),
        key_id=key_id,
        agent_id=agent_id,
        gateway_session=gateway_session,
        number=number,
        now=now,
    )
    note.save(force_insert=True)
    is_found = try_cancel_waiting_call(gateway_session, number, actor, keeps_card=keeps_card, now=now)
    if is_found:
        GatewayCall.objects.filter(pk=note.pk).delete()
    return is_found


def build_early_cancellation_row(
    call_id: str,
    *,
    key_id: int,
    agent_id: str,
    gateway_session: str | None = None,
    number: Any = None,
    now: datetime,
) -> GatewayCall:
    """Return the row of a cancellation that came before its call. It is about nothing but the client's id for that."""
    return GatewayCall(
        call_id=call_id,
        key_id=key_id,
        agent_id=agent_id,
        gateway_session=gateway_session,
        state=CallState.CANCELLED,
        message=seal_for_purpose(SEALED_AS, json.dumps(number).encode()).decode(),
        created_at=now,
        ended_at=now,
        expires_at=now + OVERTAKEN_FOR,
    )


def find_early_cancellations() -> QuerySet[GatewayCall]:
    """Return the cancellations that came before their calls."""
    return GatewayCall.objects.filter(state=CallState.CANCELLED, call_key="")


def is_call_cancelled_early(origin: CallOrigin, number: Any, now: datetime) -> bool:
    """Return whether a call's cancellation came before it."""
    noted = find_early_cancellations().filter(gateway_session=origin.gateway_session, expires_at__gt=now)
    return any(decrypt_client_request_id(cancellation) == json.dumps(number) for cancellation in noted)


def try_cancel_waiting_call(
    gateway_session: str, number: Any, actor: Actor, *, keeps_card: bool = False, now: datetime
) -> bool:
    """Cancel the call for which a client waits under its id `number`, so that it is not begun; False for none.

    Its card is closed, unless another call of the same waits for it, or it `keeps_card`.
    """
    waiting = GatewayCall.objects.filter(state=CallState.WAITING)
    on_line = waiting.filter(gateway_session=gateway_session, is_task=False)
    matching_calls = [call for call in on_line if decrypt_client_request_id(call) == json.dumps(number)]
    cancelled = [
        call
        for call in matching_calls
        if waiting.filter(pk=call.pk).update(state=CallState.CANCELLED, ended_at=now, message=None)
    ]
    for call in cancelled:
        if not keeps_card:
            close_request_if_unawaited(call, actor, CANCELLED_BY_CLIENT, now)
    return bool(cancelled)


def close_request_if_unawaited(call: GatewayCall, actor: Actor, reason: str, now: datetime) -> None:
    """Close the card of a call that waits no more, unless another call of the same waits for it."""
    waiting = GatewayCall.objects.filter(state=CallState.WAITING, request_id=call.request_id)
    silent_calls = waiting.filter(run_until__lte=now)  # of local calls whose machine has stopped asking
    if not waiting.exclude(pk__in=silent_calls.values("pk")).exists():
        withdraw_request_of_gateway_call(call, actor, reason, now)


def decrypt_client_request_id(call: GatewayCall) -> str | None:
    try:
        return decrypt_call_bytes(call.message).decode()
    except NotFound:
        return None


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """One try to run a call: what it is bound to, whose client it is, where it is made, and the id it would run as.

    One that `is_local` is sent by its agent's own machine, to a server that runs there.
    """

    call_id: str
    binding: CallBinding
    caller: GatewayCaller
    origin: CallOrigin
    is_local: bool = False


def begin_approved_call_or_return_ruling(
    attempt: CallAttempt, request_id: str, *, now: datetime
) -> Ruling | None:
    """Take the approval for this call and mark it running; None if this process may, and must, send it.

    Else the ruling that prevents it: policy denies by now, which is audited, or the call is not what was approved any
    more, or the approval was used or has ended (ASK: it must be put to people again). Of a call that was begun already
    nothing is taken: another approval of the same is for another call.
    """
    with transaction.atomic():
        server, ruling = load_server_and_audited_ruling(attempt, now)
        if server is None or ruling.decision == DENY:
            return ruling
        if ruling.decision == ASK and (
            stale := consume_approval_or_return_reason(attempt, ruling, server, request_id, now)
        ):
            return replace(ruling, reason=stale)
        if ruling.decision != ASK:
            # It was asked about before: its approval must not be left for another call.
            consume_call_approval(attempt, request_id, now)
        if not mark_call_running(attempt, request_id, server, now):
            transaction.set_rollback(True)
            return replace(ruling, decision=ASK, reason="The call was begun already.")
    return None


def load_server_and_audited_ruling(
    attempt: CallAttempt, now: datetime
) -> tuple[UpstreamServer | None, Ruling]:
    """Return the call's server and what policy says of the call at this instant; a denial is audited."""
    binding = attempt.binding
    caller = replace(attempt.caller, session_id=attempt.origin.session_id)  # budgets are asked, too
    server = servers.load_upstream_server(binding.server_id)
    if server is None or server.is_off or (server.target is None and not attempt.is_local):
        ruling = Ruling(DENY, f"The server {server.failure if server else 'is not registered'}.", "gateway")
        server = None
    else:
        moment = None
        if (
            caller.history is None and not binding.is_read
        ):  # else it was read when the call was first judged, which counts
            moment = deciding.build_timed_gateway_call(
                server.name,
                binding.tool,
                binding.arguments,
                session_id=attempt.origin.session_id or "",
                call_id=attempt.call_id,
                now=now,
            )
        ruling, _ = deciding.load_ruling_and_access_verdict(
            server,
            binding.tool,
            caller,
            binding.arguments,
            now,
            is_read=binding.is_read,
            moment=moment,
        )
    if ruling.decision == DENY:
        audit_call_denial(binding, ruling, attempt.origin, now=now)
    return server, ruling


def consume_approval_or_return_reason(
    attempt: CallAttempt, ruling: Ruling, server: UpstreamServer, request_id: str, now: datetime
) -> str:
    """Take the approval; return why it does not count for this call, or nothing."""
    if changed := describe_call_change(attempt.binding, ruling, server):
        return changed
    if not rules.current_request_state(
        rules.require_permission_request(request_id), now
    ).allowed or not consume_call_approval(attempt, request_id, now):
        return "The approval was used, or has ended."
    return ""


def describe_call_change(binding: CallBinding, ruling: Ruling, server: UpstreamServer) -> str:
    """Return what of a call is not as it was when a person was asked about it, or nothing."""
    if not binding.is_read and server.tools[binding.tool].definition != binding.definition_digest:
        return "The tool's definition changed since this was asked."
    if hash_ruling_as_policy_version(ruling) != binding.policy_version:
        return "The policy changed since this was asked."
    return ""


def consume_call_approval(attempt: CallAttempt, request_id: str, now: datetime) -> bool:
    return approvals.try_consume_request_verdict(
        request_id,
        actor=attempt.binding.by,
        call=attempt.binding.approval_subject.subject_digest,
        session_id=attempt.origin.session_id or "",
        call_id=attempt.call_id,
        now=now,
    )


def consume_call_denial(attempt: CallAttempt, request_id: str, *, now: datetime) -> None:
    """Record that a person's denial was sent to the asker; the same call made again is a new question."""
    consume_call_approval(attempt, request_id, now)


class QuestionOutcome(Enum):
    """The outcome of a question about a call that policy allows by now."""

    CLOSED = "closed"  # just now, by this call, which goes on in its place
    OVER = "over"  # before: this is another call of the same
    DENIED = "denied"  # by a person; this call is answered with the denial
    ANOTHER = "another"  # it was about another call


def close_request_allowed_by_policy(
    attempt: CallAttempt, request_id: str, key: str, *, now: datetime
) -> tuple[QuestionOutcome, PermissionRequest]:
    """Close the question of a call that policy allows by now; `key` is the binding's with which it was asked.

    A person who is no more needed is not left with a card, nor an approval with nobody to use it. Raises NotFound.
    """
    with transaction.atomic():
        request = rows.lock_permission_request(request_id)
        original_question = replace(attempt, binding=build_original_call_binding(attempt.binding, request))
        if original_question.binding.approval_question_digest != key:
            return QuestionOutcome.ANOTHER, request
        if rules.current_request_state(request, now).waiting:
            approvals.withdraw_request(request_id, actor=attempt.binding.by, reason=ALLOWED_BY_NOW, now=now)
            return QuestionOutcome.CLOSED, request
        return consume_verdict_of_allowed_call(original_question, request, now), request


def consume_verdict_of_allowed_call(
    original_question: CallAttempt, request: PermissionRequest, now: datetime
) -> QuestionOutcome:
    """Take a person's verdict about a call that policy allows by now, so that no other call has it.

    Return CLOSED for an approval, DENIED for a denial that was not sent yet, and OVER where there is neither.
    """
    context = rules.request_context(request)
    is_denied = request.status == PermissionRequest.Status.DENIED
    is_undelivered_denial = is_denied and context is not None and context.used_at is None
    if not is_undelivered_denial and rules.single_use_valid_until(request, now) is None:
        return QuestionOutcome.OVER
    if not consume_call_approval(original_question, request.request_id, now):
        return QuestionOutcome.OVER
    return QuestionOutcome.DENIED if is_denied else QuestionOutcome.CLOSED


def build_original_call_binding(binding: CallBinding, request: PermissionRequest) -> CallBinding:
    """Return the call with the definition and the policy with which a person was asked about it."""
    metadata = request.metadata if isinstance(request.metadata, dict) else {}
    definition, policy = metadata.get("definition_sha256"), metadata.get("policy_version")
    return replace(binding, definition_digest=str(definition), policy_version=str(policy))


def is_call_state_current(binding: CallBinding, state: WaitState | ContinuationState) -> bool:
    """Return whether a state belongs to this very call and is current: not ended and reported, or at this question.

    The definition and the policy may have changed since.
    """
    call = GatewayCall.objects.filter(pk=state.call_id)
    if isinstance(state, ContinuationState):
        return filter_calls_with_same_binding(call, binding).filter(rounds=state.round).exists()
    if call.filter(Q(delivered_at__isnull=False) | Q(is_task=True)).exists():
        return False
    request = PermissionRequest.objects.filter(request_id=state.request_id).first()
    return (
        request is not None
        and build_original_call_binding(binding, request).approval_question_digest == state.key
    )


def filter_calls_with_same_binding(
    calls: QuerySet[GatewayCall], binding: CallBinding
) -> QuerySet[GatewayCall]:
    """Return those of the calls that say the same, whatever policy says of them."""
    return calls.filter(
        key_id=binding.key_id,
        agent_id=binding.agent_id,
        server_id=binding.server_id,
        tool_name=binding.tool,
        arguments_digest=binding.arguments_digest,
    )


def is_call_id_taken(call_id: str) -> bool:
    """Return whether a call of this id was begun, or is a client's task: then it is no other's to begin."""
    return GatewayCall.objects.filter(pk=call_id).exists()


def mark_call_running(attempt: CallAttempt, request_id: str, server: UpstreamServer, now: datetime) -> bool:
    running = {
        "state": CallState.RUNNING,
        "request_id": request_id,
        "worker": None if attempt.is_local else workers.get_own_worker_name(),
        "started_at": now,
        "run_until": now
        + (
            LOCAL_CALL_TTL
            if attempt.is_local
            else max_call_duration(server, WHOLE_SERVER if attempt.binding.is_read else attempt.binding.tool)
        ),
        # A local call has no result here that a client could come back for.
        "delivered_at": now if attempt.is_local else None,
    }
    gateway_calls = GatewayCall.objects.filter(pk=attempt.call_id)
    if gateway_calls.exists():  # a local caller chooses the id: only its own waiting call is updated
        own = gateway_calls.filter(key_id=attempt.binding.key_id, agent_id=attempt.binding.agent_id)
        if attempt.is_local:
            own = filter_local_calls(own)
        return bool(own.filter(state=CallState.WAITING).update(**running))
    build_gateway_call(attempt.call_id, attempt.binding, attempt.origin, now, **running).save(
        force_insert=True
    )
    return True


def max_call_duration(server: UpstreamServer, tool: str | None = None) -> timedelta:
    """Return how long a call of a tool, or of any tool, may be in progress, as its sender enforces."""
    tools = [WHOLE_SERVER, *server.limits] if tool is None else [tool]
    return (
        timedelta(seconds=max(map(server.call_timeout_seconds_of_tool, tools))) + STARTS_WITHIN + ENDS_WITHIN
    )


def build_gateway_call(
    call_id: str, binding: CallBinding, origin: CallOrigin, now: datetime, **more: object
) -> GatewayCall:
    return GatewayCall(
        call_id=call_id,
        key_id=binding.key_id,
        agent_id=binding.agent_id,
        server_id=binding.server_id,
        tool_name=binding.tool,
        session_id=origin.session_id,
        gateway_session=origin.gateway_session,
        call_key=binding.approval_question_digest,
        arguments_digest=binding.arguments_digest,
        definition_digest=binding.definition_digest,
        policy_version=binding.policy_version,
        created_at=now,
        expires_at=now + pending_call_lifetime(),
        **more,
    )


def filter_local_calls(calls: QuerySet[GatewayCall]) -> QuerySet[GatewayCall]:
    """Return only the local calls: those of servers on their agents' machines, which have no client stream or task."""
    return calls.filter(worker=None, is_task=False, gateway_session=None)


def request_agent_local_call_approval(
    attempt: CallAttempt, ruling: Ruling, *, now: datetime
) -> PermissionRequest:
    """Put a local call to people, as `request_person_approval` does, and record that it waits.

    Raises CallCancelled where its client has cancelled it.
    """
    with transaction.atomic():
        person_request = request_person_approval(attempt.binding, ruling, attempt.origin, until=None, now=now)
        if person_request.status == PermissionRequest.Status.PENDING:
            mark_local_call_waiting(attempt, person_request.request_id, now)
    return person_request


def mark_local_call_waiting(attempt: CallAttempt, request_id: str, now: datetime) -> None:
    """Record that a local call waits, or that it still does. Raises CallCancelled."""
    call_id, binding = attempt.call_id, attempt.binding
    waits = {"request_id": request_id, "run_until": now + LOCAL_WAIT_TTL}
    own = filter_local_calls(GatewayCall.objects.filter(pk=call_id, state=CallState.WAITING))
    own = own.filter(key_id=binding.key_id, agent_id=binding.agent_id)
    question_digests = {
        "call_key": binding.approval_question_digest,
        "definition_digest": binding.definition_digest,
    }
    if own.update(**waits, **question_digests, policy_version=binding.policy_version):
        return
    try:
        with transaction.atomic():
            row = build_gateway_call(call_id, binding, attempt.origin, now, state=CallState.WAITING, **waits)
            row.save(force_insert=True)
    except IntegrityError:  # it was cancelled before it asked
        raise CallCancelled from None


def cancel_local_call_before_start(
    call_id: str, actor: Actor, *, key_id: int, agent_id: str, keeps_card: bool = False, now: datetime
) -> GatewayCall | None:
    """Cancel a call that its agent's own machine has not sent; return it, or None where there is nothing to cancel.

    One that is not there yet will be as soon as it asks.
    """
    cancelled = {"state": CallState.CANCELLED, "ended_at": now, "delivered_at": now}
    with suppress(IntegrityError), transaction.atomic():
        build_early_cancellation_row(call_id, key_id=key_id, agent_id=agent_id, now=now).save(
            force_insert=True
        )
        return None
    with transaction.atomic():
        own = filter_local_calls(GatewayCall.objects.filter(pk=call_id, key_id=key_id, agent_id=agent_id))
        if own.filter(state=CallState.WAITING).update(**cancelled):
            call = own.get()
            if not keeps_card:
                close_request_if_unawaited(call, actor, CANCELLED_BY_CLIENT, now)
            return call
        if own.filter(state=CallState.RUNNING).exists():  # allowed, but not received in time
            undo_call_start(call_id, now=now)
            return own.get()
    return None


def delete_waiting_local_call(attempt: CallAttempt) -> None:
    """Delete a local call's waiting row."""
    filter_waiting_local_calls(attempt).delete()


def filter_waiting_local_calls(attempt: CallAttempt) -> QuerySet[GatewayCall]:
    """Return the waiting row of a local call of this caller, if it has one."""
    own = {"key_id": attempt.binding.key_id, "agent_id": attempt.binding.agent_id}
    return filter_local_calls(GatewayCall.objects.filter(pk=attempt.call_id, state=CallState.WAITING, **own))


def begin_local_call_or_return_denial(attempt: CallAttempt, *, now: datetime) -> PermissionRequest | None:
    """Note that an allowed call is sent by its agent's own machine; once, where it asks again. Raises Conflict.

    A question about it is closed. Where a person denied it meanwhile, it is not begun: that request is returned.
    """
    running = {
        "state": CallState.RUNNING,
        "started_at": now,
        "run_until": now + LOCAL_CALL_TTL,
        "delivered_at": now,
    }
    with transaction.atomic():
        denied = close_question_of_allowed_local_call(attempt, now)
        if denied is not None:
            return denied
        try:
            with transaction.atomic():
                build_gateway_call(attempt.call_id, attempt.binding, attempt.origin, now, **running).save(
                    force_insert=True
                )
        except IntegrityError:
            if not is_local_call_begun(attempt):
                raise Conflict("This call has ended already, or its id is another call's.") from None
    return None


def close_question_of_allowed_local_call(attempt: CallAttempt, now: datetime) -> PermissionRequest | None:
    """Close the question about a local call that policy allows by now, and delete the call's waiting row.

    The card is closed, unless another call of the same waits for it. A verdict is taken, so that no other call has it.
    Return the request where that is a denial.
    """
    own = filter_waiting_local_calls(attempt)
    call = own.first()
    if call is None:
        return None
    outcome, request = QuestionOutcome.OVER, None
    with transaction.atomic():
        with suppress(NotFound):  # it was deleted
            request = rows.lock_permission_request(call.request_id or "")
        if request is not None:
            question = replace(attempt, binding=build_original_call_binding(attempt.binding, request))
            if question.binding.approval_question_digest == call.call_key:
                outcome = consume_verdict_of_allowed_call(question, request, now)
        if not own.delete()[0]:  # another line of the same call was faster
            transaction.set_rollback(True)
            return None
        if request is not None and rules.current_request_state(request, now).waiting:
            close_request_if_unawaited(call, attempt.binding.by, ALLOWED_BY_NOW, now)
    return request if outcome is QuestionOutcome.DENIED else None


def is_local_call_begun(attempt: CallAttempt) -> bool:
    """Return whether this very call was allowed already, although the caller did not receive the answer."""
    return GatewayCall.objects.filter(
        pk=attempt.call_id,
        state=CallState.RUNNING,
        worker=None,
        call_key=attempt.binding.approval_question_digest,
    ).exists()


def restore_unused_local_approval(attempt: CallAttempt, *, now: datetime) -> None:
    """Return the approval of a call that was allowed already if the caller did not receive that: it is not sent."""
    if is_local_call_begun(attempt):
        undo_call_start(attempt.call_id, now=now)


def require_and_end_local_call(call_id: str, *, key_id: int, agent_id: str, now: datetime) -> GatewayCall:
    """Note that a call has ended that its agent's own machine sent; return it. Raises NotFound, Conflict."""
    call = GatewayCall.objects.filter(pk=call_id, key_id=key_id, agent_id=agent_id, worker=None).first()
    if call is None or call.started_at is None:
        raise NotFound("There is no such call.")
    free = GatewayCall.objects.filter(pk=call_id, state=CallState.RUNNING)
    if not free.update(state=CallState.DONE, ended_at=now):
        raise Conflict("This call has ended already.")
    return call


def create_call_task(attempt: CallAttempt, request_id: str, message: bytes, *, now: datetime) -> GatewayCall:
    """Save a call that a client polls for; it is in the database when this returns."""
    call = build_gateway_call(
        attempt.call_id,
        attempt.binding,
        attempt.origin,
        now,
        state=CallState.WAITING,
        is_task=True,
        request_id=request_id,
        message=encrypt_call_data(message),
    )
    call.save(force_insert=True)
    return call


def require_call_task_marking_lost(call_id: str, *, key_id: int, agent_id: str, now: datetime) -> GatewayCall:
    """Return a task of this caller. Raises NotFound."""
    call = GatewayCall.objects.filter(pk=call_id, is_task=True, key_id=key_id, agent_id=agent_id).first()
    if call is None:
        raise NotFound("There is no such task.")
    return reload_call_marking_lost(call, binding=None, now=now)


def decrypt_task_request_bytes(call: GatewayCall) -> bytes:
    """Return the request that a task keeps. Raises NotFound where it cannot be opened any more."""
    return decrypt_call_bytes(call.message)


def require_decrypted_call_response(call: GatewayCall) -> bytes:
    """Return the response that the server gave. Raises NotFound where it was not kept."""
    return decrypt_call_bytes(call.result)


def decrypt_call_bytes(sealed: str | None) -> bytes:
    try:
        return unseal_for_purpose(SEALED_AS, (sealed or "").encode())
    except ValueError:
        raise NotFound("It was not kept.") from None


def end_refused_call_task(call: GatewayCall, response: bytes, *, now: datetime) -> bool:
    """End a task that does not run, or go on: denied, expired, or overtaken by another policy.

    False if it has changed since `call` was read: another request of its client was faster.
    """
    same = GatewayCall.objects.filter(pk=call.pk, state=call.state, rounds=call.rounds)
    refused = {
        "state": CallState.DENIED,
        "result": encrypt_call_data(response),
        "ended_at": now,
        "message": None,
    }
    return bool(same.update(**refused))


def encrypt_call_data(call_data: bytes) -> str:
    return seal_for_purpose(SEALED_AS, call_data).decode()


def try_save_client_task_answer(call: GatewayCall, message: bytes) -> bool:
    """Keep a task's request with what its client said to its server's question; False where that changed meanwhile."""
    same = GatewayCall.objects.filter(pk=call.pk, state=CallState.DONE, message=call.message)
    return bool(same.update(message=encrypt_call_data(message)))


def cancel_call_task(call: GatewayCall, actor: Actor, *, now: datetime) -> None:
    """Cancel a task that waits: for a person, whose card is closed, or for its client. One that runs goes on."""
    cancelled = {"state": CallState.CANCELLED, "ended_at": now, "message": None}
    task = GatewayCall.objects.filter(pk=call.pk)
    if task.filter(state=CallState.WAITING).update(**cancelled):
        withdraw_request_of_gateway_call(call, actor, "The client cancelled the task.", now)
    else:
        task.filter(state=CallState.DONE, message__isnull=False).update(**cancelled)


def withdraw_request_of_gateway_call(call: GatewayCall, actor: Actor, reason: str, now: datetime) -> None:
    with suppress(Conflict, NotFound):  # a person was faster
        approvals.withdraw_request(call.request_id or "", actor=actor, reason=reason, now=now)


def end_gateway_call(call_id: str, response: bytes, *, asks_for_input: bool = False, now: datetime) -> None:
    """Note that a running call ended with its server's response.

    Where the response `asks_for_input` for more, the request is kept: it is sent once more, with what the client says.
    """
    ended: dict[str, object] = {
        "state": CallState.DONE,
        "result": encrypt_call_data(response) if len(response) <= LONGEST_RESULT else None,
        "ended_at": now,
        "delivered_at": None,
    }
    GatewayCall.objects.filter(pk=call_id, state=CallState.RUNNING).update(
        **ended if asks_for_input else ended | {"message": None}
    )


def mark_call_answered_by_server(call_id: str, *, now: datetime) -> None:
    """Record that a running call's client receives its end from the server itself."""
    GatewayCall.objects.filter(pk=call_id, state=CallState.RUNNING).update(
        state=CallState.DONE, ended_at=now, delivered_at=now, message=None
    )


def undo_call_start(call_id: str, call_data: bytes | None = None, *, now: datetime) -> None:
    """Give an approval back whose call was begun and not sent: nothing has run. A task's client is `call_data` so."""
    with transaction.atomic():
        call = GatewayCall.objects.filter(pk=call_id, state=CallState.RUNNING).first()
        if call is None:
            return
        has_task_response = call.is_task and call_data is not None
        GatewayCall.objects.filter(pk=call_id).update(
            state=CallState.DENIED if has_task_response else CallState.CANCELLED,
            result=encrypt_call_data(call_data) if has_task_response and call_data is not None else None,
            ended_at=now,
            delivered_at=now,
            message=None,
        )
        user = f"{call.session_id or ''} {call_id}".strip()
        PermissionContext.objects.filter(request__request_id=call.request_id, used_by=user).update(
            used_at=None, used_by=None
        )


def mark_delivered_and_delete_result(call_id: str, *, now: datetime) -> None:
    """Record that a call's result was delivered."""
    GatewayCall.objects.filter(pk=call_id, delivered_at__isnull=True).update(delivered_at=now, result=None)


def try_claim_call_result(call_id: str, *, now: datetime) -> bool:
    """Claim the delivery of a call's result; False if another response has it. The result is kept a while longer."""
    return bool(GatewayCall.objects.filter(pk=call_id, delivered_at__isnull=True).update(delivered_at=now))


def release_call_result_claim(call_id: str) -> None:
    """Release the claim so that the same call made again gets the result: the client had disconnected."""
    GatewayCall.objects.filter(pk=call_id).update(delivered_at=None)


def resume_call_or_return_denial(attempt: CallAttempt, round_: int, *, now: datetime) -> Ruling | None:
    """Mark a call running whose server asked for more, once for each of its questions; None once it may be sent.

    Else the ruling that prevents it, as in `begin_approved_call_or_return_ruling`.
    """
    binding = attempt.binding
    with transaction.atomic():
        server, ruling = load_server_and_audited_ruling(attempt, now)
        if server is None or ruling.decision == DENY:
            return ruling
        if ruling.decision == ASK and (changed := describe_call_change(binding, ruling, server)):
            return replace(ruling, reason=changed)
        asking = GatewayCall.objects.filter(pk=attempt.call_id, rounds=round_)
        asking = filter_calls_with_same_binding(asking, binding)
        if not asking.update(
            state=CallState.RUNNING,
            rounds=round_ + 1,
            worker=workers.get_own_worker_name(),
            run_until=now + max_call_duration(server),
            ended_at=None,
            delivered_at=None,
            result=None,
        ):
            return replace(ruling, decision=ASK, reason="This question of its server was answered before.")
    return None


def reopen_server_question(call_id: str, round_: int, *, now: datetime) -> None:
    """Let a question of a call's server be answered once more: the answer could not be sent."""
    GatewayCall.objects.filter(pk=call_id, state=CallState.RUNNING, rounds=round_ + 1).update(
        state=CallState.DONE, rounds=round_, ended_at=now, delivered_at=now
    )


def audit_call_denial(binding: CallBinding, ruling: Ruling, origin: CallOrigin, *, now: datetime) -> None:
    """Write a call that policy denied into the audit log."""
    if denials.should_skip_denial_of_key_over_quota(DENIED, binding.by, now):
        return
    audit.record_audit_entry(
        DENIED,
        actor=binding.by,
        target=origin.session_id,
        permission=binding.tool_name,
        result="denied",
        reason=ruling.reason,
        metadata={
            "by": ruling.by,
            "agent_id": binding.agent_id,
            **policy_in_force.ruling_source_as_json(ruling),
        },
        now=now,
    )


def audit_gateway_call_event(
    event: str, call: GatewayCall, result: str, reason: str, now: datetime, *, binding: CallBinding | None
) -> None:
    audit.record_audit_entry(
        event,
        actor=binding.by if binding is not None else system_actor("mcp-gateway"),
        target=call.session_id,
        permission=call.tool_name,
        result=result,
        reason=reason,
        metadata={"server": call.server_id, "agent_id": call.agent_id, "request_id": call.request_id},
        now=now,
    )
