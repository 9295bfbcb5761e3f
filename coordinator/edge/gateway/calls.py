"""Handling of `tools/call`: a call is judged when it arrives, then forwarded, refused or held for a person."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from dataclasses import replace
from typing import Any

from django.db import InterfaceError, OperationalError
from django.utils import timezone

from coordinator.actions.mcp import gateway_calls
from coordinator.actions.mcp.gateway_calls import CallAttempt, CallOrigin, QuestionOutcome
from coordinator.edge.gateway.approved_calls import (
    ANSWERED_ON_OTHER_STREAM,
    classify_response_ok_or_error,
    restore_server_state_in_call,
)
from coordinator.edge.gateway.exchange import Exchange, find_parameter_header_mismatch
from coordinator.edge.gateway.freshness import FreshnessCheck
from coordinator.edge.gateway.listings import AgentToolListings
from coordinator.edge.gateway.pending_calls import PendingCall, PendingCalls
from coordinator.edge.gateway.records import CallRecord, CallRecords
from coordinator.edge.gateway.upstream_calls import UpstreamSender
from coordinator.edge.gateway.upstreams import UnfinishedStream, send_final_response_to_client
from coordinator.edge.hooks.notes import PendingNotes
from coordinator.edge.http.bodies import SLOW_TO_DECODE
from coordinator.edge.http.messages import ClientDisconnected, build_database_unavailable_error
from coordinator.edge.policy.policy_cache import PolicyCache
from coordinator.edge.policy.rulings import PolicyRulings, build_brake_ruling
from coordinator.errors import SignalboxError
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway.binding import (
    CallBinding,
    hash_raw_call_arguments,
    hash_ruling_as_policy_version,
)
from coordinator.mcp.gateway.states import PREFIX, ContinuationState, WaitState, unseal_call_state_or_none
from coordinator.mcp.protocol import messages
from coordinator.mcp.protocol.http_client import LOOK_HOLDS, UpstreamFailed
from coordinator.mcp.protocol.messages import HEADER_MISMATCH, INVALID_PARAMS
from coordinator.policy.grants.access import Verdict
from coordinator.policy.requests.approvals import request_context
from coordinator.policy.rules import history_queries
from coordinator.policy.rules.tool_rules import ASK, DENY, Ruling, stricter_ruling

log = logging.getLogger(__name__)

ANOTHER = "The call differs from the earlier one, or the policy changed. Call it again."
CHANGED = "The policy changed while the call was on its way. Call it again."
REFUSED = frozenset({400, 404})  # as servers answer what they cannot take, and methods that they do not have


class CallNoLongerAllowed(Exception):
    """An allowed call does not go on after all."""

    def __init__(self, ruling: Ruling) -> None:
        super().__init__(ruling.reason)
        self.ruling = ruling


class ToolCallHandler:
    """Calls of tools. One a process."""

    def __init__(
        self,
        *,
        rulings: PolicyRulings,
        policies: PolicyCache,
        listings: AgentToolListings,
        holding: PendingCalls,
        records: CallRecords,
        sending: UpstreamSender,
        instant: FreshnessCheck,
        threads: EdgeThreads,
        notes: PendingNotes,
    ) -> None:
        self._notes = notes
        self._rulings = rulings
        self._policies = policies
        self._listings = listings
        self._holding = holding
        self._records = records
        self._sending = sending
        self._instant = instant
        self._threads = threads

    async def handle_tool_call(self, exchange: Exchange) -> None:
        """Answer one call. A refusal that it raises says whether a server may have received the call."""
        try:
            await self.answer_tool_call(exchange)
        except SignalboxError as problem:
            problem.not_sent = not exchange.is_sent
            raise
        except (InterfaceError, OperationalError) as problem:
            log.warning("A call of %s met no database: %s", exchange.server.name, str(problem).strip())
            refusal = build_database_unavailable_error()
            refusal.not_sent = not exchange.is_sent
            raise refusal from None

    async def answer_tool_call(self, exchange: Exchange) -> None:
        tool, arguments = exchange.message.params.get("name"), exchange.message.params.get("arguments")
        if not isinstance(tool, str) or not isinstance(arguments, dict | None):
            refusal_text = "A call must name its tool, and its arguments must be an object."
            await exchange.line.send_answer(
                answers.encode_error_response(exchange.message.id, INVALID_PARAMS, refusal_text), 200
            )
            return
        if tool not in exchange.server.tools or exchange.server.tools[tool].is_gone:
            await self._listings.refresh_exchange_tools_if_unknown(exchange, tool)
        if (mismatch := find_parameter_header_mismatch(exchange)) is not None:
            await exchange.line.send_answer(
                answers.encode_error_response(exchange.message.id, HEADER_MISMATCH, mismatch), 400
            )
            return
        session_id = await self._records.get_or_create_timeline_session_id(
            exchange
        )  # it may have to be written, which takes a moment
        ruling, verdict = await self.decide_call(exchange, tool, arguments, session_id)
        state = unseal_call_state_or_none(exchange.message.params.get("requestState"))
        record = await self.begin_or_resume_call_record(exchange, tool, session_id, ruling, state)
        record.decided_by = f"{ruling.decision} ({ruling.by})" if ruling.by else ""
        exchange.record = record
        try:
            await self.apply_ruling_to_tool_call(exchange, record, ruling, verdict, state)
        except (SignalboxError, InterfaceError, OperationalError) as problem:
            if not record.is_over:
                self._records.end_call_record(record, "failed", None, describe_call_refusal(problem))
            raise

    async def begin_or_resume_call_record(
        self,
        exchange: Exchange,
        tool: str,
        session_id: str,
        ruling: Ruling,
        state: WaitState | ContinuationState | None,
    ) -> CallRecord:
        """Return the record of a call: that of its earlier try, where the client's state is of this very call."""
        arguments = exchange.message.params.get("arguments")
        if state is not None:
            binding = build_call_approval_binding(exchange, tool, arguments, ruling)
            if await self._threads.run_in_thread(gateway_calls.is_call_state_current, binding, state):
                return self._records.resume_call_record(exchange, state.call_id, session_id, tool)
        return self._records.create_record_and_schedule_write(
            exchange, gateway_calls.new_gateway_call_id(), session_id, tool, arguments
        )

    async def apply_ruling_to_tool_call(
        self,
        exchange: Exchange,
        record: CallRecord,
        ruling: Ruling,
        verdict: Verdict,
        state: WaitState | ContinuationState | None,
    ) -> None:
        """Do with a call what was ruled."""
        if ruling.decision == DENY:
            await self.deny_tool_call(exchange, record, ruling, verdict)
        elif ruling.decision == ASK or isinstance(state, ContinuationState):
            await self.await_tool_approval_and_answer(exchange, record, ruling, state)
        elif state is not None:
            await self.withdraw_request_and_forward_call(exchange, record, ruling, verdict, state)
        elif str(exchange.message.params.get("requestState", "")).startswith(PREFIX):
            await self.end_tool_call_with_message(
                exchange, record, "held", "The wait for this call has ended. Call it again."
            )
        else:
            await self.forward_allowed_call(exchange, record, verdict)

    async def decide_call(
        self,
        exchange: Exchange,
        name: str,
        arguments: Any,
        session_id: str,
        *,
        is_read: bool = False,
        call_id: str | None = None,
    ) -> tuple[Ruling, Verdict]:
        """Return the strictest of what rules, grants and budgets say now of a call in this session.

        `name` is the tool's; that of the method where it `is_read`, a request other than a call. `call_id` is
        that of the call in its session, where it is recorded already.

        Raises Busy where the grants cannot be read, Unauthorized and Forbidden where the key is no good any more.
        """
        is_policy_current = await self.refresh_brake_and_policy_freshness(exchange)
        rules = await self._rulings.get_rules_if_current() if is_policy_current else None
        if rules is None or self._rulings.has_call_blocking_budgets:
            exchange.caller = replace(exchange.caller, session_id=session_id)
        if not is_policy_current:
            await exchange.admission.require_key_valid_in_database()
            self._listings.invalidate_server_and_grants_cache(exchange.server.name)
        exchange.server = await self._listings.find_current_server(
            exchange
        )  # it may be another one than when the request came
        now = timezone.now()
        moment = None
        if not is_read:
            moment = deciding.build_timed_gateway_call(
                exchange.server.name,
                name,
                arguments,
                session_id=session_id,
                call_id=call_id or exchange.claim.call_id or None,
                now=now,
            )
            if moment.call_id is None and self._records.is_session_reported_by_hooks(session_id):
                moment = replace(moment, is_recorded=True)  # its hook reported the call before
        if rules is None:
            read = functools.partial(deciding.load_ruling_and_access_verdict, is_read=is_read, moment=moment)
            return await self._threads.run_in_thread(
                read, exchange.server, name, exchange.caller, arguments, now
            )
        pair = exchange.agent_id, exchange.server.name
        policy = (await self._policies.load_policies({pair}))[pair]
        verdict = policy.decide_tool_access(
            exchange.agent_id, exchange.server.name, "" if is_read else name, now
        )
        if moment is not None and (
            needs := deciding.gateway_call_history_needs(
                rules, exchange.server, name, exchange.caller, arguments
            )
        ):
            history = await self._threads.run_in_thread(
                history_queries.evaluate_history_conditions, needs, moment
            )
            exchange.caller = replace(exchange.caller, history=history)
        judge = functools.partial(
            deciding.judge_non_tool_gateway_request if is_read else deciding.judge_by_rules_and_grants,
            rules, verdict, exchange.server, name, caller=exchange.caller, arguments=arguments,
        )  # fmt: skip
        is_large = len(exchange.message.raw) >= SLOW_TO_DECODE
        ruling = await self._threads.run_in_thread(judge) if is_large else judge()
        if exchange.caller.session_id is not None:
            ruling = stricter_ruling(
                ruling,
                await self._rulings.judge_session_budgets([exchange.agent_id], exchange.caller.session_id),
            )
        return ruling, verdict

    async def refresh_brake_and_policy_freshness(self, exchange: Exchange) -> bool:
        """Note which brake is on for the agent; return whether this process knows of every edit of the policy."""
        is_policy_current, exchange.brake = await self._instant.get_policy_freshness_and_brake(
            exchange.agent_names_for_brakes
        )
        exchange.looked_at = time.monotonic()
        return is_policy_current

    async def deny_tool_call(
        self, exchange: Exchange, record: CallRecord, ruling: Ruling, verdict: Verdict
    ) -> None:
        denial_text = await self.audit_denial_and_build_text(exchange, record, ruling)
        about = {"decision": "deny", "by": ruling.by, "reason": ruling.reason, "source": verdict.source}
        response = answers.encode_tool_error_response(exchange.message, denial_text, about)
        self._records.end_call_record(record, "denied", response)
        await exchange.line.send_answer(response)

    async def audit_denial_and_build_text(
        self, exchange: Exchange, record: CallRecord, ruling: Ruling
    ) -> str:
        """Have a denial audited; return the words for the model."""
        origin = CallOrigin(record.session_id, exchange.client.session_id if exchange.client else None)
        binding = build_approval_binding_from_record(exchange, record, ruling)
        await self._records.run_in_event_writer_transaction(
            functools.partial(gateway_calls.audit_call_denial, binding, ruling, origin, now=timezone.now())
        )
        return answers.describe_policy_denial(
            exchange.server.name, record.tool, ruling.reason, gateway_calls.policy_page_url(ruling)
        )

    async def await_tool_approval_and_answer(
        self,
        exchange: Exchange,
        record: CallRecord,
        ruling: Ruling,
        state: WaitState | ContinuationState | None,
    ) -> None:
        binding = build_approval_binding_from_record(exchange, record, ruling)
        origin = CallOrigin(
            record.session_id,
            exchange.client.session_id if exchange.client else None,
            client=exchange.client_name,
            sent_along=exchange.message.call_metadata_for_review,
        )
        if state is not None and state.key != binding.approval_question_digest and ruling.decision == ASK:
            await self.end_tool_call_with_message(exchange, record, "held", ANOTHER)
            return
        if not record.goes_on:
            origin = replace(origin, event_id=await self._records.write_call_begin_returning_id(record))
        pending_call = PendingCall(exchange, binding, ruling, origin, record)
        if isinstance(state, ContinuationState):
            await self._holding.continue_call_awaiting_input(pending_call, state)
        else:
            await self._holding.await_decision_and_answer_call(pending_call, state)

    async def withdraw_request_and_forward_call(
        self, exchange: Exchange, record: CallRecord, ruling: Ruling, verdict: Verdict, state: WaitState
    ) -> None:
        """Pass a call on about which a person was asked and nobody need be asked by now; close that question."""
        origin = CallOrigin(record.session_id, exchange.client.session_id if exchange.client else None)
        attempt = CallAttempt(
            record.call_id,
            build_approval_binding_from_record(exchange, record, ruling),
            exchange.caller,
            origin,
        )
        settled, request = await self._threads.run_in_thread(
            gateway_calls.close_request_allowed_by_policy,
            attempt,
            state.request_id,
            state.key,
            now=timezone.now(),
        )
        if settled is QuestionOutcome.ANOTHER:
            await self.end_tool_call_with_message(exchange, record, "held", ANOTHER)
            return
        if settled is QuestionOutcome.DENIED:
            context = request_context(request)
            record.decided_by = f"denied by {request.approved_by or 'somebody'}"
            person_denial_text = answers.describe_person_denial(
                record.tool, context.reason if context else None
            )
            await self.end_tool_call_with_message(exchange, record, "denied", person_denial_text)
            return
        if settled is QuestionOutcome.OVER and record.goes_on:
            self._records.restart_record_as_separate_call(record, gateway_calls.new_gateway_call_id())
        exchange.message = messages.parse_mcp_message(restore_server_state_in_call(exchange.message, None))
        await self.forward_allowed_call(exchange, record, verdict)

    async def end_tool_call_with_message(
        self, exchange: Exchange, record: CallRecord, outcome: str, text: str
    ) -> None:
        response = answers.encode_tool_error_response(exchange.message, text)
        self._records.end_call_record(record, outcome, response)
        await exchange.line.send_answer(response)

    async def forward_allowed_call(self, exchange: Exchange, record: CallRecord, verdict: Verdict) -> None:
        """Pass an allowed call on, and its answer back; where the client leaves, the server is left, too."""
        try:
            if time.monotonic() - exchange.looked_at > LOOK_HOLDS:
                await self.require_call_still_allowed(exchange, record)
            elif exchange.brake is not None:
                raise CallNoLongerAllowed(build_brake_ruling(exchange.brake))
            await self.forward_until_disconnect(exchange, record)
        except CallNoLongerAllowed as stopped:
            ruling = stopped.ruling
            record.decided_by = ruling.by
            if exchange.brake is None:
                await self.deny_tool_call(exchange, record, ruling, verdict)
            else:
                await self.audit_denial_and_build_text(exchange, record, ruling)
                await self.end_tool_call_with_message(exchange, record, "denied", ruling.reason)

    async def require_call_still_allowed(self, exchange: Exchange, record: CallRecord) -> None:
        """Raise CallNoLongerAllowed where a brake, or a policy that changed meanwhile, stops an allowed call."""
        is_policy_current = await self.refresh_brake_and_policy_freshness(exchange)
        if is_policy_current and exchange.brake is None:
            return
        ruling, _ = await self.decide_call(
            exchange, record.tool, record.arguments, record.session_id, call_id=record.timeline_call_id
        )
        if exchange.brake is not None:
            raise CallNoLongerAllowed(build_brake_ruling(exchange.brake))
        if ruling.decision == DENY:
            raise CallNoLongerAllowed(ruling)
        if ruling.decision == ASK:
            raise CallNoLongerAllowed(replace(ruling, decision=DENY, reason=CHANGED))

    async def forward_until_disconnect(self, exchange: Exchange, record: CallRecord) -> None:
        if exchange.disconnect.happened:
            raise self.record_disconnect_and_build_exception(record)
        task = asyncio.current_task()
        assert task is not None
        with exchange.disconnect.watch_disconnect_during_block(task.cancel):
            try:
                await self.forward_call(exchange, record)
            except asyncio.CancelledError:
                if not exchange.disconnect.happened or task.uncancel():
                    raise
                raise self.record_disconnect_and_build_exception(record) from None

    def record_disconnect_and_build_exception(self, record: CallRecord) -> ClientDisconnected:
        self._records.end_call_record(record, "failed", None, "The client went away.")
        return ClientDisconnected()

    async def forward_call(self, exchange: Exchange, record: CallRecord) -> None:
        exchange.is_sent = True
        recheck = functools.partial(self.require_call_still_allowed, exchange, record)
        try:
            with record.record_server_time_during_block(exchange):
                response, event, status = await self._sending.send_call_or_use_cached_result(
                    exchange, exchange.message.raw, exchange.line, recheck
                )
        except UnfinishedStream:
            await exchange.line.end_event_stream()
            self._records.end_call_record(record, "ok", None, ANSWERED_ON_OTHER_STREAM)
            return
        except UpstreamFailed as problem:
            await self.report_unanswered_call(exchange, record, problem)
            return
        through = f"a result of {record.tool} of {exchange.server.name}"
        reported = response
        if exchange.takes_notes:
            reported, event = await self._notes.consume_notes_into_call_response(
                record.session_id, through, response, event
            )
        try:
            await send_final_response_to_client(
                exchange.line, reported, event, choose_forwarded_http_status(exchange, status)
            )
        except UpstreamFailed as problem:  # the client leaves too much unread
            await self.report_unanswered_call(exchange, record, problem)
            return
        self._records.end_call_record(record, classify_response_ok_or_error(response), response)

    async def report_unanswered_call(
        self, exchange: Exchange, record: CallRecord, problem: UpstreamFailed
    ) -> None:
        """Report to the client and its timeline that its call has no answer, and whether it may have run."""
        failure_text = (
            answers.describe_call_without_response if problem.may_have_run else answers.describe_call_not_sent
        )
        about = {"decision": "allow", "sent": problem.may_have_run}
        response = answers.encode_tool_error_response(
            exchange.message, failure_text(exchange.server.name, record.tool, str(problem)), about
        )
        self._records.end_call_record(record, "failed", response, f"The server {problem}.")
        await exchange.line.send_answer(response)


