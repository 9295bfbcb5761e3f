"""Requests other than tool calls: which are forwarded, how policy decides them and how timelines record them.

Where policy asks, a person is asked as about a call, and the request waits on its client's line. Only lists and
subscriptions are refused then. Requests that name what a server has, and those about tasks, come often: of each a
timeline shows one a minute for each session.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

from django.utils import timezone

from coordinator.actions.mcp import gateway_calls
from coordinator.actions.mcp.gateway_calls import CallOrigin
from coordinator.client import mcp_methods
from coordinator.client.mcp_methods import RequestUse
from coordinator.edge.gateway.approved_calls import ANSWERED_ON_OTHER_STREAM, classify_response_ok_or_error
from coordinator.edge.gateway.audited_refusals import RefusalAudit
from coordinator.edge.gateway.call_limiter import CallLimiter
from coordinator.edge.gateway.calls import ToolCallHandler
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.pending_calls import PendingCall, PendingCalls
from coordinator.edge.gateway.records import CallRecord, CallRecords
from coordinator.edge.gateway.relay import MessageRelay, RequestStoppedByBrake
from coordinator.edge.gateway.server_requests import NOT_ASKABLE
from coordinator.edge.gateway.server_tasks import ServerTasks
from coordinator.edge.gateway.tasks import build_missing_capability_response, has_tasks_capability
from coordinator.errors import Forbidden, SignalboxError
from coordinator.lib.expiring_cache import ExpiringCache
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway.binding import (
    CallBinding,
    hash_raw_call_arguments,
    hash_ruling_as_policy_version,
)
from coordinator.mcp.protocol.http_client import UpstreamFailed
from coordinator.mcp.protocol.messages import DENIED, INVALID_PARAMS, METHOD_NOT_FOUND
from coordinator.policy.rules.tool_rules import ASK, DENY, Ruling

log = logging.getLogger(__name__)

RECORDED_EVERY = 60.0  # seconds, for requests that come often
MOST_RECORDED = 20_000
LIMITED = frozenset(
    {"resources/read", "prompts/get", "completion/complete"}
)  # which a server's limits hold for, too
UNKNOWN_METHOD = "(unknown method)"
# About which a person is asked where policy asks. Each has one answer; lists and subscriptions have not.
ASKABLE = frozenset(
    {
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
    }
)


class ReadRequestHandler:
    """One a process."""

    def __init__(
        self,
        calls: ToolCallHandler,
        relaying: MessageRelay,
        records: CallRecords,
        refusals: RefusalAudit,
        tasks: ServerTasks,
        *,
        limiter: CallLimiter,
        holding: PendingCalls,
        threads: EdgeThreads,
    ) -> None:
        self._holding = holding
        self._threads = threads
        self._limiter = limiter
        self._calls = calls
        self._tasks = tasks
        self._relaying = relaying
        self._records = records
        self._refusals = refusals
        self._recorded: ExpiringCache[tuple[str, str, str], bool] = ExpiringCache(
            RECORDED_EVERY, MOST_RECORDED
        )

    async def answer_non_tool_request(self, exchange: Exchange, use: RequestUse) -> None:
        """Judge a request that lists or reads, pass it on where it is allowed, and record it."""
        method, params = exchange.message.method, params_without_meta(exchange)
        session_id = await self._records.get_or_create_timeline_session_id(exchange)
        ruling, _ = await self._calls.decide_call(exchange, method, params, session_id, is_read=True)
        needs_approval = ruling.decision == ASK and use is RequestUse.READ
        is_refused = ruling.decision == DENY or (needs_approval and method not in ASKABLE)
        if (
            not is_refused
            and use is not RequestUse.READ
            and self.check_and_set_recently_recorded(session_id, exchange)
        ):
            await self._relaying.relay_request_unless_braked(exchange, None)
            return
        record = self._records.begin_non_tool_request_record(exchange, session_id, method, params)
        record.decided_by = f"{ruling.decision} ({ruling.by})" if ruling.by else ""
        try:
            if is_refused:
                await self.refuse_non_tool_request(exchange, record, ruling)
            elif needs_approval:
                await self.await_request_approval_and_answer(exchange, record, ruling)
            else:
                await self.forward_non_tool_request(exchange, record)
        except (SignalboxError, UpstreamFailed) as problem:
            refusal_text = (
                str(problem.detail) if isinstance(problem, SignalboxError) else f"The server {problem}."
            )
            self.end_call_record_if_open(record, "failed", None, refusal_text)
            raise
        finally:
            self.end_call_record_if_open(record, "failed", None, "The client went away.")

    async def forward_own_task_request(self, exchange: Exchange) -> None:
        """Forward a request about a server's own task from the caller that began it; record one a minute and session.

        Raises Busy.
        """
        session_id = await self._records.get_or_create_timeline_session_id(exchange)
        if not await self._tasks.is_own_task(exchange):
            await self.send_foreign_task_refusal(exchange, session_id)
            return
        if not self.check_and_set_recently_recorded(session_id, exchange):
            record = self._records.begin_non_tool_request_record(
                exchange, session_id, exchange.message.method, params_without_meta(exchange)
            )
            self._records.end_call_record(record, "ok", None)
        await self._relaying.relay_request_unless_braked(
            exchange, self._limiter.inspect_and_limit_task_response
        )

    async def send_foreign_task_refusal(self, exchange: Exchange, session_id: str) -> None:
        refusal_text = (
            f"{exchange.message.method} was not sent to the server {exchange.server.name}: "
            "no call of yours in this session began this task."
        )
        response, status = (
            answers.encode_error_response(exchange.message.id, INVALID_PARAMS, refusal_text),
            200,
        )
        if (
            exchange.message.is_stateless and exchange.message.method == "tasks/result"
        ):  # which 2026-07-28 has no more
            response, status = (
                answers.encode_error_response(exchange.message.id, METHOD_NOT_FOUND, refusal_text),
                404,
            )
        elif exchange.message.is_stateless and not has_tasks_capability(exchange.message):
            response, status = build_missing_capability_response(exchange.message), 400
        await self.audit_non_tool_refusal(exchange, refusal_text)
        record = self._records.begin_non_tool_request_record(
            exchange, session_id, exchange.message.method, params_without_meta(exchange)
        )
        self._records.end_call_record(record, "denied", response)
        await exchange.line.send_answer(response, status)

    async def refuse_unknown_method(self, exchange: Exchange) -> None:
        """Refuse a request, or drop a notification, whose method does not pass; recorded and audited."""
        method = exchange.message.method
        refusal_text = f"The method {method[:100]!r} does not pass Signalbox's gateway."
        response = answers.encode_error_response(exchange.message.id, METHOD_NOT_FOUND, refusal_text)
        await self.audit_non_tool_refusal(exchange, refusal_text)
        session_id = await self._records.get_or_create_timeline_session_id(exchange)
        record = self._records.begin_non_tool_request_record(
            exchange, session_id, UNKNOWN_METHOD, {"method": method[:200]}
        )
        self._records.end_call_record(record, "denied", response)
        if exchange.message.is_request:
            await exchange.line.send_answer(response, 404 if exchange.message.is_stateless else 200)
        else:
            await exchange.line.send_status_without_body(202)

    async def forward_non_tool_request(self, exchange: Exchange, record: CallRecord) -> bool:
        """Send a request and answer its client; return False where a brake stopped it before it was sent."""
        try:
            change = (
                self._tasks.restrict_task_response_to_caller
                if exchange.message.method == "tasks/list"
                else None
            )
            if exchange.message.method in LIMITED:
                await self._limiter.enforce_rates_and_circuit_breaker(exchange)
                change = self._limiter.inspect_and_limit_other_response
                exchange.record = record
            send = functools.partial(self._relaying.forward_request_and_answer, exchange, change)
            with record.record_server_time_during_block(exchange):
                response = await self._limiter.run_with_circuit_breaker(exchange, send)
        except RequestStoppedByBrake as stopped:
            record.decided_by = f"brake {stopped.brake.id}"
            response = await self._relaying.audit_and_send_brake_refusal(exchange, stopped)
            self.end_call_record_if_open(record, "denied", response)
            return False
        if response is None:
            self.end_call_record_if_open(record, "ok", None, ANSWERED_ON_OTHER_STREAM)
        else:
            self.end_call_record_if_open(record, classify_response_ok_or_error(response), response)
        return True

    async def await_request_approval_and_answer(
        self, exchange: Exchange, record: CallRecord, ruling: Ruling
    ) -> None:
        """Have a person decide about a request, and send it once it is approved."""
        origin = CallOrigin(
            record.session_id,
            exchange.client.session_id if exchange.client else None,
            event_id=await self._records.write_call_begin_returning_id(record),
            client=exchange.client_name,
        )
        pending_call = PendingCall(
            exchange,
            build_non_tool_approval_binding(exchange, ruling),
            ruling,
            origin,
            record,
            send_read=functools.partial(self.forward_approved_non_tool_request, exchange, record),
        )
        await self._holding.await_decision_and_answer_call(pending_call)

    async def forward_approved_non_tool_request(self, exchange: Exchange, record: CallRecord) -> None:
        """Send a request whose approval was taken. One that did not reach its server gives the approval back."""
        settle: Callable[..., None] = gateway_calls.mark_call_answered_by_server
        try:
            if not await self.forward_non_tool_request(exchange, record):
                settle = gateway_calls.undo_call_start
        except UpstreamFailed as problem:
            if not problem.may_have_run:
                settle = gateway_calls.undo_call_start
            raise
        finally:
            await self._threads.run_in_thread(functools.partial(settle, record.call_id, now=timezone.now()))

    async def refuse_non_tool_request(self, exchange: Exchange, record: CallRecord, ruling: Ruling) -> None:
        """Answer with why a request does not pass: a list with nothing in it, else an error."""
        method = exchange.message.method
        refusal_message = describe_non_tool_refusal(exchange, method, ruling)
        response = answers.encode_error_response(exchange.message.id, DENIED, refusal_message)
        self.end_call_record_if_open(record, "denied", response)
        await self.audit_non_tool_refusal(exchange, refusal_message)
        if method in mcp_methods.LISTS:
            value: dict[str, Any] = {mcp_methods.LISTS[method]: []}
            if exchange.message.is_stateless:
                value |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            response = answers.encode_result_response(exchange.message.id, value)
        await exchange.line.send_answer(response)

    async def audit_non_tool_refusal(self, exchange: Exchange, text: str) -> None:
        await self._refusals.audit_access_refusal_with_throttle(
            exchange.admission, exchange.agent_id, exchange.server.name, Forbidden(text), is_known_server=True
        )

    def check_and_set_recently_recorded(self, session_id: str, exchange: Exchange) -> bool:
        """Note that a request that comes often is recorded now; True where it was within the last minute."""
        slot, now = (
            (session_id, exchange.server.name, exchange.message.method),
            asyncio.get_running_loop().time(),
        )
        if self._recorded.get(slot, now):
            return True
        self._recorded.put(slot, True, now)
        return False

    def end_call_record_if_open(
        self, record: CallRecord, outcome: str, response: bytes | None, error: str | None = None
    ) -> None:
        if not record.is_over:
            self._records.end_call_record(record, outcome, response, error)


def describe_non_tool_refusal(exchange: Exchange, method: str, ruling: Ruling) -> str:
    """Return the words for a request other than a call that policy denies, or would ask about."""
    reason = f"{ruling.reason.rstrip('.')}."
    if ruling.decision == ASK:
        reason = f"{reason} {NOT_ASKABLE}"
    return (
        f"Denied: {method} was not sent to the server {exchange.server.name}. {reason} Do not work around it. "
        f"A person can allow the server at {gateway_calls.policy_page_url(ruling)}; tell them what you need it for."
    )


def build_non_tool_approval_binding(exchange: Exchange, ruling: Ruling) -> CallBinding:
    """Return what an approval of a request is bound to: the bytes of its params without what is about the client."""
    return CallBinding(
        exchange.caller_key.caller_actor,
        exchange.caller_key.id,
        exchange.agent_id,
        exchange.server.name,
        exchange.message.method,
        params_without_meta(exchange),
        hash_raw_call_arguments(exchange.message.raw_params_without_meta),
        "",
        hash_ruling_as_policy_version(ruling),
        is_read=True,
    )


def params_without_meta(exchange: Exchange) -> dict[str, Any]:
    return {name: value for name, value in exchange.message.params.items() if name != "_meta"}
