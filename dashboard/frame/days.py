"""Filters lists by days: from one day to another, both included, in a time zone.

The zone is part of the URL, so that a link, an export and a bookmark mean the same period for everybody.
static/js/days.js sets it to the reader's zone. Without JavaScript it is UTC, and the page says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Any, Self
from zoneinfo import ZoneInfo

import django_filters
from django.db.models import QuerySet

# Days beyond these cannot be converted between time zones. They mean no limit, or the nearest of these days.
EARLIEST, LATEST = date(1970, 1, 2), date(9998, 12, 31)
Rows = QuerySet[Any]


@dataclass(frozen=True, slots=True)
class DayRange:
    """The first and the last day of a filter (None if it is open) and the name of their time zone."""

    since: date | None = None
    until: date | None = None
    zone: str = "UTC"

    @classmethod
    def from_query(cls, data: Mapping[str, Any]) -> Self:
        """Read `since`, `until` and `zone` of a query string; unreadable values are ignored."""
        zone = str(data.get("zone") or "UTC")
        return cls(
            parse_iso_date_or_none(data.get("since")),
            parse_iso_date_or_none(data.get("until")),
            zone if find_zone_by_name(zone) else "UTC",
        )

    @property
    def start_instant(self) -> datetime | None:
        """The beginning of the first day; None if there is no lower limit."""
        if self.since is None or self.since < EARLIEST:
            return None
        return self.first_instant_of_day(min(self.since, LATEST))

    @property
    def end_instant(self) -> datetime | None:
        """The end of the last day (exclusive); None if there is no upper limit."""
        if self.until is None or self.until > LATEST:
            return None
        return self.first_instant_of_day(max(self.until, EARLIEST) + timedelta(days=1))

    def first_instant_of_day(self, day: date) -> datetime:
        """Return a day's first instant in UTC. If the clocks skip midnight, the day begins later."""
        return datetime.combine(day, time.min, tzinfo=find_zone_by_name(self.zone)).astimezone(UTC)


def parse_iso_date_or_none(text: Any) -> date | None:
    try:
        return date.fromisoformat(text)
    except (TypeError, ValueError):
        return None


def find_zone_by_name(name: str) -> ZoneInfo | None:
    """Return the zone of this name; None if there is none, or if this machine has no time zone data."""
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        return None


class DayRangeFilter(django_filters.FilterSet):  # type: ignore[misc] # the library has no types
    """Filters a list by two days. `moment` is the name of the time column."""

    moment = "created_at"
    since = django_filters.CharFilter(method="filter_from_first_day", label="From")
    until = django_filters.CharFilter(method="filter_to_last_day", label="To")

    @cached_property
    def day_range(self) -> DayRange:
        return DayRange.from_query(self.data or {})

    def filter_from_first_day(self, rows: Rows, _name: str, _day: str) -> Rows:
        start = self.day_range.start_instant
        return rows if start is None else rows.filter(**{f"{self.moment}__gte": start})

    def filter_to_last_day(self, rows: Rows, _name: str, _day: str) -> Rows:
        end = self.day_range.end_instant
        return rows if end is None else rows.filter(**{f"{self.moment}__lt": end})
