"""Sessions, narrowed by what a person knows of the one they look for."""

from __future__ import annotations

from datetime import datetime, timedelta

import django_filters
from django import forms
from django.db.models import Q, QuerySet
from django.http import QueryDict

from coordinator.models import Event, PermissionContext, Session
from coordinator.search import files
from dashboard.frame.days import DayRangeFilter

Rows = QuerySet[Session]
# The exact comparison of instants costs tens of microseconds a row, and a busy day has thousands. Two days away
# from the edge the text alone tells, whatever its form and offset; nearer, it tells for the form that we write. `:`
# comes after every digit, so odd texts stay out. The bounds outside the OR let both engines read that stretch of
# sbx_sessions_created and nothing else.
NEAR = timedelta(days=2)
IN_UTC = Q(created_at__text__endswith="+00:00", created_at__text__contains="T")


class SessionFilter(DayRangeFilter):
    """Words, status, agent, host, directory, tool, file, parent, dates, errors, pending approvals.

    Without any of them only the sessions that nobody's session started are listed; their children unfold.
    """

    q = django_filters.CharFilter(method="with_words", label="Search")
    status = django_filters.CharFilter(field_name="status", label="Status")
    agent = django_filters.CharFilter(field_name="agent_name", label="Agent")
    host = django_filters.CharFilter(field_name="hostname", label="Host")
    dir = django_filters.CharFilter(field_name="project_dir", lookup_expr="icontains", label="Directory")
    tool = django_filters.CharFilter(method="with_tool", label="Tool")
    file = django_filters.CharFilter(method="with_file", label="File touched")
    parent = django_filters.CharFilter(field_name="parent_session_id", label="Parent")
    errors = django_filters.BooleanFilter(
        method="with_errors", widget=forms.CheckboxInput, label="With errors"
    )
    waiting = django_filters.BooleanFilter(
        method="with_waiting", widget=forms.CheckboxInput, label="Waiting for a person"
    )

    @property
    def has_any_filter(self) -> bool:
        data: QueryDict = self.data
        return any(data.get(name) for name in self.filters)

    @property
    def needs_full_scan(self) -> bool:
        """Say whether a filter is among those asked for that no index serves."""
        data: QueryDict = self.data
        return any(data.get(name) for name in ("q", "dir"))

    @property
    def qs(self) -> Rows:
        rows: Rows = super().qs
        return rows if self.has_any_filter else rows.filter(parent_session__isnull=True)

    def with_words(self, rows: Rows, _name: str, words: str) -> Rows:
        """Keep sessions that hold every word in their title or one of their columns."""
        for word in words.split():
            rows = rows.filter(
                Q(session_id__icontains=word)
                | Q(agent_name__icontains=word)
                | Q(hostname__icontains=word)
                | Q(project_dir__icontains=word)
                | Q(executor_session_id__icontains=word)
                | Q(own_title__title__icontains=word)
            )
        return rows

    def with_tool(self, rows: Rows, _name: str, tool: str) -> Rows:
        return rows.filter(pk__in=files.sessions_calling_tool(tool))

    def with_file(self, rows: Rows, _name: str, path: str) -> Rows:
        return rows.filter(pk__in=files.sessions_touching_file(path))

    def with_errors(self, rows: Rows, _name: str, wanted: bool) -> Rows:
        if not wanted:
            return rows
        # Reads sbx_events_errors once; a look into it per session costs 100,000 sessions four times as long.
        return rows.filter(pk__in=Event.objects.filter(error__isnull=False).order_by().values("session_id"))

    def with_waiting(self, rows: Rows, _name: str, wanted: bool) -> Rows:
        if not wanted:
            return rows
        permission_contexts = PermissionContext.objects.filter(
            request__status="pending", session_id__isnull=False
        )
        return rows.filter(pk__in=permission_contexts.values("session_id"))

    def from_start(self, rows: Rows, _name: str, _day: str) -> Rows:
        start = self.day_range.start_instant
        if start is None:
            return rows
        stretch = Q(created_at__text__gte=format_utc_prefix(start - NEAR), created_at__text__lt=":")
        clearly = Q(created_at__text__gte=format_utc_prefix(start + NEAR))
        in_utc = IN_UTC & Q(created_at__text__gte=format_utc_prefix(start))
        return rows.filter(stretch & (clearly | in_utc | (~IN_UTC & Q(created_at__gte=start))))

    def to_end(self, rows: Rows, _name: str, _day: str) -> Rows:
        end = self.day_range.end_instant
        if end is None:
            return rows
        stretch = Q(created_at__text__gte="0", created_at__text__lt=format_utc_prefix(end + NEAR))
        clearly = Q(created_at__text__lt=format_utc_prefix(end - NEAR))
        in_utc = IN_UTC & Q(created_at__text__lt=format_utc_prefix(end))
        return rows.filter(stretch & (clearly | in_utc | (~IN_UTC & Q(created_at__lt=end))))


def format_utc_prefix(moment: datetime) -> str:
    """Return what the text of an instant, to the second and in UTC, begins with."""
    return f"{moment:%Y-%m-%dT%H:%M:%S}"
