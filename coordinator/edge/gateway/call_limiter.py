"""Limits of calls: rates and circuit breakers before a call is sent, result sizes and masking after it.

Rates and breakers are stored in the database, so they apply to all workers together. A worker knows from its copy of
the server whether there are any: without limits nothing is read or written.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

from django.utils import timezone

from coordinator.actions.mcp import call_limits, result_marks
from coordinator.actions.mcp.call_limits import ResultOwner
from coordinator.actions.mcp.result_hosts import ResultHosts
from coordinator.client import sse
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.records import CallRecords
from coordinator.edge.http.bodies import SLOW_TO_DECODE
from coordinator.errors import SignalboxError
from coordinator.mcp.gateway.call_limits import WHOLE_SERVER, CallLimits, merge_strictest_call_limits
from coordinator.mcp.gateway.injection_signs import find_response_injection_and_hosts
from coordinator.mcp.gateway.limited_results import (
    MIN_RESULT_BYTES,
    LimitedResult,
    build_limited_result,
)
from coordinator.mcp.protocol.http_client import RequestNotSent, UpstreamFailed

T = TypeVar("T")
TRIAL_MARGIN = timedelta(seconds=5)  # after the time that a trial may take, for which no other one is sent


class CallLimiter:
    """One a process."""

    def __init__(self, records: CallRecords) -> None:
        self._records = records

    async def enforce_rates_and_circuit_breaker(self, exchange: Exchange) -> None:
        """Raise RequestNotSent where a rate is used up, or the server's circuit breaker is open. Raises Busy."""
        server, tool = exchange.server, exchange.called_tool_or_whole_server
        if server.breaker is not None and server.breaker.open_until is not None:
            await self.claim_breaker_trial_or_raise(exchange, server.breaker.open_until)
        if not server.limits:
            return
        rates = {
            name: rate
            for name in {WHOLE_SERVER, tool} & server.limits.keys()
            if (rate := server.limits[name].calls_per_minute) is not None
        }
        if not rates:
            return
        take = functools.partial(
            call_limits.count_call_at_rates_or_find_full, server.name, rates, timezone.now()
        )
        full = await self._records.run_in_event_writer_transaction(take)
        if full is not None:
            name, wait = full
            subject = f"of {name} " if name else ""
            raise RequestNotSent(
                f"may get {rates[name]} calls {subject}a minute, and has had them. Try it again in {wait:.0f} seconds"
            )

    async def claim_breaker_trial_or_raise(self, exchange: Exchange, open_until: datetime) -> None:
        breaker, now = exchange.server.breaker, timezone.now()
        assert breaker is not None
        lasts = timedelta(seconds=exchange.call_seconds) + TRIAL_MARGIN
        if open_until <= now:
            claim = functools.partial(call_limits.claim_breaker_trial, exchange.server.name, lasts, now)
            if await self._records.run_in_event_writer_transaction(claim):
                return
            raise RequestNotSent("failed before and is being tried by another call. Try it again in a moment")
        left = (open_until - now).total_seconds()
        raise RequestNotSent(
            f"failed {breaker.failures} times in a row and gets no calls for {left:.0f} seconds. "
            f"Last failure: it {breaker.last_problem}"
        )

    async def run_with_circuit_breaker(self, exchange: Exchange, work: Callable[[], Awaitable[T]]) -> T:
        """Do what asks the server; count for its circuit breaker whether it answered."""
        breaker = exchange.server.breaker
        if breaker is None:
            return await work()
        try:
            answer = await work()
        except RequestNotSent:
            raise
        except UpstreamFailed as problem:
            if not problem.is_fault:
                raise
            record = functools.partial(
                call_limits.record_failure_for_breaker,
                exchange.server.name,
                breaker,
                str(problem),
                timezone.now(),
            )
            await self._records.run_in_event_writer_transaction(record)
            raise
        if breaker.failures:
            await self._records.run_in_event_writer_transaction(
                functools.partial(
                    call_limits.record_success_for_breaker, exchange.server.name, timezone.now()
                )
            )
        return answer

    async def record_response_injection_and_hosts(
        self, exchange: Exchange, response: bytes, limits: CallLimits
    ) -> None:
        """Note what in a response may be instructions to the model. Raises Busy where that cannot be written.

        `limits` say whether addresses not seen before are marked.
        """
        inspect = functools.partial(
            find_response_injection_and_hosts,
            response,
            exchange.message.params,
            finds_hosts=limits.marks_addresses,
        )
        is_large = max(len(response), len(exchange.message.raw)) >= SLOW_TO_DECODE
        findings = await asyncio.to_thread(inspect) if is_large else inspect()
        hosts = None
        if findings.hosts:
            hosts = ResultHosts(findings.hosts, findings.named_hosts, findings.has_more_hosts)
        if not findings.marks and hosts is None:
            return
        if exchange.record is not None:
            session_id = exchange.record.session_id
        else:  # a question about a task, whose call has ended
            session_id = await self._records.get_or_create_timeline_session_id(exchange)
        note = functools.partial(
            result_marks.record_and_list_result_marks,
            session_id,
            exchange.server.name,
            findings.marks,
            timezone.now(),
            hosts=hosts,
        )
        marks = await self._records.run_in_event_writer_transaction(note)
        if exchange.record is not None:
            exchange.record.marks = tuple(marks)

    async def inspect_and_limit_call_response(
        self, exchange: Exchange, response: bytes, event: bytes | None
    ) -> tuple[bytes, bytes | None]:
        """Return a call's response marked and within its limits, and its event.

        Raises UpstreamFailed where its marks, or the rest of it, cannot be written.
        """
        limits = exchange.server.effective_limits_for_tool(exchange.called_tool_or_whole_server)
        try:
            await self.record_response_injection_and_hosts(exchange, response, limits)
            changed = await self.limit_response_and_store_rest(exchange, response, limits)
        except SignalboxError as problem:
            raise UpstreamFailed(
                f"answered, but Signalbox could not keep the answer ({str(problem.detail).rstrip('.')})",
                may_have_run=True,
            ) from None
        if changed is response:
            return response, event
        return changed, sse.replace_event_data(event, changed) if event is not None else None

    def is_response_over_result_limit(self, exchange: Exchange, response: bytes) -> bool:
        """Say whether a call's response is longer than its limit, so that its client gets a part of it."""
        max_bytes = exchange.server.effective_limits_for_tool(
            exchange.called_tool_or_whole_server
        ).result_bytes
        return max_bytes is not None and len(response) > max_bytes

    async def inspect_and_limit_other_response(self, exchange: Exchange, response: bytes) -> bytes:
        """Return the response to another request marked and within the limits of its server. Raises Busy."""
        limits = exchange.server.effective_limits_for_tool(WHOLE_SERVER)
        await self.record_response_injection_and_hosts(exchange, response, limits)
        return await self.limit_response_and_store_rest(exchange, response, limits)

    async def inspect_and_limit_task_response(self, exchange: Exchange, response: bytes) -> bytes:
        """Return the response about a server's task marked, within the strictest limits of its server's tools.

        Raises Busy.
        """
        limits = merge_strictest_call_limits(exchange.server.limits)
        await self.record_response_injection_and_hosts(exchange, response, limits)
        return await self.limit_response_and_store_rest(exchange, response, limits)

    async def limit_response_and_store_rest(
        self, exchange: Exchange, response: bytes, limits: CallLimits
    ) -> bytes:
        if not limits.has_result_changing_limits:
            return response
        stored_id = call_limits.new_stored_result_id()
        limited: LimitedResult
        if len(response) >= SLOW_TO_DECODE:
            limited = await asyncio.to_thread(build_limited_result, response, limits, stored_id)
        else:
            limited = build_limited_result(response, limits, stored_id)
        if limited.rest is not None:
            store = functools.partial(
                call_limits.store_result_remainder,
                stored_id,
                limited.rest,
                ResultOwner(exchange.caller_key.id, exchange.agent_id),
                server_id=exchange.server.name,
                tool_name=exchange.called_tool_or_whole_server,
                part_bytes=limits.result_bytes or MIN_RESULT_BYTES,
                now=timezone.now(),
            )
            await self._records.run_in_event_writer_transaction(store)
        return limited.response
