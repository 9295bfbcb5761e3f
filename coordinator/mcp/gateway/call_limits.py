"""The limits of calls, for the gateway: those of each tool in addition to those of its server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from coordinator.models import McpCallLimit, McpCircuitBreaker

WHOLE_SERVER = ""  # the key of the server's own limits among those of its tools


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What holds for a call. None, or False: no such limit."""

    call_seconds: int | None = None
    calls_per_minute: int | None = None
    result_bytes: int | None = None
    masks_secrets: bool = False
    marks_addresses: bool = True
    cache_seconds: int | None = None  # 0: results are not cached, whatever the server's limits say

    @property
    def has_result_changing_limits(self) -> bool:
        """Say whether a result may not pass as it came."""
        return self.masks_secrets or self.result_bytes is not None


NO_LIMITS = CallLimits()


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """When a server's circuit breaker opens, for how long, and its current state."""

    max_failures: int
    seconds: int
    failures: int = 0
    open_until: datetime | None = None
    last_problem: str = ""


def load_call_limits_by_tool(server_id: str) -> dict[str, CallLimits]:
    """Return the limits of a server by tool; those of tools without limits of their own are under WHOLE_SERVER."""
    rows = {row.tool_name: row for row in McpCallLimit.objects.filter(server_id=server_id)}
    base = override_limits_with_row(NO_LIMITS, rows[WHOLE_SERVER]) if WHOLE_SERVER in rows else NO_LIMITS
    limits = {tool: override_limits_with_row(base, row) for tool, row in rows.items()}
    return limits if any(value != NO_LIMITS for value in limits.values()) else {}


def override_limits_with_row(base: CallLimits, row: McpCallLimit) -> CallLimits:
    """Return `base` with what a row says. A rate holds where it was set: for all calls of a server, or for one tool."""
    return CallLimits(
        row.call_seconds if row.call_seconds is not None else base.call_seconds,
        row.calls_per_minute,
        row.result_bytes if row.result_bytes is not None else base.result_bytes,
        row.masks_secrets if row.masks_secrets is not None else base.masks_secrets,
        row.marks_addresses if row.marks_addresses is not None else base.marks_addresses,
        row.cache_seconds if row.cache_seconds is not None else base.cache_seconds,
    )


def load_circuit_breaker(server_id: str) -> CircuitBreaker | None:
    """Return a server's circuit breaker; None where none is set."""
    row = McpCallLimit.objects.filter(server_id=server_id, tool_name=WHOLE_SERVER).first()
    if row is None or not row.breaker_failures or not row.breaker_seconds:
        return None
    breaker = CircuitBreaker(row.breaker_failures, row.breaker_seconds)
    state = McpCircuitBreaker.objects.filter(pk=server_id).first()
    if state is None:
        return breaker
    open_until = state.open_until if isinstance(state.open_until, datetime) else None
    return replace(breaker, failures=state.failures, open_until=open_until, last_problem=state.last_problem)


def effective_call_limits_for_tool(limits: Mapping[str, CallLimits], tool: str) -> CallLimits:
    """Return what holds for a tool, or for other requests where it is WHOLE_SERVER."""
    if not limits:
        return NO_LIMITS
    own = limits.get(tool)
    if own is not None:
        return own
    return replace(limits.get(WHOLE_SERVER, NO_LIMITS), calls_per_minute=None)


def merge_strictest_call_limits(limits: Mapping[str, CallLimits]) -> CallLimits:
    """Return what holds for a result of which it is not known which tool's it is."""
    possible_limits = [*limits.values(), limits.get(WHOLE_SERVER, NO_LIMITS)]
    sizes = [value.result_bytes for value in possible_limits if value.result_bytes is not None]
    return CallLimits(
        result_bytes=min(sizes, default=None),
        masks_secrets=any(value.masks_secrets for value in possible_limits),
        marks_addresses=any(value.marks_addresses for value in possible_limits),
    )


def has_any_server_result_limit() -> bool:
    """Say whether any server's results have a limit, so that clients may have to read the rest of one."""
    return McpCallLimit.objects.filter(result_bytes__isnull=False).exists()
