"""The query string of the Usage page: period, time zone, measure and the dimensions of `coordinator.usage.reading`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Self
from zoneinfo import ZoneInfo

from django.db.models import QuerySet
from django.http import QueryDict

from coordinator.lib import instants
from coordinator.models import ModelRequestUsage
from coordinator.usage.reading import DIMENSIONS, TokenUsage, load_usage_by_dimension_values
from dashboard.frame.days import find_zone_by_name

PERIODS = (1, 7, 30, 90, 365)  # days
HEAT_MAP_DAYS = 365  # this period is also shown as a heat map of days
MEASURES = ("cost", "tokens")
HOUR_US, QUARTER_US = 3_600_000_000, 900_000_000


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """The choices of the Usage page. Invalid values are replaced by the defaults."""

    days: int = 7
    by: str = "model"
    measure: str = "cost"
    zone: str = "UTC"
    day: date | None = None  # one day in `zone`, shown by the hour; then `days` is ignored

    @classmethod
    def from_query(cls, data: Mapping[str, Any]) -> Self:
        days, by, measure, zone, day = (
            str(data.get(name) or "") for name in ("days", "by", "measure", "zone", "day")
        )
        return cls(
            int(days) if days in {str(period) for period in PERIODS} else 7,
            by if by in DIMENSIONS else "model",
            measure if measure in MEASURES else "cost",
            zone if zone and find_zone_by_name(zone) else "UTC",
            parse_day(day),
        )

    def query_string(self, **changes: Any) -> str:
        """Return the query string of these choices with `changes` applied."""
        query = QueryDict(mutable=True)
        for name in ("days", "by", "measure", "zone", "day"):
            if value := changes.get(name, getattr(self, name)):
                query[name] = str(value)
        return query.urlencode()

    @property
    def is_hourly(self) -> bool:
        return self.day is not None or self.days == 1

    @property
    def has_day_columns(self) -> bool:
        """Return whether the columns are days, each of which can be chosen."""
        return not self.is_hourly

    @property
    def time_zone(self) -> ZoneInfo:
        return find_zone_by_name(self.zone) or ZoneInfo("UTC")

    def list_time_slot_labels(self, now: datetime) -> list[str]:
        """Return the labels of the columns: the days of the period, or the hours of a single day.

        A chosen day has all its hours. Any other period ends at `now`.
        """
        local = now.astimezone(self.time_zone)
        if self.day is not None:
            start, end = self.start_instant(now), self.end_instant
            hours = math.ceil(((end or now) - start) / timedelta(hours=1))
            return list(
                dict.fromkeys(self.format_time_slot(start + timedelta(hours=hour)) for hour in range(hours))
            )
        if self.is_hourly:  # the hour that clocks repeat is one column
            return list(
                dict.fromkeys(
                    self.format_time_slot(now - timedelta(hours=back)) for back in range(23, -1, -1)
                )
            )
        return [(local.date() - timedelta(days=back)).isoformat() for back in range(self.days - 1, -1, -1)]

    def format_time_slot(self, instant: datetime) -> str:
        """Return the label of the day or hour that contains a time, in the reader's time zone."""
        local = instant.astimezone(self.time_zone)
        return f"{local:%Y-%m-%d %H:00}" if self.is_hourly else local.date().isoformat()

    def start_instant(self, now: datetime) -> datetime:
        """Return the start of the first day or hour, in UTC."""
        if self.day is not None:
            return self.first_instant_of_day(self.day)
        if self.is_hourly:
            hour = now.astimezone(self.time_zone).replace(minute=0, second=0, microsecond=0)
            return hour.astimezone(UTC) - timedelta(hours=23)
        first: date = now.astimezone(self.time_zone).date() - timedelta(days=self.days - 1)
        return datetime.combine(first, time.min, self.time_zone).astimezone(UTC)

    @property
    def end_instant(self) -> datetime | None:
        """The end of the chosen day, in UTC; None for a period that lasts until now."""
        return None if self.day is None else self.first_instant_of_day(self.day + timedelta(days=1))

    def first_instant_of_day(self, day: date) -> datetime:
        return datetime.combine(day, time.min, self.time_zone).astimezone(UTC)

    def previous_bounds(self, now: datetime) -> tuple[datetime, datetime]:
        """Return start and end of the previous period, which is as long as the current one up to now."""
        local = now.astimezone(self.time_zone)
        if self.day is not None:
            start = self.first_instant_of_day(self.day - timedelta(days=1))
            if self.day == local.date():  # which is not over
                return start, (local - timedelta(days=1)).astimezone(UTC)
            return start, self.start_instant(now)
        if self.is_hourly:
            day = timedelta(hours=24)
            return self.start_instant(now) - day, now - day
        first = local.date() - timedelta(days=2 * self.days - 1)
        start = datetime.combine(first, time.min, self.time_zone)
        return start.astimezone(UTC), (local - timedelta(days=self.days)).astimezone(UTC)

    @property
    def last_column_label(self) -> str:
        """The label of the last column."""
        return "24:00" if self.day is not None else "now" if self.is_hourly else "today"

    @property
    def period_label(self) -> str:
        if self.day is not None:
            return f"{self.day:%A}, {self.day.day} {self.day:%B %Y}"
        return "24 hours" if self.is_hourly else f"{self.days} days"


def parse_day(text: str) -> date | None:
    """Return the day in the query string, or None if it is invalid or not from 2000 to 8999."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if 2000 <= day.year < 9000 else None


def filter_usage_rows_by_period(
    start: datetime, end: datetime | None = None, rows: QuerySet[ModelRequestUsage] | None = None
) -> QuerySet[ModelRequestUsage]:
    """Return the model requests in `rows`, or of all, from `start` on and before `end`."""
    rows = ModelRequestUsage.objects.all() if rows is None else rows
    rows = rows.filter(at_us__gte=instants.instant_to_microseconds(start))
    return rows if end is None else rows.filter(at_us__lt=instants.instant_to_microseconds(end))


def load_usage_by_slot_and_name(
    query: UsageQuery, now: datetime, rows: QuerySet[ModelRequestUsage] | None = None
) -> dict[tuple[str, str], TokenUsage]:
    """Return the period's usage by (day or hour, name in the dimension), of `rows` or of all.

    The database sums by hours in UTC, or by quarter hours if the time zone's offset is not in whole hours.
    """
    start, end = query.start_instant(now), query.end_instant
    rows = filter_usage_rows_by_period(start, end, rows)
    last = end or now
    moments = [start + timedelta(days=number) for number in range((last - start).days + 1)]
    offsets = {moment.astimezone(query.time_zone).utcoffset() for moment in (*moments, last)}
    has_whole_hours = all(not (offset or timedelta()) % timedelta(hours=1) for offset in offsets)
    size = HOUR_US if has_whole_hours else QUARTER_US
    usage_by_slot: dict[tuple[str, str], TokenUsage] = {}
    for (slot, name), usage in load_usage_by_dimension_values(rows, query.by, slot_us=size).items():
        key = (query.format_time_slot(instants.instant_from_microseconds(int(slot) * size)), str(name))
        usage_by_slot[key] = usage_by_slot.get(key, TokenUsage()) + usage
    return usage_by_slot
