"""Call counters of this worker, written to the database every few seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime

from django.utils import timezone

from coordinator.actions.mcp import gateway_statistics as gateway_figures
from coordinator.actions.mcp.gateway_statistics import Kind
from coordinator.edge.ingest.write_queue import GroupWriter
from coordinator.errors import SignalboxError
from coordinator.lib.fair_queue import clear_current_caller
from coordinator.mcp.gateway.statistics import CallCounter

log = logging.getLogger(__name__)

EVERY = 5.0  # seconds
WRITE_WITHIN = 30.0


class CallCounters:
    """The counts of one process since they were last written."""

    def __init__(self, writer: GroupWriter) -> None:
        self._writer = writer
        self._counted: dict[Kind, CallCounter] = {}
        self._writing: asyncio.Task[None] | None = None

    def count_call(
        self, server_id: str, tool: str, outcome: str, *, upstream_ms: float | None, own_ms: float
    ) -> None:
        """Count one call."""
        kind = server_id, tool, truncate_to_hour(timezone.now()), outcome
        counter = self._counted.get(kind)
        if counter is None:
            counter = self._counted[kind] = CallCounter()
        counter.count_timed_call(upstream_ms, own_ms)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self.write_counters_after_interval())

    async def write_counters_after_interval(self) -> None:
        clear_current_caller()
        await asyncio.sleep(EVERY)
        await self.write_counters()

    async def write_counters(self) -> None:
        """Write what was counted; what cannot be written is written with the next."""
        counted, self._counted = self._counted, {}
        if not counted:
            return
        try:
            await self._writer.perform_in_transaction(
                lambda: gateway_figures.add_to_gateway_counters(counted),
                deadline=time.monotonic() + WRITE_WITHIN,
            )
        except SignalboxError as problem:
            log.warning("Figures of calls wait to be written: %s", problem.detail)
            for kind, counter in self._counted.items():
                counted.setdefault(kind, CallCounter()).add_stored_counts(
                    counter.calls, counter.upstream, counter.own
                )
            self._counted = counted


def truncate_to_hour(now: datetime) -> datetime:
    return now.replace(minute=0, second=0, microsecond=0)
