"""Statistics of permission requests: waiting and decision times, outcomes by plugin, requests never seen.

Every figure is counted from the requests themselves; nothing is estimated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from statistics import median
from zoneinfo import ZoneInfo

from django.conf import settings

from coordinator.lib.times import format_duration
from coordinator.models import PermissionRequest
from coordinator.models.permissions import RequestStatus as Status
from coordinator.policy.requests import approvals
from coordinator.policy.requests.approvals import DECIDED
from dashboard.looks.charts import (
    NICE_SECONDS,
    AxisTick,
    BarSegment,
    CountBar,
    DayColumn,
    StackedColumn,
    build_axis_ticks,
    build_day_columns,
    build_stacked_columns,
    find_axis_top,
)
from dashboard.templatetags.signalbox import count_of

AGES: tuple[tuple[str, timedelta], ...] = (
    ("under 1 min", timedelta(minutes=1)),
    ("1 to 5 min", timedelta(minutes=5)),
    ("5 to 30 min", timedelta(minutes=30)),
    ("30 min to 2 h", timedelta(hours=2)),
    ("2 h to 1 day", timedelta(days=1)),
    ("over 1 day", timedelta.max),
)
# Every decision except auto-approved, which counts as approved. Pending is last.
OUTCOMES = (*DECIDED, Status.EXPIRED, Status.WITHDRAWN, Status.PENDING)
MOST_PLUGINS = 12
COUNTED = (
    "request_id", "plugin_id", "status", "created_at", "approved_at", "expires_at", "context__requested_by",
    "context__seen_at", "context__revoked_at", "context__validity", "context__scope",
)  # fmt: skip


HALF, MOST = "Half decided within", "Nine of ten within"


@dataclass(frozen=True, slots=True)
class HourWaits:
    """Decisions of requests that were made in one hour of the day: their number and durations."""

    hour: int
    decisions: int
    median: timedelta
    slowest_tenth: timedelta


@dataclass(frozen=True, slots=True)
class HourChart:
    """The time to decision by the hour of the day in which a request was made."""

    columns: Sequence[StackedColumn]
    ticks: Sequence[AxisTick]
    rows: Sequence[HourWaits]
    series: tuple[tuple[int, str], ...] = ((1, HALF), (2, MOST))
    marks: tuple[str, ...] = ("0:00", "6:00", "12:00", "18:00", "24:00")


@dataclass(frozen=True, slots=True)
class ApprovalStatistics:
    """Everything that the page shows about the last `days` days."""

    days: int
    requested: int
    decided: int
    approved: int
    median: timedelta | None
    slowest_tenth: timedelta | None
    expired: int
    expired_unseen: int
    ages: list[CountBar]
    plugins: list[CountBar]
    columns: Sequence[DayColumn]
    tallest: timedelta | None
    hours: HourChart | None
    outcomes: tuple[str, ...] = OUTCOMES

    @property
    def approved_percent_label(self) -> str:
        """Return the share of approvals among the decisions, in percent."""
        return f"{round(100 * self.approved / self.decided)} %" if self.decided else "0 %"


def compute_approval_statistics(now: datetime, days: int, zone: ZoneInfo | None = None) -> ApprovalStatistics:
    """Return the statistics of the last `days` days, and of all waiting requests.

    Hours of the day are those of `zone`, or of the server's local zone.
    """
    request_counts: Counter[tuple[str, str]] = Counter()
    waits_by_day: dict[date, list[timedelta]] = {}
    waits_by_hour: dict[int, list[timedelta]] = {}
    waits: list[timedelta] = []
    approved = expired_unseen = 0
    for row in walk_requests_since(now - timedelta(days=days)):
        status = approvals.current_request_state(row, now).status
        request_counts[row.plugin_id, status] += 1
        expired_unseen += status == Status.EXPIRED and is_request_expired_unseen(row)
        wait = approvals.time_waited_for_decision(row)
        if wait is not None:
            waits.append(wait)
            approved += row.status == Status.APPROVED
            day = row.approved_at.astimezone(settings.LOCAL_ZONE).date()
            waits_by_day.setdefault(day, []).append(wait)
            if isinstance(row.created_at, datetime):
                local = row.created_at.astimezone(zone or settings.LOCAL_ZONE)
                waits_by_hour.setdefault(local.hour, []).append(wait)
    waits.sort()
    columns, tallest = median_wait_columns_and_peak(waits_by_day, now, days)
    return ApprovalStatistics(
        days=days,
        requested=request_counts.total(),
        decided=len(waits),
        approved=approved,
        median=median_duration(waits),
        slowest_tenth=ninetieth_percentile_duration(waits),
        expired=sum(number for (_, status), number in request_counts.items() if status == Status.EXPIRED),
        expired_unseen=expired_unseen,
        ages=build_waiting_request_age_bars(
            PermissionRequest.objects.awaiting_decision(now).values_list("created_at", flat=True), now
        ),
        plugins=build_request_bars_by_plugin(request_counts),
        columns=columns,
        tallest=tallest,
        hours=build_decision_time_chart_by_hour(waits_by_hour),
    )


def ninetieth_percentile_duration(in_order: Sequence[timedelta]) -> timedelta | None:
    """Return the 90th percentile of sorted durations; None if there are none."""
    return in_order[-(-len(in_order) * 9 // 10) - 1] if in_order else None


def build_decision_time_chart_by_hour(waits_by_hour: Mapping[int, list[timedelta]]) -> HourChart | None:
    """Return the time to decision by hour of the day; None if nothing was decided."""
    rows = [
        HourWaits(
            hour,
            len(waits),
            median_duration(waits) or timedelta(0),
            ninetieth_percentile_duration(sorted(waits)) or timedelta(0),
        )
        for hour, waits in sorted(waits_by_hour.items())
    ]
    if not rows:
        return None
    top = find_axis_top(max(row.slowest_tenth.total_seconds() for row in rows), NICE_SECONDS)
    values = {}
    for row in rows:
        label = f"{row.hour}:00"
        half, most = row.median.total_seconds(), row.slowest_tenth.total_seconds()
        values[label, HALF] = (half, format_duration(row.median))
        values[label, MOST] = (max(most - half, 0.0), format_duration(row.slowest_tenth))
    hours = [f"{hour}:00" for hour in range(24)]
    return HourChart(
        build_stacked_columns(hours, [HALF, MOST], values, tallest=top),
        build_axis_ticks(top, format_duration),
        rows,
    )


def walk_requests_since(moment: datetime) -> Iterator[PermissionRequest]:
    """Return an iterator over the requests since `moment`, with the counted columns only.

    The rows are loaded in chunks, because an input may have a megabyte.
    """
    return PermissionRequest.objects.with_context().filter(created_at__gte=moment).only(*COUNTED).iterator()


def median_duration(spans: Sequence[timedelta]) -> timedelta | None:
    """Return the median of the durations; None if there are none."""
    return timedelta(seconds=median(span.total_seconds() for span in spans)) if spans else None


def is_request_expired_unseen(row: PermissionRequest) -> bool:
    """Return whether the request expired before an approver saw it; False for rows of other programs."""
    context = approvals.request_context(row)
    return context is not None and context.requested_by != "unknown" and context.seen_at is None


def build_waiting_request_age_bars(created: Iterable[object], now: datetime) -> list[CountBar]:
    counts: Counter[str] = Counter()
    for moment in created:
        if isinstance(moment, datetime):
            counts[next(label for label, limit in AGES if now - moment < limit)] += 1
    most = max(counts.values(), default=0)
    return [CountBar(label, counts[label], 100 * counts[label] / most if most else 0) for label, _ in AGES]


def build_request_bars_by_plugin(request_counts: Mapping[tuple[str, str], int]) -> list[CountBar]:
    totals: Counter[str] = Counter()
    outcomes: Counter[tuple[str, str]] = Counter()
    for (plugin, status), number in request_counts.items():
        totals[plugin] += number
        outcomes[plugin, outcome_of_request_status(status)] += number
    most = max(totals.values(), default=1)
    return [
        build_outcome_bar_of_plugin(plugin, number, most, outcomes)
        for plugin, number in totals.most_common(MOST_PLUGINS)
    ]


def outcome_of_request_status(status: str) -> str:
    """Return the outcome as which a status is counted. An unknown status counts as pending."""
    if status == Status.AUTO_APPROVED:
        return Status.APPROVED
    return status if status in OUTCOMES else Status.PENDING


def build_outcome_bar_of_plugin(
    plugin: str, number: int, most: int, outcomes: Counter[tuple[str, str]]
) -> CountBar:
    parts, start = [], 0.0
    for outcome in OUTCOMES:
        width = 100 * outcomes[plugin, outcome] / most
        if width:
            parts.append(BarSegment(outcome, outcomes[plugin, outcome], round(start, 3), round(width, 3)))
        start += width
    return CountBar(plugin, number, 100 * number / most, tuple(parts))


def median_wait_columns_and_peak(
    waits_by_day: Mapping[date, Sequence[timedelta]], now: datetime, days: int
) -> tuple[Sequence[DayColumn], timedelta | None]:
    """Return a column for each day, as high as its median time to decision, and the largest median."""
    today = now.astimezone(settings.LOCAL_ZONE).date()
    first = today - timedelta(days=days - 1)
    medians = {
        day: median_duration(waits) or timedelta(0) for day, waits in waits_by_day.items() if day >= first
    }
    tallest = max(medians.values(), default=None)
    heights = {
        day: (median / tallest if tallest else 0.0, describe_day_median(median, len(waits_by_day[day])))
        for day, median in medians.items()
    }
    return build_day_columns(heights, today, days), tallest


def describe_day_median(median: timedelta, decisions: int) -> str:
    return f"{format_duration(median)}, {count_of(decisions, 'decision')}"
