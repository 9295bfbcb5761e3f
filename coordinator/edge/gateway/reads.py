"""Requests other than calls of tools: which of them pass, what policy says of them, and their place in a timeline.

Nobody is asked about one: where policy asks, it is refused, and a person can allow the server. Those that name what a
server has, and those about tasks, come often: of each a timeline shows one a minute for each session.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from coordinator.actions.mcp import gateway_calls
from coordinator.client import mcp_methods
from coordinator.client.mcp_methods import RequestUse
from coordinator.edge.gateway.approved_calls import HEARD_ELSEWHERE, classify_response
from coordinator.edge.gateway.audited_refusals import RefusalAudit
from coordinator.edge.gateway.calls import ToolCallHandler
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.records import CallRecord, CallRecords
from coordinator.edge.gateway.relay import MessageRelay, RequestStoppedByBrake
from coordinator.edge.gateway.server_tasks import ServerTasks
from coordinator.edge.gateway.tasks import build_missing_capability_error, has_tasks_capability
from coordinator.errors import Forbidden, SignalboxError
from coordinator.lib.expiring_cache import ExpiringCache
from coordinator.mcp.gateway import answers
from coordinator.mcp.protocol.http_client import UpstreamFailed
from coordinator.mcp.protocol.messages import DENIED, INVALID_PARAMS, METHOD_NOT_FOUND
from coordinator.policy.rules.tool_rules import ASK, DENY, Ruling

log = logging.getLogger(__name__)

RECORDED_EVERY = 60.0  # seconds, for requests that come often
MOST_RECORDED = 20_000
UNKNOWN_METHOD = "(unknown method)"
NOT_ASKED = "Signalbox asks people about calls of tools alone."


class ReadRequestHandler:
    """One a process."""

    def __init__(
        self,
        calls: ToolCallHandler,
        relaying: MessageRelay,
        records: CallRecords,
        refusals: RefusalAudit,
        tasks: ServerTasks,
    ) -> None:
        self._calls = calls
        self._tasks = tasks
        self._relaying = relaying
        self._records = records
        self._refusals = refusals
        self._recorded: ExpiringCache[tuple[str, str, str], bool] = ExpiringCache(
            RECORDED_EVERY, MOST_RECORDED
        )

    async def answer_read_request(self, x: Exchange, use: RequestUse) -> None:
        """Judge a request that lists or reads, pass it on where it is allowed, and record it."""
        method, params = x.message.method, strip_meta_params(x)
        session_id = await self._records.find_timeline_session(x)
        ruling, _ = await self._calls.decide_call(x, method, params, session_id, is_read=True)
        is_refused = ruling.decision == DENY or (ruling.decision == ASK and use is RequestUse.READ)
        if not is_refused and use is not RequestUse.READ and self.check_and_mark_recorded(session_id, x):
            await self._relaying.relay_request(x, None)
            return
        record = self._records.begin_read_record(x, session_id, method, params)
        record.decided_by = f"{ruling.decision} ({ruling.by})" if ruling.by else ""
        try:
            if is_refused:
                await self.refuse_read_request(x, record, ruling)
            else:
                await self.forward_read_request(x, record)
        except (SignalboxError, UpstreamFailed) as problem:
            refusal_text = (
                str(problem.detail) if isinstance(problem, SignalboxError) else f"The server {problem}."
            )
            self.end_open_record(record, "failed", None, refusal_text)
            raise
        finally:
            self.end_open_record(record, "failed", None, "The client went away.")

    async def answer_task_request(self, x: Exchange) -> None:
        """Pass on a request about a server's own task for whoever began it; recorded once a minute for each session.

        Raises Busy.
        """
        session_id = await self._records.find_timeline_session(x)
        if not await self._tasks.is_own_task(x):
            await self.refuse_foreign_task(x, session_id)
            return
        if not self.check_and_mark_recorded(session_id, x):
            record = self._records.begin_read_record(x, session_id, x.message.method, strip_meta_params(x))
            self._records.end_call_record(record, "ok", None)
        await self._relaying.relay_request(x, None)

    async def refuse_foreign_task(self, x: Exchange, session_id: str) -> None:
        refusal_text = (
            f"{x.message.method} was not sent to the server {x.server.name}: no call of yours in this session began "
            "this task."
        )
        response, status = answers.build_error_response(x.message.id, INVALID_PARAMS, refusal_text), 200
        if x.message.is_stateless and x.message.method == "tasks/result":  # which 2026-07-28 has no more
            response, status = answers.build_error_response(x.message.id, METHOD_NOT_FOUND, refusal_text), 404
        elif x.message.is_stateless and not has_tasks_capability(x.message):
            response, status = build_missing_capability_error(x.message), 400
        await self.audit_read_refusal(x, refusal_text)
        record = self._records.begin_read_record(x, session_id, x.message.method, strip_meta_params(x))
        self._records.end_call_record(record, "denied", response)
        await x.line.send_answer(response, status)

    async def refuse_unknown_method(self, x: Exchange) -> None:
        """Refuse a request, or drop a notification, whose method does not pass; recorded and audited."""
        method = x.message.method
        refusal_text = f"The method {method[:100]!r} does not pass Signalbox's gateway."
        response = answers.build_error_response(x.message.id, METHOD_NOT_FOUND, refusal_text)
        await self.audit_read_refusal(x, refusal_text)
        session_id = await self._records.find_timeline_session(x)
        record = self._records.begin_read_record(x, session_id, UNKNOWN_METHOD, {"method": method[:200]})
        self._records.end_call_record(record, "denied", response)
        if x.message.is_request:
            await x.line.send_answer(response, 404 if x.message.is_stateless else 200)
        else:
            await x.line.send_empty_answer(202)

    async def forward_read_request(self, x: Exchange, record: CallRecord) -> None:
        try:
            with record.measure_server_time(x):
                change = self._tasks.filter_own_tasks if x.message.method == "tasks/list" else None
                response = await self._relaying.forward_request(x, change)
        except RequestStoppedByBrake as stopped:
            record.decided_by = f"brake {stopped.brake.id}"
            response = await self._relaying.refuse_for_brake(x, stopped)
            self.end_open_record(record, "denied", response)
            return
        if response is None:
            self.end_open_record(record, "ok", None, HEARD_ELSEWHERE)
        else:
            self.end_open_record(record, classify_response(response), response)

    async def refuse_read_request(self, x: Exchange, record: CallRecord, ruling: Ruling) -> None:
        """Answer with why a request does not pass: a list with nothing in it, else an error."""
        method = x.message.method
        refusal_message = build_refusal_message(x, method, ruling)
        response = answers.build_error_response(x.message.id, DENIED, refusal_message)
        self.end_open_record(record, "denied", response)
        await self.audit_read_refusal(x, refusal_message)
        if method in mcp_methods.LISTS:
            value: dict[str, Any] = {mcp_methods.LISTS[method]: []}
            if x.message.is_stateless:
                value |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            response = answers.build_result_response(x.message.id, value)
        await x.line.send_answer(response)

    async def audit_read_refusal(self, x: Exchange, words: str) -> None:
        await self._refusals.audit_refusal(
            x.admission, x.agent_id, x.server.name, Forbidden(words), known=True
        )

    def check_and_mark_recorded(self, session_id: str, x: Exchange) -> bool:
        """Note that a request that comes often is recorded now; True where it was within the last minute."""
        slot, now = (session_id, x.server.name, x.message.method), asyncio.get_running_loop().time()
        if self._recorded.get(slot, now):
            return True
        self._recorded.put(slot, True, now)
        return False

    def end_open_record(
        self, record: CallRecord, outcome: str, response: bytes | None, error: str | None = None
    ) -> None:
        if not record.is_over:
            self._records.end_call_record(record, outcome, response, error)


def build_refusal_message(x: Exchange, method: str, ruling: Ruling) -> str:
    """Return the words for a request other than a call that policy denies, or would ask about."""
    reason = f"{ruling.reason.rstrip('.')}."
    if ruling.decision == ASK:
        reason = f"{reason} {NOT_ASKED}"
    return (
        f"Denied: {method} was not sent to the server {x.server.name}. {reason} Do not work around it. A person can "
        f"allow the server at {gateway_calls.policy_page_url(ruling)}; tell them what you need it for."
    )


def strip_meta_params(x: Exchange) -> dict[str, Any]:
    return {name: value for name, value in x.message.params.items() if name != "_meta"}
