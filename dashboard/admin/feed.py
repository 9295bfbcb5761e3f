"""The feed of changes, read-only: only triggers write it."""

from __future__ import annotations

from django.contrib import admin

from coordinator.models import Change
from dashboard.admin import columns
from dashboard.admin.filters import build_choice_filter_class
from dashboard.admin.options import ViewOnlyAdmin

TOPICS = (
    "sessions",
    "events",
    "runs",
    "runners",
    "permission_requests",
    "mcp_servers",
    "grants",
    "chat_messages",
    "agents",
    "api_keys",
    "users",
)


@admin.register(Change)
class ChangeAdmin(ViewOnlyAdmin):
    list_display = (
        columns.build_cell_for_attribute("id", str),
        columns.time_column("at", sortable=False),
        columns.text_column("topic", sortable=False),
        columns.text_column("op", sortable=False),
        columns.code_column("key", sortable=False),
        columns.code_column("parent", sortable=False),
    )
    list_filter = (
        build_choice_filter_class("topic", TOPICS),
        build_choice_filter_class("op", ("insert", "update", "delete")),
    )
    search_fields = ("key__exact", "parent__exact")
    search_help_text = "The complete id of a row or its parent."
    sortable_by = ("id",)
    ordering = ("-id",)
