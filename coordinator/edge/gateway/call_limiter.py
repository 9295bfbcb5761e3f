"""Limits of calls: rates and circuit breakers before a call is sent, result sizes and masking after it.

Rates and breakers are stored in the database, so they apply to all workers together. A worker knows from its copy of
the server whether there are any: without limits nothing is read or written.
"""

from __future__ import annotations

import asyncio
import functools
import logging
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
from coordinator.mcp.gateway.call_limits import (
    WHOLE_SERVER,
    CallLimits,
    CircuitBreaker,
    merge_strictest_call_limits,
)
from coordinator.mcp.gateway.injection_signs import find_response_injection_and_hosts
from coordinator.mcp.gateway.limited_results import (
    MIN_RESULT_BYTES,
    LimitedResult,
    build_limited_result,
)
from coordinator.mcp.protocol.http_client import RequestNotSent, UpstreamFailed

log = logging.getLogger(__name__)

T = TypeVar("T")
TRIAL_MARGIN = timedelta(seconds=5)  # after the time that a trial may take, for which no other one is sent


def raise_if_breaker_paused(breaker: CircuitBreaker, open_until: datetime, now: datetime) -> None:
    """Raise RequestNotSent while a circuit breaker lets no call through."""
    if open_until <= now:
        return
    raise RequestNotSent(
        f"failed {breaker.failures} times in a row and gets no calls for {(open_until - now).total_seconds():.0f} "
        f"seconds. Last failure: it {breaker.last_problem}"
    )


class CallLimiter:
    """One a process."""

    def __init__(self, records: CallRecords) -> None:
        self._records = records

    async def enforce_rates_and_circuit_breaker(self, exchange: Exchange) -> None:
        """Raise RequestNotSent where a rate is used up, or the server's circuit breaker is open. Raises Busy.

        Where the breaker's time is over, the call becomes the one that tries the server.
        """
        server, tool, now = exchange.server, exchange.called_tool_or_whole_server, timezone.now()
        if server.breaker is not None and server.breaker.open_until is not None:
            raise_if_breaker_paused(server.breaker, server.breaker.open_until, now)
            exchange.trial_until = now + timedelta(seconds=exchange.call_seconds) + TRIAL_MARGIN
        rates = {
            name: rate
            for name in {WHOLE_SERVER, tool} & server.limits.keys()
            if (rate := server.limits[name].calls_per_minute) is not None
        }
        if not rates and exchange.trial_until is None:
            return
        admit = functools.partial(
            call_limits.admit_call_or_find_refusal, server.name, rates, exchange.trial_until, now
        )
        try:
            refusal = await self._records.run_in_event_writer_transaction(admit)
        except BaseException:  # also where the client leaves: it may be the trial nevertheless
            await self.free_trial_if_claimed(exchange)
            raise
        if refusal is None:
            return
        exchange.trial_until = None
        if refusal.full_rate is None:
            raise RequestNotSent("failed before and is being tried by another call. Try it again in a moment")
        subject = f"of {refusal.full_rate} " if refusal.full_rate else ""
        raise RequestNotSent(
            f"may get {rates[refusal.full_rate]} calls {subject}a minute, and has had them. "
            f"Try it again in {refusal.retry_seconds:.0f} seconds"
        )

    async def free_trial_if_claimed(self, exchange: Exchange) -> None:
        """Let another call try the server where this one did and has shown nothing; a failure is logged."""
        trial_until, exchange.trial_until = exchange.trial_until, None
        if trial_until is None:
            return
        free = functools.partial(call_limits.free_breaker_trial, exchange.server.name, trial_until)
        try:
            await self._records.run_in_event_writer_transaction(free)
        except SignalboxError as problem:
            log.error("The trial of a circuit breaker could not be ended: %s", problem.detail)

    async def run_with_circuit_breaker(self, exchange: Exchange, work: Callable[[], Awaitable[T]]) -> T:
        """Do what asks the server; count for its circuit breaker whether it answered.

        A trial that is neither a success nor a failure, such as one whose client leaves, is left to another call.
        """
        try:
            return await self.run_counting_outcome_for_breaker(exchange, work)
        finally:
            await self.free_trial_if_claimed(exchange)

    async def run_counting_outcome_for_breaker(
        self, exchange: Exchange, work: Callable[[], Awaitable[T]]
    ) -> T:
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
            exchange.trial_until = None
            raise
        if breaker.failures:
            await self._records.run_in_event_writer_transaction(
                functools.partial(
                    call_limits.record_success_for_breaker, exchange.server.name, timezone.now()
                )
            )
            exchange.trial_until = None
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
                arguments=exchange.message.params.get("arguments"),
                part_bytes=limits.result_bytes or MIN_RESULT_BYTES,
                now=timezone.now(),
            )
            await self._records.run_in_event_writer_transaction(store)
        return limited.response
