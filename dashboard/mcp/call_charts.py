"""Charts of calls through the gateway by day: outcomes and response times; the last errors of tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.conf import settings
from django.db.models import Max

from coordinator.lib.histograms import find_quantile_bound
from coordinator.mcp.gateway.statistics import BOUNDS, SHOWN, CallCounter
from coordinator.models import Event, GatewayFigures
from coordinator.search.files import list_session_ids_calling_tools
from dashboard.looks.charts import (
    AxisTick,
    StackedChart,
    StackedColumn,
    build_amount_chart,
    build_axis_ticks,
    build_stacked_columns,
    find_axis_top,
)
from dashboard.templatetags.mcp import milliseconds

OUTCOME_SERIES = {"ok": "Done", "error": "Errors", "failed": "Failed", "denied": "Denied", "held": "Held"}
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
MAX_ERROR_CHARACTERS = 300
MAX_SEARCHED_SESSIONS = 500  # the latest sessions with the tool; events have no index on the tool alone


@dataclass(frozen=True, slots=True)
class LastError:
    """The last error of a tool's calls, from the timeline."""

    tool: str
    text: str
    session_id: str
    event_id: int
    timestamp: str


@dataclass(frozen=True, slots=True)
class CallCharts:
    """Charts of the last seven days. `times` is None if no call reached the server."""

    calls: StackedChart
    times: StackedChart | None
    outcome_series: list[tuple[int, str]]
    quantile_series: list[tuple[int, str]]


def load_call_charts_or_none(server_id: str, now: datetime, tool: str | None = None) -> CallCharts | None:
    """Return the charts of a server's calls, or of one tool's; None if there were no calls."""
    rows = GatewayFigures.objects.filter(server_id=server_id, hour__gt=now - SHOWN)
    if tool is not None:
        rows = rows.filter(tool_name=tool)
    today = now.astimezone(settings.LOCAL_ZONE).date()
    days = [today - timedelta(days=back) for back in range(SHOWN.days, -1, -1)]
    outcomes: dict[tuple[date, str], int] = {}
    counters: dict[date, CallCounter] = {}
    for hour, outcome, calls, upstream, own in rows.values_list(
        "hour", "outcome", "calls", "upstream", "own"
    ):
        if not isinstance(hour, datetime):
            continue
        day = hour.astimezone(settings.LOCAL_ZONE).date()
        outcomes[day, outcome] = outcomes.get((day, outcome), 0) + calls
        counters.setdefault(day, CallCounter()).add_stored_counts(calls, upstream, own)
    if not outcomes:
        return None
    slots = {day: f"{day:%a} {day.day} {day:%b}" for day in days}
    shown_outcomes = {outcome for _, outcome in outcomes}
    series = [label for outcome, label in OUTCOME_SERIES.items() if outcome in shown_outcomes]
    values = {
        (slots[day], OUTCOME_SERIES[outcome]): (float(calls), f"{calls:,}")
        for (day, outcome), calls in outcomes.items()
        if day in slots and outcome in OUTCOME_SERIES
    }
    marks = [slots[days[0]], slots[days[-1]]]
    return CallCharts(
        build_amount_chart(list(slots.values()), series, values, marks=marks),
        build_response_time_chart(counters, slots, marks),
        list(enumerate(series, 1)),
        list(enumerate(QUANTILES, 1)),
    )


def build_response_time_chart(
    counters: Mapping[date, CallCounter], slots: Mapping[date, str], marks: list[str]
) -> StackedChart | None:
    """Return the chart of the server's response times, each column with steps at p50, p95 and p99."""
    values: dict[tuple[str, str], tuple[float, str]] = {}
    tallest = 0.0
    for day, counter in counters.items():
        below = 0.0
        for name, share in QUANTILES.items():
            bound = find_quantile_bound(counter.upstream, BOUNDS, share)
            if bound is None or day not in slots:
                continue
            height = min(bound, float(BOUNDS[-1]))
            values[slots[day], name] = (height - below, milliseconds(bound))
            below = height
        tallest = max(tallest, below)
    if not values:
        return None
    top = find_axis_top(tallest)
    columns: list[StackedColumn] = build_stacked_columns(
        list(slots.values()), list(QUANTILES), values, tallest=top
    )
    ticks: list[AxisTick] = build_axis_ticks(
        top, lambda value: f"{value:g} ms" if value < 1_000 else f"{value / 1_000:g} s"
    )
    return StackedChart(columns, ticks, marks)


def find_last_error_by_tool(names: Mapping[str, str]) -> dict[str, LastError]:
    """Return the last error of each tool. `names` has each tool's name in calls, by the tool's own name."""
    tools = {name: tool for tool, name in names.items()}
    last_ids = list_last_failed_event_ids(tools)
    return {
        tools[row.tool_name]: LastError(
            tools[row.tool_name],
            (row.error or "")[:MAX_ERROR_CHARACTERS],
            row.session_id,
            row.pk,
            row.timestamp,
        )
        for row in Event.objects.filter(pk__in=last_ids).only("tool_name", "error", "session_id", "timestamp")
        if row.tool_name in tools
    }


def list_last_failed_event_ids(names: Iterable[str]) -> list[int]:
    """Return the ids of the tools' last failed events, in the latest sessions that called one of them."""
    tools = list(names)
    sessions = list_session_ids_calling_tools(tools, MAX_SEARCHED_SESSIONS)
    rows = Event.objects.filter(session_id__in=sessions, tool_name__in=tools, error__isnull=False)
    last_ids = rows.values("tool_name").annotate(last=Max("pk")).values_list("last", flat=True)
    return [last for last in last_ids if last]
