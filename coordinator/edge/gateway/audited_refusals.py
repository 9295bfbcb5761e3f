"""Audit of refusals at a server's endpoint: at most one row a minute for each key and server."""

from __future__ import annotations

import functools
import time

from django.utils import timezone

from coordinator.actions.mcp import gateway_refusals
from coordinator.edge.gateway.records import CallRecords
from coordinator.edge.http.auth import Admission
from coordinator.errors import SignalboxError

EVERY = 60.0  # seconds
MAX_NOTED_REFUSALS = 10_000


class RefusalAudit:
    """One a process."""

    def __init__(self, records: CallRecords) -> None:
        self._records = records
        self._noted: dict[tuple[int, str], float] = {}

    async def audit_access_refusal_with_throttle(
        self,
        admission: Admission,
        agent_id: str,
        server_id: str,
        problem: SignalboxError,
        *,
        is_known_server: bool,
    ) -> None:
        """Have it written. Servers that nobody knows count as one: their names are the asker's. Raises Busy."""
        refusal_key = admission.caller.id, server_id if is_known_server else ""
        now = time.monotonic()
        if self._noted.get(refusal_key, -EVERY) > now - EVERY:
            return
        if len(self._noted) >= MAX_NOTED_REFUSALS:
            self._noted.clear()
        self._noted[refusal_key] = now
        await self._records.run_in_event_writer_transaction(
            functools.partial(
                gateway_refusals.record_agent_refusal_at_server,
                admission.caller.caller_actor,
                agent_id,
                server_id,
                str(problem.detail),
                now=timezone.now(),
            )
        )
