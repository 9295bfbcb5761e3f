"""What was counted of calls by hour: by agent, by tool, how many failed and how long they took. Only reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet, Sum

from coordinator.lib import instants
from coordinator.lib.histograms import find_quantile_bound
from coordinator.models import ActivityHour, CountedHour
from coordinator.models.agent_names import LinkedAgent, load_linked_agents_by_name

HOUR = 3_600_000  # milliseconds
# The columns of durations with their upper bounds in milliseconds; what took longer is in one more.
BOUNDS = {
    "within_10ms": 10, "within_50ms": 50, "within_100ms": 100, "within_200ms": 200, "within_500ms": 500,
    "within_1s": 1_000, "within_2s": 2_000, "within_5s": 5_000, "within_10s": 10_000, "within_30s": 30_000,
    "within_1m": 60_000, "within_5m": 300_000, "within_30m": 1_800_000,
}  # fmt: skip
DURATIONS = (*BOUNDS, "longer")


def hours_since_1970(moment: datetime) -> int:
    """Return the hour of an instant, in hours since 1970 (UTC)."""
    return instants.instant_to_milliseconds(moment) // HOUR


def datetime_of_hour_number(hour: int) -> datetime:
    """Return when an hour begins."""
    return instants.instant_from_microseconds(hour * HOUR * 1000)


@dataclass(frozen=True, slots=True)
class CallTotals:
    """Calls, how many of them failed, and how long they took, by upper bound."""

    calls: int = 0
    failed: int = 0
    durations: tuple[int, ...] = (0,) * len(DURATIONS)  # a count for each of DURATIONS

    @property
    def failed_percent(self) -> float:
        return 100 * self.failed / max(self.calls, 1)

    @property
    def timed_call_count(self) -> int:
        """How many calls it is known of how long they took."""
        return sum(self.durations)

    def duration_bound(self, share: float) -> float | None:
        """Return within how many milliseconds this share of the calls ended; None where no time is known."""
        return find_quantile_bound(self.durations, tuple(BOUNDS.values()), share)

    @property
    def p50(self) -> float | None:
        return self.duration_bound(0.5)

    @property
    def p95(self) -> float | None:
        return self.duration_bound(0.95)

    @property
    def p99(self) -> float | None:
        return self.duration_bound(0.99)


@dataclass(frozen=True, slots=True)
class AgentHours:
    """The calls of one agent by hour; `agent` is None for a name that is linked to no agent."""

    name: str
    agent: LinkedAgent | None
    calls_by_hour: dict[int, int]

    @property
    def call_count(self) -> int:
        """Return the calls of all hours."""
        return sum(self.calls_by_hour.values())


def filter_activity_hours(
    first: int, last: int, names: Iterable[str] | None = None
) -> QuerySet[ActivityHour]:
    """Return what was counted from one hour up to another, of these names of an agent or of all."""
    rows = ActivityHour.objects.filter(hour__gte=first, hour__lte=last)
    return rows if names is None else rows.filter(agent_name__in=list(names))


def load_calls_by_hour(rows: QuerySet[ActivityHour]) -> dict[int, CallTotals]:
    """Return the calls of each hour that has any, without how long they took."""
    grouped = rows.order_by().values_list("hour").annotate(sum_calls=Sum("calls"), sum_failed=Sum("failed"))
    return {hour: CallTotals(int(calls), int(failed)) for hour, calls, failed in grouped}


def load_calls_by_agent_and_hour(rows: QuerySet[ActivityHour]) -> list[AgentHours]:
    """Return the calls of each agent by hour, the busiest first; the names of an agent count together."""
    grouped = list(rows.order_by().values_list("agent_name", "hour").annotate(sum_calls=Sum("calls")))
    linked = load_linked_agents_by_name({name for name, _, _ in grouped})
    agents: dict[str, AgentHours] = {}
    for name, hour, calls in grouped:
        agent = linked.get(name)
        key = agent.agent_id if agent else name
        agent_hours = agents.setdefault(key, AgentHours(key, agent, {}))
        agent_hours.calls_by_hour[hour] = agent_hours.calls_by_hour.get(hour, 0) + int(calls)
    return sorted(agents.values(), key=lambda agent_hours: (-agent_hours.call_count, agent_hours.name))


def load_call_totals_by_tool(rows: QuerySet[ActivityHour]) -> dict[str, CallTotals]:
    """Return the calls of each tool, the one that is called most first."""
    sums = {f"sum_{column}": Sum(column) for column in ("calls", "failed", *DURATIONS)}
    grouped = rows.order_by().values_list("tool_name").annotate(**sums)
    totals = {
        tool_name: CallTotals(int(calls), int(failed), tuple(map(int, durations)))
        for tool_name, calls, failed, *durations in grouped
    }
    return dict(sorted(totals.items(), key=lambda item: (-item[1].calls, item[0])))


def find_counting_start_if_incomplete(first: int) -> Any:
    """Return when the oldest counted hour from `first` on begins, where earlier ones are still to be counted."""
    oldest = (
        CountedHour.objects.filter(hour__gte=first).order_by("hour").values_list("hour", flat=True).first()
    )
    return None if oldest is None or oldest <= first else datetime_of_hour_number(oldest)
