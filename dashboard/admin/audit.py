"""The audit log, to read."""

from __future__ import annotations

from django.contrib import admin

from coordinator.models import AuditLog
from dashboard.admin import columns
from dashboard.admin.filters import period, words
from dashboard.admin.options import ViewOnlyAdmin

RESULTS = ("success", "failure", "allowed", "denied", "expired")


@admin.register(AuditLog)
class AuditLogAdmin(ViewOnlyAdmin):
    list_display = (
        columns.moment("timestamp"),
        columns.text("event_type", label="event"),
        columns.word("result"),
        columns.text("actor_id", label="actor"),
        columns.code("target_id", label="target"),
        columns.text("permission"),
        columns.text("reason"),
        columns.code("trace_id", label="trace"),
    )
    list_filter = (words("result", RESULTS), period("timestamp"))
    list_without = ("metadata",)
    search_fields = ("event_type", "actor_id", "target_id", "permission", "reason", "trace_id__exact")
    ordering = ("-id",)
