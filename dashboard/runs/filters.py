"""Filters of the list of runs: status, runner, session, and the day of creation."""

from __future__ import annotations

import django_filters

from dashboard.frame.days import DayRangeFilter


class RunFilter(DayRangeFilter):
    status = django_filters.CharFilter(field_name="status")
    runner = django_filters.CharFilter(field_name="runner_id")
    session = django_filters.CharFilter(field_name="session_id")
