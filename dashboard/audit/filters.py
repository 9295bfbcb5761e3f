"""Filters of the audit log by its indexed columns, by dates and by words."""

from __future__ import annotations

import django_filters
from django.db.models import Q, QuerySet

from coordinator.models import AuditLog
from dashboard.frame.days import DayRangeFilter

Rows = QuerySet[AuditLog]


class AuditFilter(DayRangeFilter):
    moment = "timestamp"

    q = django_filters.CharFilter(method="filter_entries_by_search_words", label="Search")
    event = django_filters.CharFilter(field_name="event_type", label="Event")
    actor = django_filters.CharFilter(field_name="actor_id", label="Actor")
    target = django_filters.CharFilter(field_name="target_id", label="Target")
    permission = django_filters.CharFilter(field_name="permission", label="Permission")
    result = django_filters.CharFilter(field_name="result", label="Result")
    trace = django_filters.CharFilter(field_name="trace_id", label="Trace")

    def filter_entries_by_search_words(self, rows: Rows, _name: str, text: str) -> Rows:
        """Keep rows that contain every word in a text column or in the metadata."""
        for word in text.replace("\0", "").split():
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
