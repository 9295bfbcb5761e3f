"""How well the asking works: what waits for how long, how fast people answer, who asks, what nobody ever saw.

Every figure is counted from the requests themselves; nothing is estimated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from statistics import median

from coordinator.models import PermissionRequest
from coordinator.models.permissions import RequestStatus as Status
from coordinator.policy import approvals
from coordinator.policy.approvals import DECIDED

AGES: tuple[tuple[str, timedelta], ...] = (
    ("under 1 min", timedelta(minutes=1)),
    ("1 to 5 min", timedelta(minutes=5)),
    ("5 to 30 min", timedelta(minutes=30)),
    ("30 min to 2 h", timedelta(hours=2)),
    ("2 h to 1 day", timedelta(days=1)),
    ("over 1 day", timedelta.max),
)
# Everything but auto-approved, which counts as approved; what is still open stands last.
OUTCOMES = (*DECIDED, Status.EXPIRED, Status.WITHDRAWN, Status.PENDING)
MOST_PLUGINS = 12


@dataclass(frozen=True, slots=True)
class CountBar:
    """One bar, `share` of the longest, in percent; `parts` split it by outcome."""

    label: str
    number: int
    share: float
    parts: tuple[BarSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A piece of a bar: where it begins and how long it is, in percent of the whole width."""

    outcome: str
    number: int
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Day:
    """One day's column: the median of its decisions, None where there was none; `height` in percent."""

    day: date
    median: timedelta | None
    decisions: int
    x: float
    width: float
    height: float

    @property
    def top(self) -> float:
        return round(100 - self.height, 3)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Everything the page shows for the last `days` days."""

    days: int
    asked: int
    decided: int
    approved: int
    median: timedelta | None
    slowest_tenth: timedelta | None
    expired: int
    expired_unseen: int
    ages: list[CountBar]
    plugins: list[CountBar]
    columns: list[Day]
    tallest: timedelta | None
    outcomes: tuple[str, ...] = OUTCOMES

    @property
    def approved_share(self) -> str:
        """Return how many of the decisions were approvals, in percent."""
        return f"{round(100 * self.approved / self.decided)} %" if self.decided else "0 %"


def statistics(now: datetime, days: int) -> Statistics:
    """Count the requests of the last `days` days, and all that wait."""
    since = now - timedelta(days=days)
    rows = list(PermissionRequest.objects.with_context().filter(created_at__gte=since))
    standings = [(row, approvals.standing(row, now).status) for row in rows]
    answered = [(row, wait) for row, _ in standings if (wait := approvals.waited(row)) is not None]
    waits = sorted(wait for _, wait in answered)
    expired = [row for row, status in standings if status == Status.EXPIRED]
    columns, tallest = _columns(answered, now, days)
    return Statistics(
        days=days,
        asked=len(rows),
        decided=len(waits),
        approved=sum(row.status == Status.APPROVED for row, _ in answered),
        median=middle(waits),
        slowest_tenth=waits[(len(waits) * 9) // 10] if waits else None,
        expired=len(expired),
        expired_unseen=sum(_unseen(row) for row in expired),
        ages=_ages(PermissionRequest.objects.waiting(now).values_list("created_at", flat=True), now),
        plugins=_plugins(standings),
        columns=columns,
        tallest=tallest,
    )


def middle(spans: Sequence[timedelta]) -> timedelta | None:
    """Return the median of `spans`, None of none."""
    return timedelta(seconds=median(span.total_seconds() for span in spans)) if spans else None


def _unseen(row: PermissionRequest) -> bool:
    """Say whether it expired before any approver had it on a screen; another program's row cannot tell."""
    context = approvals.context_of(row)
    return context is not None and context.requested_by != "unknown" and context.seen_at is None


def _ages(created: Iterable[object], now: datetime) -> list[CountBar]:
    found: Counter[str] = Counter()
    for moment in created:
        if isinstance(moment, datetime):
            found[next(label for label, limit in AGES if now - moment < limit)] += 1
    most = max(found.values(), default=0)
    return [CountBar(label, found[label], 100 * found[label] / most if most else 0) for label, _ in AGES]


def _plugins(standings: Sequence[tuple[PermissionRequest, str]]) -> list[CountBar]:
    totals = Counter(row.plugin_id for row, _ in standings)
    outcomes = Counter((row.plugin_id, _outcome(status)) for row, status in standings)
    most = max(totals.values(), default=1)
    return [
        _plugin_bar(plugin, number, most, outcomes) for plugin, number in totals.most_common(MOST_PLUGINS)
    ]


def _outcome(status: str) -> str:
    """Return the outcome a status counts as; foreign words count as what they most likely mean: still open."""
    if status == Status.AUTO_APPROVED:
        return Status.APPROVED
    return status if status in OUTCOMES else Status.PENDING


def _plugin_bar(plugin: str, number: int, most: int, outcomes: Counter[tuple[str, str]]) -> CountBar:
    parts, start = [], 0.0
    for outcome in OUTCOMES:
        width = 100 * outcomes[plugin, outcome] / most
        if width:
            parts.append(BarSegment(outcome, outcomes[plugin, outcome], round(start, 3), round(width, 3)))
        start += width
    return CountBar(plugin, number, 100 * number / most, tuple(parts))


def _columns(
    answered: Iterable[tuple[PermissionRequest, timedelta]], now: datetime, days: int
) -> tuple[list[Day], timedelta | None]:
    by_day: dict[date, list[timedelta]] = {}
    for row, wait in answered:
        by_day.setdefault(row.approved_at.date(), []).append(wait)
    medians = {day: middle(waits) or timedelta(0) for day, waits in by_day.items()}
    tallest = max(medians.values(), default=None)
    width = 100 / days
    columns = []
    for index in range(days):
        day = (now - timedelta(days=days - 1 - index)).date()
        found = medians.get(day)
        height = 100 * (found / tallest) if found is not None and tallest else 0
        column = Day(
            day,
            found,
            len(by_day.get(day, [])),
            round(index * width, 3),
            round(width * 0.8, 3),
            round(height, 3),
        )
        columns.append(column)
    return columns, tallest