def describe_call_refusal(problem: Exception) -> str:
    """Return what a timeline says of a call that was refused on its way."""
    refusal = problem if isinstance(problem, SignalboxError) else build_database_unavailable_error()
    return str(refusal.detail)


def choose_forwarded_http_status(exchange: Exchange, status: int) -> int:
    """Return the HTTP status with which a server's answer is forwarded.

    A client may retry a call that was answered 502 to 504, so for most calls it is 200 whatever the server sent.
    Since 2026-07-28 a refused message has a status of its own, after which clients do not retry.
    """
    return status if exchange.message.is_stateless and status in REFUSED else 200


def build_approval_binding_from_record(exchange: Exchange, record: CallRecord, ruling: Ruling) -> CallBinding:
    """Return what an approval of the call is bound to."""
    return build_call_approval_binding(exchange, record.tool, record.arguments, ruling)


def build_call_approval_binding(exchange: Exchange, tool: str, arguments: Any, ruling: Ruling) -> CallBinding:
    known_tool = exchange.server.tools.get(tool)
    return CallBinding(
        exchange.caller_key.caller_actor,
        exchange.caller_key.id,
        exchange.agent_id,
        exchange.server.name,
        tool,
        arguments if isinstance(arguments, dict) else None,
        hash_raw_call_arguments(exchange.message.raw_arguments),
        known_tool.definition if known_tool else "",
        hash_ruling_as_policy_version(ruling),
    )
