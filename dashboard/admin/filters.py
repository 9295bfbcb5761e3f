"""Filters of the admin's lists.

The choices are fixed, because a DISTINCT query over a large table is too slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.contrib.admin import ListFilter, ModelAdmin, SimpleListFilter
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

OTHER = "~other"
EMPTY = "~empty"


def build_choice_filter_class(
    field: str, known_names: Iterable[str], *, nullable: bool = False, title: str = ""
) -> type[SimpleListFilter]:
    """Return a filter by the `known_names` of a column, with the choice "Other" for all other values."""
    offered = list(known_names)

    class WordsFilter(SimpleListFilter):
        parameter_name = field

        def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
            extra = [(EMPTY, "None")] if nullable else []
            return [*((word, word.replace("_", " ")) for word in offered), (OTHER, "Other"), *extra]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            value = self.value()
            if value == OTHER:
                return queryset.exclude(**{f"{field}__in": offered}).filter(**{f"{field}__isnull": False})
            if value == EMPTY:
                return queryset.filter(**{f"{field}__isnull": True})
            return queryset.filter(**{field: value}) if value in offered else queryset

    WordsFilter.title = title or field.replace("_", " ")
    return WordsFilter


def build_presence_filter_class(field: str, title: str) -> type[SimpleListFilter]:
    class PresenceFilter(SimpleListFilter):
        """Filters by whether the column has a value."""

        parameter_name = f"has_{field}"

        def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
            return [("yes", "Yes"), ("no", "No")]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            if self.value() not in {"yes", "no"}:
                return queryset
            return queryset.filter(**{f"{field}__isnull": self.value() == "no"})

    PresenceFilter.title = title
    return PresenceFilter


SPANS = {
    "hour": ("Past hour", timedelta(hours=1)),
    "day": ("Past 24 hours", timedelta(days=1)),
    "week": ("Past 7 days", timedelta(days=7)),
    "month": ("Past 30 days", timedelta(days=30)),
}


class PeriodFilter(ListFilter):
    """Filters a time column by a span up to now, or between two days (UTC, both included).

    It replaces Django's `date_hierarchy`, whose SQL truncates dates and fails for text columns and unreadable
    rows.
    """

    template = "admin/period_filter.html"
    field = ""

    def __init__(
        self,
        request: HttpRequest,
        params: dict[str, Any],
        model: type[Model],
        model_admin: ModelAdmin[Any],
    ) -> None:
        super().__init__(request, params, model, model_admin)
        for name in self.expected_parameters():
            if name in params:
                value = params.pop(name)
                self.used_parameters[name] = value[-1] if isinstance(value, list) else value
        preserved_names = {
            name for name in request.GET if name not in {*self.expected_parameters(), "p", "e"}
        }
        self.preserved_parameters = [
            (name, value) for name in sorted(preserved_names) for value in request.GET.getlist(name)
        ]

    def expected_parameters(self) -> list[Any]:
        """Return the names of the query parameters: the span, the first day and the last day."""
        return [self.span_query_parameter_name, self.first_day_parameter, self.last_day_parameter]

    @property
    def span_query_parameter_name(self) -> str:
        return f"{self.field}_within"

    @property
    def first_day_parameter(self) -> str:
        return f"{self.field}_first"

    @property
    def last_day_parameter(self) -> str:
        return f"{self.field}_last"

    @property
    def first_day(self) -> date | None:
        """The first day in the query; None if it is missing or unreadable."""
        return parse_iso_day(self.used_parameters.get(self.first_day_parameter))

    @property
    def last_day(self) -> date | None:
        """The last day in the query; None if it is missing or unreadable."""
        return parse_iso_day(self.used_parameters.get(self.last_day_parameter))

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:
        chosen = self.used_parameters.get(self.span_query_parameter_name)
        remove = self.expected_parameters()
        yield {
            "selected": not self.used_parameters,
            "query_string": changelist.get_query_string(remove=remove),
            "display": "Any time",
        }
        for span, (label, _) in SPANS.items():
            yield {
                "selected": chosen == span,
                "query_string": changelist.get_query_string({self.span_query_parameter_name: span}, remove),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        span = SPANS.get(str(self.used_parameters.get(self.span_query_parameter_name)))
        if span:
            return queryset.filter(**{f"{self.field}__gte": timezone.now() - span[1]})
        if self.first_day:
            queryset = queryset.filter(**{f"{self.field}__gte": utc_midnight(self.first_day)})
        if self.last_day and self.last_day < date.max:
            queryset = queryset.filter(
                **{f"{self.field}__lt": utc_midnight(self.last_day + timedelta(days=1))}
            )
        return queryset


def parse_iso_day(value: Any) -> date | None:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        return None


def utc_midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def build_period_filter_class(name: str, title: str = "") -> type[PeriodFilter]:
    """Return a filter by a period of the time column `name`."""
    return type("Period", (PeriodFilter,), {"field": name, "title": title or name.replace("_", " ")})
