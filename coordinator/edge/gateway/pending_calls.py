"""Calls that wait for a person's approval, and run once when they are approved.

The client is notified in the best way it supports: a task that it polls; `input_required` with the approval URL and a
sealed state; a stream with progress that stays open while the client stays; else an error that says "call again".
Request and approval are stored in the database, so they outlive the stream, the worker and the server.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable
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
from coordinator.edge.gateway.client_wait_limits import can_client_open_urls, max_client_wait_seconds
from coordinator.edge.gateway.exchange import Exchange, is_client_timeout_reason
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

MAX_PENDING_CALLS = 8_000  # calls that wait in one process
MOST_ROUNDS = 9  # clients try ten times
DELIVERY_WAIT_SECONDS = 0.5  # seconds after a call's end for its own response stream to record the delivery
CANCELLED = "The client cancelled the call while it waited."
MOST_TRIES = 4  # how often a question is repeated while other calls take its approval


@dataclass(slots=True)
class PendingCall:
    """One call that is held, on its way."""

    exchange: Exchange
    binding: CallBinding
    ruling: Ruling
    origin: CallOrigin
    record: CallRecord
    is_stored: bool = False  # while its line waits, so that its client can cancel it anywhere
    # Sends an approved request that is no call of a tool: its client waits on its line, and nobody comes back for it.
    send_read: Callable[[], Awaitable[None]] | None = None

    @property
    def call_attempt_details(self) -> CallAttempt:
        return CallAttempt(self.record.call_id, self.binding, self.exchange.caller, self.origin)


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """The part of a request that is kept in memory while a call waits for it; the rest is in the database."""

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
        self._pending_limit = ConcurrencyLimit(MAX_PENDING_CALLS, "calls that wait for people")
        self.keep_alive = ClientKeepAlive()

    async def await_decision_and_answer_call(
        self, pending_call: PendingCall, state: WaitState | None = None
    ) -> None:
        """Have a person decide the call, and answer the client. `state` is what a stateless client sent back."""
        with self._pending_limit.reserve_slot_during_block(pending_call.exchange.caller_key.name):
            try:
                await self.obtain_decision_and_send_answer(pending_call, state)
            except gateway_calls.CallCancelled:
                self._records.end_call_record(pending_call.record, "held", None, CANCELLED)
                await pending_call.exchange.line.end_response_without_answer()
            finally:
                if pending_call.is_stored:
                    await self._threads.run_in_thread(
                        gateway_calls.delete_waiting_call, pending_call.record.call_id
                    )

    async def cancel_pending_call(self, exchange: Exchange) -> bool:
        """Cancel the call that a client's notification names, and close its card; False where none of it waits."""
        if exchange.client is None:
            return False
        number = exchange.message.params.get("requestId")
        if not isinstance(number, str | int | float):
            return False
        cancel = functools.partial(
            gateway_calls.cancel_existing_or_future_call,
            exchange.client.session_id,
            number,
            exchange.caller_key.caller_actor,
            key_id=exchange.caller_key.id,
            agent_id=exchange.agent_id,
            keeps_card=is_client_timeout_reason(str(exchange.message.params.get("reason", ""))),
        )
        return await self._threads.run_in_thread(cancel, now=timezone.now())

    async def obtain_decision_and_send_answer(
        self, pending_call: PendingCall, state: WaitState | None
    ) -> None:
        approval = None
        for _ in range(MOST_TRIES):
            await self.require_call_not_cancelled(pending_call)
            known_call = await self._threads.run_in_thread(
                gateway_calls.find_undelivered_call_marking_lost, pending_call.binding, timezone.now()
            )
            if known_call is not None and await self.try_send_identical_call_answer(pending_call, known_call):
                return
            approval, row = await self.open_approval_and_find_decision(pending_call)
            if approval is not None and await self.try_answer_after_approval(
                pending_call, approval, row, state
            ):
                return
        if approval is not None:
            await self.end_call_with_retry_message(pending_call, approval)
        else:
            await self.refuse_without_ending_call(
                pending_call, answers.describe_running_call(pending_call.binding.tool)
            )

    async def require_call_not_cancelled(self, pending_call: PendingCall) -> None:
        """Raise gateway_calls.Cancelled where the client has cancelled the call."""
        if pending_call.is_stored:
            await self._threads.run_in_thread(
                gateway_calls.raise_if_call_cancelled, pending_call.record.call_id
            )

    async def try_send_identical_call_answer(
        self, pending_call: PendingCall, gateway_call: GatewayCall
    ) -> bool:
        """Answer with what became of the very same call, begun before: it runs, has an unheard result, or is lost."""
        if gateway_call.state == CallState.RUNNING:
            earlier_call = await self.wait_for_earlier_call_end(pending_call, gateway_call)
            if earlier_call is None:
                await self.refuse_without_ending_call(
                    pending_call, answers.describe_running_call(pending_call.binding.tool)
                )
                return True
            if await self.wait_until_earlier_call_delivered(pending_call, earlier_call):
                return False
            gateway_call = earlier_call
        self.require_connected_or_end_record(pending_call)
        if not await self._threads.run_in_thread(
            gateway_calls.try_claim_call_result, gateway_call.call_id, now=timezone.now()
        ):
            return False
        is_delivered = False
        try:
            await self.send_result_of_earlier_call(pending_call, gateway_call)
            is_delivered = not pending_call.exchange.disconnect.happened
        finally:
            if not is_delivered:
                await self._threads.run_in_thread(
                    gateway_calls.release_call_result_claim, gateway_call.call_id
                )
        return True

    async def send_result_of_earlier_call(self, pending_call: PendingCall, earlier_call: GatewayCall) -> None:
        """Send the outcome of the identical earlier call, as far as it is known."""
        if pending_call.exchange.disconnect.happened:
            return  # it left meanwhile
        if earlier_call.state == CallState.LOST or earlier_call.result is None:
            unknown_end_text = answers.describe_call_with_unknown_end(
                pending_call.binding.tool, format_start_time(earlier_call.started_at)
            )
            await self.end_call_with_message(pending_call, "failed", unknown_end_text)
            return
        response = running.replace_response_id(
            gateway_calls.require_decrypted_call_response(earlier_call), pending_call.exchange.message.id
        )
        self._records.end_call_record(
            pending_call.record, "held" if running.parse_server_question_or_none(response) else "ok", response
        )
        await pending_call.exchange.line.send_answer(response)

    def require_connected_or_end_record(self, pending_call: PendingCall) -> None:
        """Raise ClientDisconnected where the client is gone: the result is left for a retry of the call."""
        if pending_call.exchange.disconnect.happened:
            self._records.end_call_record(
                pending_call.record, "held", None, "The client went away while the call waited."
            )
            raise ClientDisconnected

    async def wait_for_earlier_call_end(
        self, pending_call: PendingCall, earlier_call: GatewayCall
    ) -> GatewayCall | None:
        return await self.wait_while_sending_progress(
            pending_call,
            functools.partial(find_ended_call_marking_lost, earlier_call.call_id, pending_call.binding),
            f"gateway_calls:{earlier_call.call_id}",
            max_client_wait_seconds(pending_call.exchange),
            f"{pending_call.binding.tool} was approved and runs",
        )

    async def wait_until_earlier_call_delivered(
        self, pending_call: PendingCall, earlier_call: GatewayCall
    ) -> bool:
        """Return whether the stream that ran a call receives its result: then this is another, identical call."""
        check = functools.partial(is_result_delivered_or_none, earlier_call.call_id)
        outcome_text = f"{pending_call.binding.tool} has run"
        return (
            await self.wait_while_sending_progress(
                pending_call,
                check,
                f"gateway_calls:{earlier_call.call_id}",
                DELIVERY_WAIT_SECONDS,
                outcome_text,
            )
            is not None
        )

    async def open_approval_and_find_decision(
        self, pending_call: PendingCall
    ) -> tuple[PendingApproval | None, PermissionRequest | None]:
        """Return the request that answers the call, and what was decided where it is decided already.

        Nothing where an earlier line of its client has begun the call just now.
        """
        until = timezone.now() + timedelta(seconds=max_client_wait_seconds(pending_call.exchange))
        exchange = pending_call.exchange
        stored_call = (
            None
            if exchange.client is None or exchange.message.is_stateless
            else (pending_call.record.call_id, exchange.message.id)
        )
        row = await self._threads.run_in_thread(
            gateway_calls.request_approval_unless_call_begun,
            pending_call.binding,
            pending_call.ruling,
            pending_call.origin,
            until=until,
            now=timezone.now(),
            known_call=stored_call,
        )
        pending_call.is_stored = stored_call is not None
        if row is None:
            return None, None
        approval = PendingApproval(row.pk, row.request_id, gateway_calls.approval_url(row))
        return approval, None if rules.current_request_state(row, timezone.now()).waiting else row

    async def try_answer_after_approval(
        self,
        pending_call: PendingCall,
        approval: PendingApproval,
        row: PermissionRequest | None,
        state: WaitState | None,
    ) -> bool:
        """Answer the client by the request, which may take its time; False to put the question once more."""
        if row is None and not pending_call.binding.is_read:
            if TASKS in get_stateless_client_extensions(pending_call.exchange):
                await self.answer_with_call_task(pending_call, approval)
                return True
            if (
                pending_call.exchange.message.is_stateless
                and can_client_open_urls(pending_call.exchange)
                and state is None
            ):
                await self.answer_input_required(pending_call, approval, 0, with_address=True)
                return True
        if row is None:
            row = await self.wait_for_call_verdict(pending_call, approval)
            if row is None:
                await self.answer_undecided_call(pending_call, approval, state)
                return True
        return await self.try_apply_pending_verdict(pending_call, row)

    async def try_apply_pending_verdict(self, pending_call: PendingCall, row: PermissionRequest) -> bool:
        now = timezone.now()
        current_request_state = rules.current_request_state(row, now)
        context = rules.request_context(row)
        if current_request_state.allowed:
            refusal = await self._threads.run_in_thread(
                gateway_calls.begin_approved_call_or_return_ruling,
                pending_call.call_attempt_details,
                row.request_id,
                now=now,
            )
            if refusal is None:
                pending_call.record.decided_by = f"approved by {row.approved_by or 'somebody'}"
                if pending_call.send_read is not None:
                    await pending_call.send_read()
                else:
                    await self._runner.run_approved_call_and_answer(
                        pending_call.exchange, pending_call.record, pending_call.binding
                    )
                return True
            if refusal.decision == DENY:
                await self.deny_pending_call(pending_call, refusal)
                return True
            return await self.try_deny_rejudged_call(pending_call, refusal)
        if row.status == PermissionRequest.Status.DENIED:
            self.require_connected_or_end_record(pending_call)
            await self._threads.run_in_thread(
                gateway_calls.consume_call_denial, pending_call.call_attempt_details, row.request_id, now=now
            )
            pending_call.record.decided_by = f"denied by {row.approved_by or 'somebody'}"
            reason = context.reason if context else None
            await self.end_call_with_message(
                pending_call, "denied", answers.describe_person_denial(pending_call.binding.tool, reason)
            )
            return True
        undecided_call_text = answers.describe_call_closed_undecided(
            pending_call.binding.tool, current_request_state.word
        )
        await self.end_call_with_message(pending_call, "held", undecided_call_text)
        return True

    async def try_deny_rejudged_call(self, pending_call: PendingCall, refusal: Ruling) -> bool:
        """Have what counts by now in place of what was asked: the next question is about that."""
        fresh = await self._runner.renew_binding_ruling_or_none(pending_call.exchange, pending_call.binding)
        if fresh is None:
            denial = replace(refusal, decision=DENY)
            await self._threads.run_in_thread(
                gateway_calls.audit_call_denial,
                pending_call.binding,
                denial,
                pending_call.origin,
                now=timezone.now(),
            )
            await self.deny_pending_call(pending_call, denial)
            return True
        pending_call.binding, pending_call.ruling = fresh
        if pending_call.record.goes_on and await self._threads.run_in_thread(
            gateway_calls.is_call_id_taken, pending_call.record.call_id
        ):
            self._records.restart_record_as_separate_call(
                pending_call.record, gateway_calls.new_gateway_call_id()
            )
            pending_call.origin = replace(
                pending_call.origin,
                event_id=await self._records.write_call_begin_returning_id(pending_call.record),
            )
        return False

    async def deny_pending_call(self, pending_call: PendingCall, denial: Ruling) -> None:
        """Send the client the reason for which the call is denied now."""
        policy_denial_text = answers.describe_policy_denial(
            pending_call.binding.server_id,
            pending_call.binding.tool,
            denial.reason,
            gateway_calls.policy_page_url(denial),
        )
        await self.end_call_with_message(pending_call, "denied", policy_denial_text)

    async def wait_for_call_verdict(
        self, pending_call: PendingCall, approval: PendingApproval
    ) -> PermissionRequest | None:
        """Wait for a person; None where the client's patience ends first.

        Raises ClientDisconnected where the client leaves.
        """
        started_at = time.perf_counter()
        try:
            return await self.wait_while_sending_progress(
                pending_call,
                functools.partial(
                    find_request_if_decided,
                    approval.request_id,
                    pending_call.record.call_id if pending_call.is_stored else None,
                ),
                f"permission_requests:{approval.pk}",
                max_client_wait_seconds(pending_call.exchange),
                f"Waits for approval: {approval.link}",
            )
        finally:
            pending_call.record.waited += time.perf_counter() - started_at

    async def wait_while_sending_progress(
        self, pending_call: PendingCall, check: Callable[[], T | None], topic: str, patience: float, text: str
    ) -> T | None:
        exchange = pending_call.exchange
        if exchange.accepts_event_stream:
            await exchange.line.open_event_stream()
        with self.keep_alive.send_keep_alives_during_block(exchange, text):
            waited = await self._waits.wait_until(
                check,
                topics=[topic, f"gateway_calls:{pending_call.record.call_id}"],
                timeout=patience,
                still_allowed=exchange.admission.require_still_allowed,
                disconnect=exchange.disconnect,
            )
        if waited is None:
            self.require_connected_or_end_record(pending_call)
        await exchange.admission.require_still_allowed()
        return waited

    async def answer_undecided_call(
        self, pending_call: PendingCall, approval: PendingApproval, state: WaitState | None
    ) -> None:
        if state is not None and state.round + 1 < MOST_ROUNDS:
            await self.answer_input_required(pending_call, approval, state.round + 1, with_address=False)
        else:
            await self.end_call_with_retry_message(pending_call, approval)

    async def end_call_with_retry_message(self, pending_call: PendingCall, approval: PendingApproval) -> None:
        closing_reason = "The agent was told to call again."
        await self._threads.run_in_thread(
            approvals.mark_request_deferred_or_none,
            approval.request_id,
            actor=pending_call.binding.by,
            reason=closing_reason,
            now=timezone.now(),
        )
        is_read = pending_call.binding.is_read
        describe = answers.describe_waiting_non_tool_request if is_read else answers.describe_waiting_call
        await self.end_call_with_message(
            pending_call, "held", describe(pending_call.binding.tool, approval.link)
        )

    async def answer_input_required(
        self, pending_call: PendingCall, approval: PendingApproval, round_: int, *, with_address: bool
    ) -> None:
        """Answer that a person has to decide, at the card's address; the client tries again when they have seen it."""
        closing_reason = "The agent's client was given the card's address."
        if with_address:
            await self._threads.run_in_thread(
                approvals.mark_request_deferred_or_none,
                approval.request_id,
                actor=pending_call.binding.by,
                reason=closing_reason,
                now=timezone.now(),
            )
        until = time.time() + pending_call_lifetime().total_seconds()
        state = WaitState(
            pending_call.record.call_id,
            approval.request_id,
            pending_call.binding.approval_question_digest,
            until,
            round_,
        )
        result: dict[str, Any] = {"resultType": "input_required", "requestState": seal_call_state(state)}
        if with_address:
            binding = pending_call.binding
            approval_text = f"{binding.tool} of {binding.server_id} needs a person's approval in Signalbox."
            elicitation_params = {"mode": "url", "message": approval_text, "url": approval.link}
            result["inputRequests"] = {
                "approval": {"method": "elicitation/create", "params": elicitation_params}
            }
        self._records.release_record_without_ending_call(pending_call.record)
        await pending_call.exchange.line.send_answer(
            answers.encode_result_response(pending_call.exchange.message.id, result)
        )

    async def answer_with_call_task(self, pending_call: PendingCall, approval: PendingApproval) -> None:
        """Answer with a task, which is stored in the database before the client receives it."""
        call = await self._threads.run_in_thread(
            gateway_calls.create_call_task,
            pending_call.call_attempt_details,
            approval.request_id,
            running.encode_task_request_for_storage(pending_call.exchange),
            now=timezone.now(),
        )
        await self._threads.run_in_thread(
            approvals.mark_request_deferred_or_none,
            approval.request_id,
            actor=pending_call.binding.by,
            reason="The agent's client polls for the verdict.",
            now=timezone.now(),
        )
        self._records.release_record_without_ending_call(pending_call.record)
        value = {"resultType": "task", **running.task_as_client_json(call, approval.link)}
        await pending_call.exchange.line.send_answer(
            answers.encode_result_response(pending_call.exchange.message.id, value)
        )

    async def end_call_with_message(self, pending_call: PendingCall, outcome: str, text: str) -> None:
        response = answers.encode_refusal_response(pending_call.exchange.message, text)
        self._records.end_call_record(pending_call.record, outcome, response)
        await pending_call.exchange.line.send_answer(response)

    async def refuse_without_ending_call(self, pending_call: PendingCall, text: str) -> None:
        """Say something that ends no call which goes on elsewhere."""
        response = answers.encode_refusal_response(pending_call.exchange.message, text)
        self._records.record_refused_retry(pending_call.record, response)
        await pending_call.exchange.line.send_answer(response)

    async def continue_call_awaiting_input(self, pending_call: PendingCall, state: ContinuationState) -> None:
        """Let an approved call go on whose server asked for more, once for each of its questions."""
        refusal = await self._threads.run_in_thread(
            gateway_calls.resume_call_or_return_denial,
            pending_call.call_attempt_details,
            state.round,
            now=timezone.now(),
        )
        if refusal is None:
            await self._runner.resend_call_after_server_question(
                pending_call.exchange, pending_call.record, pending_call.binding, state
            )
        elif refusal.decision == DENY:
            await self.deny_pending_call(pending_call, refusal)
        else:
            await self.refuse_without_ending_call(
                pending_call, answers.describe_stopped_call(pending_call.binding.tool, refusal.reason)
            )


def find_request_if_decided(request_id: str, stored_call_id: str | None) -> PermissionRequest | None:
    if stored_call_id is not None:
        gateway_calls.raise_if_call_cancelled(stored_call_id)
    row = rules.require_permission_request(request_id)
    return None if rules.current_request_state(row, timezone.now()).waiting else row


def find_ended_call_marking_lost(call_id: str, binding: CallBinding) -> GatewayCall | None:
    now = timezone.now()
    call = gateway_calls.reload_call_marking_lost(
        GatewayCall.objects.get(pk=call_id), binding=binding, now=now
    )
    return None if call.state == CallState.RUNNING else call


def is_result_delivered_or_none(call_id: str) -> bool | None:
    return GatewayCall.objects.filter(pk=call_id, delivered_at__isnull=False).exists() or None


def get_stateless_client_extensions(exchange: Exchange) -> dict[str, Any]:
    extensions = exchange.message.stateless_client_capabilities.get("extensions")
    return extensions if exchange.message.is_stateless and isinstance(extensions, dict) else {}


def format_start_time(at: Any) -> str:
    return instants.format_canonical_instant(at) if isinstance(at, datetime) else "an unknown time"
