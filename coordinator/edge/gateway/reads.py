"""Requests other than calls of tools: which of them pass, what policy says of them, and their place in a timeline.

Nobody is asked about one: where policy asks, it is refused, and a person can allow the server. Those that name what a
server has, and those about tasks, come often: of each a timeline shows one a minute for each session.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from coordinator.actions import gateway_calls
from coordinator.client import mcp_methods
from coordinator.client.mcp_methods import Use
from coordinator.edge.gateway.calls import Calls
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.records import CallRecord, Records
from coordinator.edge.gateway.refusals import Refusals
from coordinator.edge.gateway.relaying import HeldByBrake, Relaying
from coordinator.edge.gateway.running import HEARD_ELSEWHERE, outcome_of
from coordinator.edge.gateway.server_tasks import ServerTasks
from coordinator.edge.gateway.tasks import ask_to_declare, declares_tasks
from coordinator.errors import Forbidden, SignalboxError
from coordinator.gateway import answers
from coordinator.gateway.http_client import UpstreamFailed
from coordinator.gateway.messages import DENIED, INVALID_PARAMS, METHOD_NOT_FOUND
from coordinator.lib.expiring_cache import ExpiringCache
from coordinator.policy.tool_rules import ASK, DENY, Ruling

log = logging.getLogger(__name__)

RECORDED_EVERY = 60.0  # seconds, for requests that come often
MOST_RECORDED = 20_000
UNKNOWN_METHOD = "(unknown method)"
NOT_ASKED = "Signalbox asks people about calls of tools alone."


class Reads:
    """One a process."""

    def __init__(
        self, calls: Calls, relaying: Relaying, records: Records, refusals: Refusals, tasks: ServerTasks
    ) -> None:
        self._calls = calls
        self._tasks = tasks
        self._relaying = relaying
        self._records = records
        self._refusals = refusals
        self._recorded: ExpiringCache[tuple[str, str, str], bool] = ExpiringCache(
            RECORDED_EVERY, MOST_RECORDED
        )

    async def answer(self, x: Exchange, use: Use) -> None:
        """Judge a request that lists or reads, pass it on where it is allowed, and record it."""
        method, params = x.message.method, _params_of(x)
        session_id = await self._records.session_of(x)
        ruling, _ = await self._calls.decide(x, method, params, session_id, is_read=True)
        is_refused = ruling.decision == DENY or (ruling.decision == ASK and use is Use.READ)
        if not is_refused and use is not Use.READ and self._is_recorded(session_id, x):
            await self._relaying.relay(x, None)
            return
        record = self._records.begin_read(x, session_id, method, params)
        record.decided_by = f"{ruling.decision} ({ruling.by})" if ruling.by else ""
        try:
            if is_refused:
                await self._refuse(x, record, ruling)
            else:
                await self._pass(x, record)
        except (SignalboxError, UpstreamFailed) as problem:
            words = str(problem.detail) if isinstance(problem, SignalboxError) else f"The server {problem}."
            self._end(record, "failed", None, words)
            raise
        finally:
            self._end(record, "failed", None, "The client went away.")

    async def answer_about_task(self, x: Exchange) -> None:
        """Pass on a request about a server's own task for whoever began it; recorded once a minute for each session.

        Raises Busy.
        """
        session_id = await self._records.session_of(x)
        if not await self._tasks.is_own(x):
            await self._refuse_task(x, session_id)
            return
        if not self._is_recorded(session_id, x):
            record = self._records.begin_read(x, session_id, x.message.method, _params_of(x))
            self._records.end(record, "ok", None)
        await self._relaying.relay(x, None)

    async def _refuse_task(self, x: Exchange, session_id: str) -> None:
        words = (
            f"{x.message.method} was not sent to the server {x.server.name}: no call of yours in this session began "
            "this task."
        )
        response, status = answers.error(x.message.id, INVALID_PARAMS, words), 200
        if x.message.is_stateless and x.message.method == "tasks/result":  # which 2026-07-28 has no more
            response, status = answers.error(x.message.id, METHOD_NOT_FOUND, words), 404
        elif x.message.is_stateless and not declares_tasks(x.message):
            response, status = ask_to_declare(x.message), 400
        await self._note(x, words)
        record = self._records.begin_read(x, session_id, x.message.method, _params_of(x))
        self._records.end(record, "denied", response)
        await x.line.answer(response, status)

    async def refuse_unknown(self, x: Exchange) -> None:
        """Refuse a request, or drop a notification, whose method does not pass; recorded and audited."""
        method = x.message.method
        words = f"The method {method[:100]!r} does not pass Signalbox's gateway."
        response = answers.error(x.message.id, METHOD_NOT_FOUND, words)
        await self._note(x, words)
        session_id = await self._records.session_of(x)
        record = self._records.begin_read(x, session_id, UNKNOWN_METHOD, {"method": method[:200]})
        self._records.end(record, "denied", response)
        if x.message.is_request:
            await x.line.answer(response, 404 if x.message.is_stateless else 200)
        else:
            await x.line.empty(202)

    async def _pass(self, x: Exchange, record: CallRecord) -> None:
        try:
            with record.at_server(x):
                change = self._tasks.without_foreign if x.message.method == "tasks/list" else None
                response = await self._relaying.pass_on(x, change)
        except HeldByBrake as stopped:
            record.decided_by = f"brake {stopped.brake.id}"
            response = await self._relaying.refuse_for_brake(x, stopped)
            self._end(record, "denied", response)
            return
        if response is None:
            self._end(record, "ok", None, HEARD_ELSEWHERE)
        else:
            self._end(record, outcome_of(response), response)

    async def _refuse(self, x: Exchange, record: CallRecord, ruling: Ruling) -> None:
        """Answer with why a request does not pass: a list with nothing in it, else an error."""
        method = x.message.method
        words = refusal_of(x, method, ruling)
        response = answers.error(x.message.id, DENIED, words)
        self._end(record, "denied", response)
        await self._note(x, words)
        if method in mcp_methods.LISTS:
            value: dict[str, Any] = {mcp_methods.LISTS[method]: []}
            if x.message.is_stateless:
                value |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            response = answers.result(x.message.id, value)
        await x.line.answer(response)

    async def _note(self, x: Exchange, words: str) -> None:
        await self._refusals.note(x.admission, x.agent_id, x.server.name, Forbidden(words), known=True)

    def _is_recorded(self, session_id: str, x: Exchange) -> bool:
        """Note that a request that comes often is recorded now; True where it was within the last minute."""
        slot, now = (session_id, x.server.name, x.message.method), asyncio.get_running_loop().time()
        if self._recorded.get(slot, now):
            return True
        self._recorded.put(slot, True, now)
        return False

    def _end(
        self, record: CallRecord, outcome: str, response: bytes | None, error: str | None = None
    ) -> None:
        if not record.is_over:
            self._records.end(record, outcome, response, error)


def refusal_of(x: Exchange, method: str, ruling: Ruling) -> str:
    """Return the words for a request other than a call that policy denies, or would ask about."""
    reason = f"{ruling.reason.rstrip('.')}."
    if ruling.decision == ASK:
        reason = f"{reason} {NOT_ASKED}"
    return (
        f"Denied: {method} was not sent to the server {x.server.name}. {reason} Do not work around it. A person can "
        f"allow the server at {gateway_calls.allowed_at(ruling)}; tell them what you need it for."
    )


def _params_of(x: Exchange) -> dict[str, Any]:
    return {name: value for name, value in x.message.params.items() if name != "_meta"}
