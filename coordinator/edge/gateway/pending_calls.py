"""Calls that a person is asked about: told to the client in the best way it knows, run once when they are approved.

The ways, best first: a task that the client polls; `input_required` with the card's address and a sealed state; a
stream that stays open, with progress, as long as the client stays; else an error that says "call again". Whatever
becomes of line, worker or server, the question stands in the database, and so does what was approved.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.approvals.pending_calls import pending_call_lifetime
from coordinator.actions.mcp import gateway_calls
from coordinator.actions.mcp.gateway_calls import CallAttempt, CallOrigin
from coordinator.edge.gateway import approved_calls as running
from coordinator.edge.gateway.approved_calls import ApprovedCallRunner
from coordinator.edge.gateway.exchange import Exchange, is_timeout_reason
from coordinator.edge.gateway.keep_alive import ClientKeepAlive
from coordinator.edge.gateway.records import CallRecord, CallRecords
from coordinator.edge.http.concurrency import ConcurrencyLimit
from coordinator.edge.http.messages import ClientDisconnected
from coordinator.edge.polling.waits import LongPollWaiters
from coordinator.lib import instants
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway.binding import CallBinding
from coordinator.mcp.gateway.states import ContinuationState, WaitState, seal_call_state
from coordinator.mcp.protocol.messages import TASKS
from coordinator.models import GatewayCall, PermissionRequest
from coordinator.models.gateway import CallState
from coordinator.policy.requests import approvals as rules
from coordinator.policy.rules.tool_rules import DENY, Ruling

T = TypeVar("T")

MOST_HELD = 8_000  # calls that wait in one process
# Seconds after which a client that asked for no progress would give up: many do after 60.
WITHOUT_PROGRESS = 50.0
ROUND = 50.0  # seconds for which one try of a stateless client is held
MOST_ROUNDS = 9  # clients try ten times
WITHOUT_EVENTS = 20.0  # seconds for a client that takes no events
BREAKS_OFF_AFTER = {"codex": 10.0}  # seconds, by program: whatever it is told, it waits no longer
HEARD_WITHIN = 0.5  # seconds after a call's end in which it is noted that its own line heard it
CANCELLED = "The client cancelled the call while it waited."
MOST_TRIES = 4  # how often a question is put anew while others take its approval


@dataclass(slots=True)
class PendingCall:
    """One call that is held, on its way."""

    x: Exchange
    binding: CallBinding
    ruling: Ruling
    place: CallOrigin
    record: CallRecord
    is_kept: bool = False  # while its line waits, so that its client can cancel it anywhere

    @property
    def call_attempt(self) -> CallAttempt:
        return CallAttempt(self.record.call_id, self.binding, self.x.caller, self.place)


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """What of a request is kept in memory while a call waits for it: the rest stands in the database."""

    pk: int
    request_id: str
    link: str


class PendingCalls:
    """Who waits in this process. One a process."""

    def __init__(
        self, waits: LongPollWaiters, threads: EdgeThreads, records: CallRecords, runner: ApprovedCallRunner
    ) -> None:
        self._waits = waits
        self._threads = threads
        self._records = records
        self._runner = runner
        self._places = ConcurrencyLimit(MOST_HELD, "calls that wait for people")
        self.pulse = ClientKeepAlive()

    async def hold_and_answer_call(self, held: PendingCall, state: WaitState | None = None) -> None:
        """Have a person decide the call, and answer the client. `state` is what a stateless client sent back."""
        with self._places.acquire_slot(held.x.caller_key.name):
            try:
                await self.answer_pending_call(held, state)
            except gateway_calls.CallCancelled:
                self._records.end_call_record(held.record, "held", None, CANCELLED)
                await held.x.line.drop_answer()
            finally:
                if held.is_kept:
                    await self._threads.run_in_thread(gateway_calls.forget_waiting_call, held.record.call_id)

    async def cancel_pending_call(self, x: Exchange) -> bool:
        """Cancel the call that a client's notification names, and close its card; False where none of it waits."""
        if x.client is None:
            return False
        number = x.message.params.get("requestId")
        if not isinstance(number, str | int | float):
            return False
        cancel = functools.partial(
            gateway_calls.cancel_gateway_call,
            x.client.session_id,
            number,
            x.caller_key.caller_actor,
            key_id=x.caller_key.id,
            agent_id=x.agent_id,
            keeps_card=is_timeout_reason(str(x.message.params.get("reason", ""))),
        )
        return await self._threads.run_in_thread(cancel, now=timezone.now())

    async def answer_pending_call(self, held: PendingCall, state: WaitState | None) -> None:
        card = None
        for _ in range(MOST_TRIES):
            await self.require_not_cancelled(held)
            known_call = await self._threads.run_in_thread(
                gateway_calls.find_earlier_call, held.binding, timezone.now()
            )
            if known_call is not None and await self.answer_with_earlier_call(held, known_call):
                return
            card, row = await self.request_call_approval(held)
            if card is not None and await self.answer_by_approval(held, card, row, state):
                return
        if card is not None:
            await self.send_wait_message(held, card)
        else:
            await self.refuse_without_ending_call(held, answers.describe_running_call(held.binding.tool))

    async def require_not_cancelled(self, held: PendingCall) -> None:
        """Raise gateway_calls.Cancelled where the client has cancelled the call."""
        if held.is_kept:
            await self._threads.run_in_thread(gateway_calls.raise_if_cancelled, held.record.call_id)

    async def answer_with_earlier_call(self, held: PendingCall, known: GatewayCall) -> bool:
        """Answer with what became of the very same call, begun before: it runs, has an unheard result, or is lost."""
        if known.state == CallState.RUNNING:
            earlier_call = await self.wait_for_earlier_call(held, known)
            if earlier_call is None:
                await self.refuse_without_ending_call(held, answers.describe_running_call(held.binding.tool))
                return True
            if await self.wait_for_delivery(held, earlier_call):
                return False
            known = earlier_call
        self.require_connected_client(held)
        if not await self._threads.run_in_thread(
            gateway_calls.claim_call_result, known.call_id, now=timezone.now()
        ):
            return False
        is_told = False
        try:
            await self.send_earlier_result(held, known)
            is_told = not held.x.gone.happened
        finally:
            if not is_told:
                await self._threads.run_in_thread(gateway_calls.release_call_result, known.call_id)
        return True

    async def send_earlier_result(self, held: PendingCall, known: GatewayCall) -> None:
        """Tell how the very same call ended, as far as that is known."""
        if held.x.gone.happened:
            return  # it left meanwhile
        if known.state == CallState.LOST or known.result is None:
            unknown_end_text = answers.describe_unknown_end(
                held.binding.tool, format_start_time(known.started_at)
            )
            await self.end_call_with_message(held, "failed", unknown_end_text)
            return
        response = running.replace_response_id(gateway_calls.read_call_result(known), held.x.message.id)
        self._records.end_call_record(
            held.record, "held" if running.parse_server_question(response) else "ok", response
        )
        await held.x.line.send_answer(response)

    def require_connected_client(self, held: PendingCall) -> None:
        """Raise ClientDisconnected where nobody is there to be told an end: it is for the same call made again."""
        if held.x.gone.happened:
            self._records.end_call_record(
                held.record, "held", None, "The client went away while the call waited."
            )
            raise ClientDisconnected

    async def wait_for_earlier_call(self, held: PendingCall, known: GatewayCall) -> GatewayCall | None:
        return await self.wait_sending_progress(
            held,
            functools.partial(find_ended_call, known.call_id, held.binding),
            f"gateway_calls:{known.call_id}",
            self.calculate_wait_limit(held.x),
            f"{held.binding.tool} was approved and runs",
        )

    async def wait_for_delivery(self, held: PendingCall, known: GatewayCall) -> bool:
        """Say whether the line that ran a call hears its end: then this is another call that says the same."""
        check = functools.partial(check_call_delivered, known.call_id)
        outcome_text = f"{held.binding.tool} has run"
        return (
            await self.wait_sending_progress(
                held, check, f"gateway_calls:{known.call_id}", HEARD_WITHIN, outcome_text
            )
            is not None
        )

    async def request_call_approval(
        self, held: PendingCall
    ) -> tuple[PendingApproval | None, PermissionRequest | None]:
        """Return the request that answers the call, and what was decided where it is decided already.

        Nothing where an earlier line of its client has begun the call just now.
        """
        until = timezone.now() + timedelta(seconds=self.calculate_wait_limit(held.x))
        x = held.x
        kept_call = (
            None if x.client is None or x.message.is_stateless else (held.record.call_id, x.message.id)
        )
        row = await self._threads.run_in_thread(
            gateway_calls.request_unless_begun,
            held.binding,
            held.ruling,
            held.place,
            until=until,
            now=timezone.now(),
            kept=kept_call,
        )
        held.is_kept = kept_call is not None
        if row is None:
            return None, None
        card = PendingApproval(row.pk, row.request_id, gateway_calls.approval_url(row))
        return card, None if rules.current_request_state(row, timezone.now()).waiting else row

    async def answer_by_approval(
        self, held: PendingCall, card: PendingApproval, row: PermissionRequest | None, state: WaitState | None
    ) -> bool:
        """Answer the client by the request, which may take its time; False to put the question once more."""
        if row is None:
            if TASKS in get_client_extensions(held.x):
                await self.answer_with_task(held, card)
                return True
            if held.x.message.is_stateless and can_open_urls(held.x) and state is None:
                await self.answer_input_required(held, card, 0, with_address=True)
                return True
            row = await self.wait_for_call_verdict(held, card)
            if row is None:
                await self.answer_undecided_call(held, card, state)
                return True
        return await self.apply_pending_verdict(held, row)

    async def apply_pending_verdict(self, held: PendingCall, row: PermissionRequest) -> bool:
        now = timezone.now()
        current_request_state = rules.current_request_state(row, now)
        context = rules.request_context(row)
        if current_request_state.allowed:
            refusal = await self._threads.run_in_thread(
                gateway_calls.begin_gateway_call, held.call_attempt, row.request_id, now=now
            )
            if refusal is None:
                held.record.decided_by = f"approved by {row.approved_by or 'somebody'}"
                await self._runner.run_approved_call(held.x, held.record, held.binding)
                return True
            if refusal.decision == DENY:
                await self.deny_pending_call(held, refusal)
                return True
            return await self.rebind_pending_call(held, refusal)
        if row.status == PermissionRequest.Status.DENIED:
            self.require_connected_client(held)
            await self._threads.run_in_thread(
                gateway_calls.consume_call_denial, held.call_attempt, row.request_id, now=now
            )
            held.record.decided_by = f"denied by {row.approved_by or 'somebody'}"
            reason = context.reason if context else None
            await self.end_call_with_message(
                held, "denied", answers.describe_person_denial(held.binding.tool, reason)
            )
            return True
        undecided_call_text = answers.describe_undecided_call(held.binding.tool, current_request_state.word)
        await self.end_call_with_message(held, "held", undecided_call_text)
        return True

    async def rebind_pending_call(self, held: PendingCall, refusal: Ruling) -> bool:
        """Have what counts by now in place of what was asked: the next question is about that."""
        fresh = await self._runner.rebind_call(held.x, held.binding)
        if fresh is None:
            denial = replace(refusal, decision=DENY)
            await self._threads.run_in_thread(
                gateway_calls.record_call_denial, held.binding, denial, held.place, now=timezone.now()
            )
            await self.deny_pending_call(held, denial)
            return True
        held.binding, held.ruling = fresh
        if held.record.goes_on and await self._threads.run_in_thread(
            gateway_calls.is_call_begun, held.record.call_id
        ):
            self._records.restart_call_record(held.record, gateway_calls.new_call_id())
            held.place = replace(held.place, event_id=await self._records.write_call_begin(held.record))
        return False

    async def deny_pending_call(self, held: PendingCall, denial: Ruling) -> None:
        """Tell what stands against a call by now."""
        policy_denial_text = answers.describe_policy_denial(
            held.binding.server_id, held.binding.tool, denial.reason, gateway_calls.policy_page_url(denial)
        )
        await self.end_call_with_message(held, "denied", policy_denial_text)

    async def wait_for_call_verdict(
        self, held: PendingCall, card: PendingApproval
    ) -> PermissionRequest | None:
        """Wait for a person; None where the client's patience ends first.

        Raises ClientDisconnected where the client leaves.
        """
        started_at = time.perf_counter()
        try:
            return await self.wait_sending_progress(
                held,
                functools.partial(
                    find_decided_request, card.request_id, held.record.call_id if held.is_kept else None
                ),
                f"permission_requests:{card.pk}",
                self.calculate_wait_limit(held.x),
                f"Waits for approval: {card.link}",
            )
        finally:
            held.record.waited += time.perf_counter() - started_at

    async def wait_sending_progress(
        self, held: PendingCall, check: Callable[[], T | None], topic: str, patience: float, words: str
    ) -> T | None:
        x = held.x
        if x.accepts_event_stream:
            await x.line.open_event_stream()
        with self.pulse.keep_client_alive(x, words):
            waited = await self._waits.wait_until(
                check,
                topics=[topic, f"gateway_calls:{held.record.call_id}"],
                timeout=patience,
                still_allowed=x.admission.require_still_allowed,
                gone=x.gone,
            )
        if waited is None:
            self.require_connected_client(held)
        await x.admission.require_still_allowed()
        return waited

    def calculate_wait_limit(self, x: Exchange) -> float:
        """Return for how many seconds this client can be made to wait on its line."""
        if not x.accepts_event_stream:
            return WITHOUT_EVENTS
        if x.message.is_stateless and can_open_urls(x):
            return ROUND
        if x.program in BREAKS_OFF_AFTER:
            return BREAKS_OFF_AFTER[x.program]
        return (
            WITHOUT_PROGRESS if x.message.progress_token is None else pending_call_lifetime().total_seconds()
        )

    async def answer_undecided_call(
        self, held: PendingCall, card: PendingApproval, state: WaitState | None
    ) -> None:
        if state is not None and state.round + 1 < MOST_ROUNDS:
            await self.answer_input_required(held, card, state.round + 1, with_address=False)
        else:
            await self.send_wait_message(held, card)

    async def send_wait_message(self, held: PendingCall, card: PendingApproval) -> None:
        closing_reason = "The agent was told to call again."
        await self._threads.run_in_thread(
            approvals.mark_request_deferred,
            card.request_id,
            by=held.binding.by,
            reason=closing_reason,
            now=timezone.now(),
        )
        await self.end_call_with_message(
            held, "held", answers.describe_waiting_call(held.binding.tool, card.link)
        )

    async def answer_input_required(
        self, held: PendingCall, card: PendingApproval, round_: int, *, with_address: bool
    ) -> None:
        """Answer that a person has to decide, at the card's address; the client tries again when they have seen it."""
        closing_reason = "The agent's client was given the card's address."
        if with_address:
            await self._threads.run_in_thread(
                approvals.mark_request_deferred,
                card.request_id,
                by=held.binding.by,
                reason=closing_reason,
                now=timezone.now(),
            )
        until = time.time() + pending_call_lifetime().total_seconds()
        state = WaitState(held.record.call_id, card.request_id, held.binding.question_digest, until, round_)
        result: dict[str, Any] = {"resultType": "input_required", "requestState": seal_call_state(state)}
        if with_address:
            approval_text = (
                f"{held.binding.tool} of {held.binding.server_id} needs a person's approval in Signalbox."
            )
            elicitation_params = {"mode": "url", "message": approval_text, "url": card.link}
            result["inputRequests"] = {
                "approval": {"method": "elicitation/create", "params": elicitation_params}
            }
        self._records.leave_call_open(held.record)
        await held.x.line.send_answer(answers.build_result_response(held.x.message.id, result))

    async def answer_with_task(self, held: PendingCall, card: PendingApproval) -> None:
        """Answer with a task; it stands in the database before the client hears of it."""
        call = await self._threads.run_in_thread(
            gateway_calls.create_call_task,
            held.call_attempt,
            card.request_id,
            running.pack_task_request(held.x),
            now=timezone.now(),
        )
        await self._threads.run_in_thread(
            approvals.mark_request_deferred,
            card.request_id,
            by=held.binding.by,
            reason="The agent's client polls for the verdict.",
            now=timezone.now(),
        )
        self._records.leave_call_open(held.record)
        value = {"resultType": "task", **running.describe_task(call, card.link)}
        await held.x.line.send_answer(answers.build_result_response(held.x.message.id, value))

    async def end_call_with_message(self, held: PendingCall, outcome: str, words: str) -> None:
        response = answers.build_tool_error(held.x.message, words)
        self._records.end_call_record(held.record, outcome, response)
        await held.x.line.send_answer(response)

    async def refuse_without_ending_call(self, held: PendingCall, words: str) -> None:
        """Say something that ends no call which goes on elsewhere."""
        response = answers.build_tool_error(held.x.message, words)
        self._records.record_refused_retry(held.record, response)
        await held.x.line.send_answer(response)

    async def continue_pending_call(self, held: PendingCall, state: ContinuationState) -> None:
        """Let an approved call go on whose server asked for more, once for each of its questions."""
        refusal = await self._threads.run_in_thread(
            gateway_calls.resume_gateway_call, held.call_attempt, state.round, now=timezone.now()
        )
        if refusal is None:
            await self._runner.continue_approved_call(held.x, held.record, held.binding, state)
        elif refusal.decision == DENY:
            await self.deny_pending_call(held, refusal)
        else:
            await self.refuse_without_ending_call(
                held, answers.describe_stopped_call(held.binding.tool, refusal.reason)
            )


def find_decided_request(request_id: str, kept: str | None) -> PermissionRequest | None:
    if kept is not None:
        gateway_calls.raise_if_cancelled(kept)
    row = rules.find_permission_request(request_id)
    return None if rules.current_request_state(row, timezone.now()).waiting else row


def find_ended_call(call_id: str, binding: CallBinding) -> GatewayCall | None:
    now = timezone.now()
    call = gateway_calls.mark_lost_if_gone(GatewayCall.objects.get(pk=call_id), by=binding, now=now)
    return None if call.state == CallState.RUNNING else call


def check_call_delivered(call_id: str) -> bool | None:
    return GatewayCall.objects.filter(pk=call_id, delivered_at__isnull=False).exists() or None


def get_client_extensions(x: Exchange) -> dict[str, Any]:
    extensions = x.message.declared_capabilities.get("extensions")
    return extensions if x.message.is_stateless and isinstance(extensions, dict) else {}


def can_open_urls(x: Exchange) -> bool:
    elicitation = x.message.declared_capabilities.get("elicitation")
    return isinstance(elicitation, dict) and isinstance(elicitation.get("url"), dict)


def format_start_time(at: Any) -> str:
    return instants.format_canonical_instant(at) if isinstance(at, datetime) else "an unknown time"
