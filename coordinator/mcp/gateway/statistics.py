"""Statistics of calls through the gateway, by server and tool: counts, outcomes and durations."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from coordinator.lib.histograms import add_stored_counts, find_quantile_bound
from coordinator.models import GatewayFigures

# Upper bounds in milliseconds; a last count is for what took longer.
BOUNDS = (
    1,
    2,
    3,
    5,
    7,
    10,
    15,
    20,
    30,
    50,
    75,
    100,
    150,
    200,
    300,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    30_000,
    60_000,
)
OUTCOMES = ("ok", "error", "failed", "denied", "held")
SHOWN = timedelta(days=7)


@dataclass(slots=True)
class CallCounter:
    """Calls of one tool with one outcome: how many, and how many took how long at the server and with us."""

    calls: int = 0
    upstream: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    own: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))

    def count_timed_call(self, upstream_ms: float | None, own_ms: float) -> None:
        """Count a call; one that did not reach its server has no time there."""
        self.calls += 1
        self.own[bisect_left(BOUNDS, own_ms)] += 1
        if upstream_ms is not None:
            self.upstream[bisect_left(BOUNDS, upstream_ms)] += 1

    def add_stored_counts(self, calls: int, upstream: Any, own: Any) -> None:
        """Add what is stored; counts that cannot be read are left out."""
        self.calls += calls
        add_stored_counts(self.upstream, upstream)
        add_stored_counts(self.own, own)


@dataclass(frozen=True, slots=True)
class ToolFigures:
    """One tool's calls in a span of time. Times in milliseconds, as upper bounds; None where nothing was measured."""

    tool: str
    calls: int
    outcomes: dict[str, int]
    upstream_p50: float | None
    upstream_p95: float | None
    upstream_p99: float | None
    own_p50: float | None
    own_p99: float | None


def list_server_tool_statistics(server_id: str, now: datetime, span: timedelta = SHOWN) -> list[ToolFigures]:
    """Return the figures of a server's tools within `span`, the tool that is called most first."""
    rows = GatewayFigures.objects.filter(server_id=server_id, hour__gt=now - span)
    counters: dict[str, CallCounter] = {}
    outcomes: dict[str, dict[str, int]] = {}
    for tool, outcome, calls, upstream, own in rows.values_list(
        "tool_name", "outcome", "calls", "upstream", "own"
    ):
        counters.setdefault(tool, CallCounter()).add_stored_counts(calls, upstream, own)
        counted = outcomes.setdefault(tool, dict.fromkeys(OUTCOMES, 0))
        counted[outcome] = counted.get(outcome, 0) + calls
    tool_figures = [
        ToolFigures(
            tool,
            tally.calls,
            outcomes[tool],
            find_quantile_bound(tally.upstream, BOUNDS, 0.5),
            find_quantile_bound(tally.upstream, BOUNDS, 0.95),
            find_quantile_bound(tally.upstream, BOUNDS, 0.99),
            find_quantile_bound(tally.own, BOUNDS, 0.5),
            find_quantile_bound(tally.own, BOUNDS, 0.99),
        )
        for tool, tally in counters.items()
    ]
    return sorted(tool_figures, key=lambda one: (-one.calls, one.tool))
