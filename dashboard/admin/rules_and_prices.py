"""What belongs to coding agents, to read: rules and prices are edited on their own pages, origins by nobody."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from coordinator.models import EventOrigin, ModelPrice, ToolRule
from coordinator.models.rules import RuleVerdict
from dashboard.admin import columns
from dashboard.admin.filters import present, words
from dashboard.admin.options import ViewOnlyAdmin


def _names(agents: Any) -> str:
    """Return agents in one line; what is no list as it stands."""
    return ", ".join(str(one) for one in agents) if isinstance(agents, list) else str(agents)


@admin.register(ToolRule)
class ToolRuleAdmin(ViewOnlyAdmin):
    """The rules for tools in their order: of those that fit a call the first decides."""

    list_display = (
        columns.column("position", str, sortable=False),
        columns.word("verdict"),
        columns.code("tool"),
        columns.code("pattern"),
        columns.text("reason"),
        columns.column("agents", _names, sortable=False),
        columns.column("wait_seconds", str, sortable=False),
        columns.text("changed_by"),
        columns.moment("changed_at"),
    )
    list_filter = (words("verdict", RuleVerdict.values),)
    search_fields = ("tool", "pattern", "reason", "changed_by")
    ordering = ("position", "id")


@admin.register(ModelPrice)
class ModelPriceAdmin(ViewOnlyAdmin):
    """What a million tokens of a model cost, in US dollars."""

    list_display = (
        columns.code("model"),
        columns.column("input", str),
        columns.column("output", str),
        columns.column("cache_read", str),
        columns.column("cache_write", str),
        columns.text("changed_by"),
        columns.moment("changed_at"),
    )
    search_fields = ("model", "changed_by")
    ordering = ("model",)


@admin.register(EventOrigin)
class EventOriginAdmin(ViewOnlyAdmin):
    """Under which name an event is known, so that a hook, record or line told twice is written once."""

    list_display = (
        columns.code("key", sortable=False),
        columns.reference("session_id", "coordinator_session"),
        columns.moment("until", sortable=False),
    )
    list_filter = (present("until", "end"),)
    search_fields = ("key__exact", "session__session_id__exact")
    search_help_text = "The complete origin or session id."
    sortable_by = ()
    ordering = ("key",)
