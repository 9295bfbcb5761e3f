"""The audit log, read-only."""

from __future__ import annotations

from django.contrib import admin

from coordinator.models import AuditLog
from dashboard.admin import columns
from dashboard.admin.filters import build_choice_filter_class, build_period_filter_class
from dashboard.admin.options import ViewOnlyAdmin

RESULTS = ("success", "failure", "allowed", "denied", "expired")


@admin.register(AuditLog)
class AuditLogAdmin(ViewOnlyAdmin):
    list_display = (
        columns.time_column("timestamp"),
        columns.text_column("event_type", label="event"),
        columns.state_column("result"),
        columns.text_column("actor_id", label="actor"),
        columns.code_column("target_id", label="target"),
        columns.text_column("permission"),
        columns.text_column("reason"),
        columns.code_column("trace_id", label="trace"),
    )
    list_filter = (build_choice_filter_class("result", RESULTS), build_period_filter_class("timestamp"))
    list_without = ("metadata",)
    search_fields = ("event_type", "actor_id", "target_id", "permission", "reason", "trace_id__exact")
    ordering = ("-id",)
