"""Filters of the list of sessions."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import django_filters
from django import forms
from django.db.models import Q, QuerySet
from django.http import QueryDict
from django.utils import timezone

from coordinator.lib import instants
from coordinator.models import Event, PermissionContext, Session
from coordinator.models.agent_names import list_names_of_same_agent
from coordinator.models.permissions import RequestStatus
from coordinator.search import files
from coordinator.sessions.statuses import ENDED
from dashboard.frame.days import DayRangeFilter
from dashboard.sessions.tables import session_duration_sql_expression

Rows = QuerySet[Session]
FIELDS = ("agent", "host", "since", "until")
FOLDED = ("person", "tag", "tool", "file", "cost", "tokens", "minutes", "ended")
LARGEST = 2**62  # beyond it the database cannot compare
LONGEST_HOURS = 24 * 365 * 100
# An exact comparison of times costs tens of microseconds for each row, and a busy day has thousands of rows.
# More than NEAR away from the limit, comparing the stored text is enough, whatever its format and offset. Nearer
# than that, it is enough for the format that we write (IN_UTC). `:` sorts after every digit, so it excludes texts
# that are not times. The bounds outside the OR let both databases read only that range of the index
# sbx_sessions_created.
NEAR = timedelta(days=2)
IN_UTC = Q(created_at__text__endswith="+00:00", created_at__text__contains="T")


class SessionFilter(DayRangeFilter):
    """Filters sessions by their columns, tools, files, tags, errors, requests and figures.

    Without a filter, only sessions without a parent are listed, and their children can be unfolded. Archived
    sessions are left out, unless the archive or the children of one session are requested.
    """

    q = django_filters.CharFilter(method="filter_sessions_by_search_words", label="Search")
    status = django_filters.CharFilter(field_name="status", label="Status")
    agent = django_filters.CharFilter(method="filter_sessions_by_agent", label="Agent")
    host = django_filters.CharFilter(field_name="hostname", label="Host")
    dir = django_filters.CharFilter(field_name="project_dir", lookup_expr="icontains", label="Directory")
    tool = django_filters.CharFilter(method="filter_by_called_tool", label="Tool")
    file = django_filters.CharFilter(method="filter_by_touched_file", label="File touched")
    parent = django_filters.CharFilter(field_name="parent_session_id", label="Parent")
    errors = django_filters.BooleanFilter(
        method="filter_sessions_having_errors", widget=forms.CheckboxInput, label="With errors"
    )
    waiting = django_filters.BooleanFilter(
        method="filter_sessions_with_pending_requests",
        widget=forms.CheckboxInput,
        label="Waiting for a person",
    )

    person = django_filters.CharFilter(field_name="figures__person", label="Started by")
    tag = django_filters.CharFilter(field_name="tags__tag", label="Tag")
    cost = django_filters.NumberFilter(method="filter_by_minimum_cost", label="Cost at least (US dollars)")
    tokens = django_filters.NumberFilter(method="filter_by_minimum_tokens", label="Tokens at least")
    minutes = django_filters.NumberFilter(
        method="filter_by_minimum_duration", label="Took at least (minutes)"
    )
    ended = django_filters.NumberFilter(method="filter_by_hours_since_end", label="Ended in the last (hours)")
    archived = django_filters.BooleanFilter(
        method="return_rows_unchanged", widget=forms.CheckboxInput, label="Archived"
    )

    @property
    def has_any_filter(self) -> bool:
        data: QueryDict = self.data
        return any(data.get(name) for name in self.filters)

    @property
    def folded_filter_count(self) -> int:
        """The number of filters under "More filters" that are set."""
        data: QueryDict = self.data
        return sum(bool(data.get(name)) for name in FOLDED)

    @property
    def field_filter_count(self) -> int:
        """The number of filters that are set in fields. A phone hides these fields behind a button."""
        data: QueryDict = self.data
        return self.folded_filter_count + sum(bool(data.get(name)) for name in FIELDS)

    @property
    def should_list_sessions_as_trees(self) -> bool:
        """Return whether sessions are listed as trees, with folded children, because no filter is set."""
        data: QueryDict = self.data
        return not any(data.get(name) for name in self.filters if name != "archived")

    @property
    def should_list_only_archived(self) -> bool:
        """Return whether only archived sessions are listed."""
        return bool(self.data.get("archived") == "true")

    @property
    def needs_full_scan(self) -> bool:
        """Return whether a filter is set for which there is no index."""
        data: QueryDict = self.data
        return any(data.get(name) for name in ("q", "dir"))

    @property
    def qs(self) -> Rows:
        rows: Rows = super().qs
        if self.should_list_only_archived:
            rows = rows.filter(archived__isnull=False)
            return (
                rows.filter(parent_session__archived__isnull=True)
                if self.should_list_sessions_as_trees
                else rows
            )
        if self.should_list_sessions_as_trees:
            rows = rows.filter(parent_session__isnull=True)
        return rows if self.data.get("parent") else rows.filter(archived__isnull=True)

    def return_rows_unchanged(self, rows: Rows, _name: str, _enabled: bool) -> Rows:
        """Return the rows unchanged. `qs` applies the filter for the archive."""
        return rows

    def filter_by_minimum_cost(self, rows: Rows, _name: str, dollars: Decimal) -> Rows:
        return rows.filter(figures__cost__gte=float(dollars))

    def filter_by_minimum_tokens(self, rows: Rows, _name: str, tokens: Decimal) -> Rows:
        return rows.filter(figures__tokens__gte=min(max(int(tokens), 0), LARGEST))

    def filter_by_minimum_duration(self, rows: Rows, _name: str, minutes: Decimal) -> Rows:
        least_us = min(max(int(minutes * 60_000_000), 0), LARGEST)
        return rows.annotate(duration_us=session_duration_sql_expression()).filter(duration_us__gte=least_us)

    def filter_by_hours_since_end(self, rows: Rows, _name: str, hours: Decimal) -> Rows:
        since = timezone.now() - timedelta(hours=min(max(float(hours), 0.0), LONGEST_HOURS))
        return rows.filter(ended_since_condition(since))

    def filter_sessions_by_search_words(self, rows: Rows, _name: str, text: str) -> Rows:
        """Return the sessions in which every word occurs in the title or a column."""
        for word in text.split():
            rows = rows.filter(
                Q(session_id__icontains=word)
                | Q(agent_name__icontains=word)
                | Q(hostname__icontains=word)
                | Q(project_dir__icontains=word)
                | Q(executor_session_id__icontains=word)
                | Q(own_title__title__icontains=word)
            )
        return rows

    def filter_sessions_by_agent(self, rows: Rows, _name: str, agent: str) -> Rows:
        return rows.filter(agent_name__in=list_names_of_same_agent(agent))

    def filter_by_called_tool(self, rows: Rows, _name: str, tool: str) -> Rows:
        return rows.filter(pk__in=files.session_ids_calling_tool_sql(tool))

    def filter_by_touched_file(self, rows: Rows, _name: str, path: str) -> Rows:
        return rows.filter(pk__in=files.session_ids_touching_file_sql(path))

    def filter_sessions_having_errors(self, rows: Rows, _name: str, enabled: bool) -> Rows:
        if not enabled:
            return rows
        # This reads the index sbx_events_errors once. With 100,000 sessions, lookups take four times as long.
        return rows.filter(pk__in=Event.objects.filter(error__isnull=False).order_by().values("session_id"))

    def filter_sessions_with_pending_requests(self, rows: Rows, _name: str, enabled: bool) -> Rows:
        if not enabled:
            return rows
        permission_contexts = PermissionContext.objects.filter(
            request__status=RequestStatus.PENDING, session_id__isnull=False
        )
        return rows.filter(pk__in=permission_contexts.values("session_id"))

    def filter_from_first_day(self, rows: Rows, _name: str, _day: str) -> Rows:
        start = self.day_range.start_instant
        if start is None:
            return rows
        stretch = Q(created_at__text__gte=format_utc_prefix(start - NEAR), created_at__text__lt=":")
        clearly = Q(created_at__text__gte=format_utc_prefix(start + NEAR))
        in_utc = IN_UTC & Q(created_at__text__gte=format_utc_prefix(start))
        return rows.filter(stretch & (clearly | in_utc | (~IN_UTC & Q(created_at__gte=start))))

    def filter_to_last_day(self, rows: Rows, _name: str, _day: str) -> Rows:
        end = self.day_range.end_instant
        if end is None:
            return rows
        stretch = Q(created_at__text__gte="0", created_at__text__lt=format_utc_prefix(end + NEAR))
        clearly = Q(created_at__text__lt=format_utc_prefix(end - NEAR))
        in_utc = IN_UTC & Q(created_at__text__lt=format_utc_prefix(end))
        return rows.filter(stretch & (clearly | in_utc | (~IN_UTC & Q(created_at__lt=end))))


def ended_since_condition(since: datetime) -> Q:
    """Return the condition for sessions that have ended since then: by their last event, without one by their start."""
    last_event = Q(figures__ended_us__gte=instants.instant_to_microseconds(since))
    start = Q(created_at__text__gte=format_utc_prefix(since), created_at__text__lt=":")
    return Q(status__in=ENDED) & (last_event | Q(start, figures__ended_us__isnull=True))


def format_utc_prefix(moment: datetime) -> str:
    """Return the beginning of the text of a time in UTC, up to the second."""
    return f"{moment:%Y-%m-%dT%H:%M:%S}"
