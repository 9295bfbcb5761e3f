"""The cache of results of read-only tools, which answers calls without sending them. The database has the results.

A call comes here once it may run, like one that is sent: policy, approvals, budgets, the brake and the limits are those
of any call. A server whose circuit breaker is not closed is asked, so that the breaker learns the server's state.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import msgspec
from django.utils import timezone

from coordinator.actions.mcp import result_cache
from coordinator.actions.mcp.result_cache import CacheLookup
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.records import CallRecords
from coordinator.errors import SignalboxError
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway.cached_results import (
    CachedCall,
    build_cache_lookup_or_none,
    build_cached_response,
    extract_cachable_result_or_none,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """What the cache has for a call, looked up at `sought_at`."""

    call: CachedCall
    lookup: CacheLookup
    sought_at: datetime


class ResultCache:
    """One a process. It remembers nothing: all workers answer the same results, and forget them at once."""

    def __init__(self, records: CallRecords, threads: EdgeThreads) -> None:
        self._records = records
        self._threads = threads

    async def prepare_call_cache_entry(self, exchange: Exchange, body: bytes) -> CacheEntry | None:
        """Return what is cached for a call; None where its result may not be cached."""
        server = exchange.server
        if not server.edition or exchange.record is None:  # no tool's results are cached
            return None
        if server.breaker is not None and server.breaker.open_until is not None:
            return None
        dialect = [
            exchange.client.protocol_version if exchange.client else exchange.message.protocol_version,
            exchange.message.is_stateless,
            exchange.client_capabilities,
        ]
        call = build_cache_lookup_or_none(
            server, exchange.called_tool_or_whole_server, exchange.agent_id, body, dialect
        )
        if call is None:
            return None
        now = timezone.now()
        lookup = await self._threads.run_in_thread(result_cache.find_cached_call_result, call, now)
        return CacheEntry(call, lookup, now) if lookup is not None else None

    async def audit_and_build_cached_response(self, exchange: Exchange, entry: CacheEntry) -> bytes | None:
        """Return the response of a cached result, once it is audited; None where there is none. Raises Busy."""
        record, result = exchange.record, entry.lookup.result
        if record is None or result is None:
            return None
        age_seconds = entry.lookup.age_seconds
        try:
            response = build_cached_response(exchange.message.id, result, age_seconds)
        except msgspec.MsgspecError:
            return None
        write = functools.partial(
            result_cache.record_cached_answer,
            entry.call,
            exchange.caller_key.caller_actor,
            record.session_id,
            age_seconds,
            timezone.now(),
        )
        await self._records.run_in_event_writer_transaction(write)
        record.cached_seconds = age_seconds
        return response

    async def store_call_result_if_cacheable(
        self, exchange: Exchange, entry: CacheEntry, response: bytes, status: int
    ) -> None:
        """Store the result of a call that was sent, where it may be answered again; a failure is logged."""
        if exchange.is_interactive or not 200 <= status < 300:
            return
        result = extract_cachable_result_or_none(response)
        if result is None:
            return
        store = functools.partial(
            result_cache.store_cached_result,
            entry.call,
            entry.lookup,
            result,
            answered_at=entry.sought_at,
            now=timezone.now(),
        )
        await self.write_cache_or_log_failure(store)

    async def delete_cached_results_after_write(self, exchange: Exchange) -> None:
        """Delete the results of a server one of whose tools may have changed what the others read."""
        server, tool = exchange.server, exchange.called_tool_or_whole_server
        known_tool = server.tools.get(tool)
        if not server.edition or (known_tool is not None and known_tool.is_read_only):
            return
        await self.write_cache_or_log_failure(
            functools.partial(result_cache.delete_cached_results, server.name)
        )

    async def write_cache_or_log_failure(self, work: Callable[[], object]) -> None:
        try:
            await self._records.run_in_event_writer_transaction(work)
        except SignalboxError as problem:
            log.error("The cache of results could not be written: %s", problem.detail)
