"""Charts of counts by hour: the activity of a day, agents by hour, a week of one agent, and tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from django.conf import settings
from django.db.models import F, Q

from coordinator.models import PermissionRequest, Session
from coordinator.usage.activity import (
    CallTotals,
    datetime_of_hour_number,
    filter_activity_hours,
    find_counting_start_if_incomplete,
    hours_since_1970,
    load_call_totals_by_tool,
    load_calls_by_agent_and_hour,
    load_calls_by_hour,
)
from dashboard.looks.charts import StackedColumn, build_heat_rows, build_stacked_columns
from dashboard.sessions.filters import format_utc_prefix

HOURS = 24
WEEK_DAYS = 7
MOST_AGENTS = 12  # rows of the chart of agents by hour
MARKS = ("24 hours ago", "18", "12", "6", "now")
DAY_MARKS = ("0", "6", "12", "18", "24")


@dataclass(frozen=True, slots=True)
class HourSeries:
    """A count by hour: its columns, its sum, and its largest value."""

    name: str
    columns: list[StackedColumn]
    total: int
    most: int


def build_activity_context(now: datetime) -> dict[str, Any]:
    """Return the charts of the last 24 hours: the activity by hour, and the calls of each agent by hour."""
    last = hours_since_1970(now)
    first = last - HOURS + 1
    hours = range(first, last + 1)
    rows = filter_activity_hours(first, last)
    counts = {
        "Sessions": count_sessions_by_hour_number(datetime_of_hour_number(first)),
        "Calls": {hour: totals.calls for hour, totals in load_calls_by_hour(rows).items()},
        **hourly_waits_and_denials(datetime_of_hour_number(first)),
    }
    agents = load_calls_by_agent_and_hour(rows)
    labels = [describe_hour(hour) for hour in hours]
    return {
        "series": [build_hour_series(name, by_hour, hours) for name, by_hour in counts.items()],
        "table": [
            (datetime_of_hour_number(hour), [by_hour.get(hour, 0) for by_hour in counts.values()])
            for hour in reversed(hours)
            if any(by_hour.get(hour) for by_hour in counts.values())
        ],
        "agents": build_heat_rows(
            [
                (
                    agent.agent.agent_name if agent.agent else agent.name or "no agent",
                    agent.agent,
                    {hour - first: calls for hour, calls in agent.calls_by_hour.items()},
                )
                for agent in agents[:MOST_AGENTS]
            ],
            labels,
            MARKS,
            "call",
        ),
        "more_agents": max(0, len(agents) - MOST_AGENTS),
        "uncounted": find_counting_start_if_incomplete(first),
    }


def describe_hour(hour: int) -> str:
    """Return the label of an hour in the installation's time zone, such as `Mon 14:00`."""
    return f"{datetime_of_hour_number(hour).astimezone(settings.LOCAL_ZONE):%a %H:00}"


def build_hour_series(name: str, by_hour: Mapping[int, int], hours: range) -> HourSeries:
    labels = [describe_hour(hour) for hour in hours]
    numbers = [by_hour.get(hour, 0) for hour in hours]
    values = {(label, name): (number, f"{number:,}") for label, number in zip(labels, numbers, strict=True)}
    return HourSeries(
        name, build_stacked_columns(labels, [name], values), sum(numbers), max(numbers, default=0)
    )


def count_sessions_by_hour_number(start: datetime) -> Counter[int]:
    """Return how many sessions began in each hour from `start` on.

    The query uses an index of the stored texts.
    """
    began = Session.objects.filter(created_at__text__gte=format_utc_prefix(start), created_at__text__lt=":")
    moments = began.order_by().values_list("created_at", flat=True).iterator()
    return Counter(
        hours_since_1970(moment) for moment in moments if isinstance(moment, datetime) and moment >= start
    )


def hourly_waits_and_denials(start: datetime) -> dict[str, Counter[int]]:
    """Return by hour, from `start` on, how many requests waited for a person and how many were denied."""
    rows = PermissionRequest.objects.filter(created_at__gte=start).order_by()
    by_policy = Q(status=PermissionRequest.Status.DENIED, approved_at=F("created_at"))
    waited = rows.exclude(status=PermissionRequest.Status.AUTO_APPROVED).exclude(by_policy)
    denied = rows.filter(status=PermissionRequest.Status.DENIED)
    return {
        "Waits for a person": count_instants_by_hour_number(waited.values_list("created_at", flat=True)),
        "Denials": count_instants_by_hour_number(denied.values_list("created_at", flat=True)),
    }


def count_instants_by_hour_number(moments: Iterable[Any]) -> Counter[int]:
    return Counter(hours_since_1970(moment) for moment in moments if isinstance(moment, datetime))


def build_agent_week_context(names: Iterable[str], now: datetime, zone: tzinfo) -> dict[str, Any]:
    """Return the charts of an agent's last seven days in a time zone: calls by day and hour, and by tool."""
    name_list = list(names)
    today = now.astimezone(zone).date()
    days = [today - timedelta(days=back) for back in range(WEEK_DAYS)]
    first = hours_since_1970(datetime.combine(days[-1], datetime.min.time(), zone))
    rows = filter_activity_hours(first, hours_since_1970(now), name_list)
    by_day: dict[Any, Counter[int]] = {day: Counter() for day in days}
    for hour, totals in load_calls_by_hour(rows).items():
        local = datetime_of_hour_number(hour).astimezone(zone)
        by_day.get(local.date(), Counter[int]())[local.hour] += totals.calls
    tools = load_call_totals_by_tool(rows)
    return {
        "week": build_heat_rows(
            [(f"{day:%a} {day.day} {day:%b}", None, by_day[day]) for day in days],
            [f"{hour}:00" for hour in range(24)],
            DAY_MARKS,
            "call",
        ),
        "zone": str(zone),
        **build_tool_context(tools),
        "uncounted": find_counting_start_if_incomplete(first),
    }


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A tool with its calls, and the length of its bar in percent of the most called tool."""

    name: str
    totals: CallTotals
    share: float
    failed_share: float


MOST_TOOLS = 15


def build_tool_context(tools: Mapping[str, CallTotals], most: int = MOST_TOOLS) -> dict[str, Any]:
    """Return the tools with the most calls as rows, and the sums of all tools."""
    largest = max((totals.calls for totals in tools.values()), default=1)
    rows = [
        ToolRow(name, totals, 100 * totals.calls / largest, 100 * totals.failed / largest)
        for name, totals in list(tools.items())[:most]
    ]
    return {
        "tools": rows,
        "more_tools": max(0, len(tools) - most),
        "calls": sum(totals.calls for totals in tools.values()),
        "failed": sum(totals.failed for totals in tools.values()),
    }


def describe_duration_bound(milliseconds: float | None) -> str:
    """Return an upper bound of durations, given in milliseconds, for display; a dash for None."""
    if milliseconds is None:
        return "\N{EN DASH}"
    if milliseconds == float("inf"):
        return "over 30 min"
    for size, unit in ((60_000, "min"), (1000, "s")):
        if milliseconds >= size:
            return f"\u2264 {milliseconds / size:g} {unit}"
    return f"\u2264 {milliseconds:g} ms"
