"""Hourly statistics of calls through the gateway, to which every worker adds its counters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from coordinator.mcp.gateway.statistics import CallCounter
from coordinator.models import GatewayFigures

Kind = tuple[str, str, datetime, str]  # server, tool, hour, outcome


def add_to_gateway_counters(counters: Mapping[Kind, CallCounter]) -> None:
    """Add counts to the stored counters."""
    with transaction.atomic():
        for (server_id, tool, hour, outcome), counter in sorted(counters.items()):
            row, is_new = GatewayFigures.objects.select_for_update().get_or_create(
                server_id=server_id,
                tool_name=tool,
                hour=hour,
                outcome=outcome,
                defaults={"calls": counter.calls, "upstream": counter.upstream, "own": counter.own},
            )
            if not is_new:
                call_counter = CallCounter()  # the work may be done twice: what was handed in stays as it is
                call_counter.add_stored_counts(row.calls, row.upstream, row.own)
                call_counter.add_stored_counts(counter.calls, counter.upstream, counter.own)
                row.calls, row.upstream, row.own = call_counter.calls, call_counter.upstream, call_counter.own
                row.save(update_fields=["calls", "upstream", "own"])
