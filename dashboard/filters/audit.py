"""The audit log, narrowed by every indexed column, by dates and by words."""

from __future__ import annotations

from datetime import date, timedelta

import django_filters
from django import forms
from django.db.models import Q, QuerySet

from coordinator.models import AuditLog
from dashboard.filters.approvals import day_start

Rows = QuerySet[AuditLog]


class AuditFilter(django_filters.FilterSet):  # type: ignore[misc] # the library has no types
    """Event, actor, target, permission, result, trace, dates and words."""

    q = django_filters.CharFilter(method="with_words", label="Search")
    event = django_filters.CharFilter(field_name="event_type", label="Event")
    actor = django_filters.CharFilter(field_name="actor_id", label="Actor")
    target = django_filters.CharFilter(field_name="target_id", label="Target")
    permission = django_filters.CharFilter(field_name="permission", label="Permission")
    result = django_filters.CharFilter(field_name="result", label="Result")
    trace = django_filters.CharFilter(field_name="trace_id", label="Trace")
    since = django_filters.DateFilter(
        method="since_day", label="From", widget=forms.DateInput({"type": "date"})
    )
    until = django_filters.DateFilter(
        method="until_day", label="To", widget=forms.DateInput({"type": "date"})
    )

    def with_words(self, rows: Rows, _name: str, words: str) -> Rows:
        """Keep rows that hold every word in any of their texts, before and after included."""
        for word in words.replace("\0", "").split():
            rows = rows.filter(
                Q(event_type__icontains=word)
                | Q(actor_id__icontains=word)
                | Q(target_id__icontains=word)
                | Q(permission__icontains=word)
                | Q(reason__icontains=word)
                | Q(metadata__icontains=word)
                | Q(trace_id__icontains=word)
            )
        return rows

    def since_day(self, rows: Rows, _name: str, day: date) -> Rows:
        """Keep what happened on this day or later."""
        return rows.filter(timestamp__gte=day_start(day))

    def until_day(self, rows: Rows, _name: str, day: date) -> Rows:
        """Keep what happened on this day or earlier."""
        return rows.filter(timestamp__lt=day_start(day + timedelta(days=1)))
