"""Tables about coding agents, read-only.

Rules and prices are edited on their own pages. Origins of events are edited nowhere.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from coordinator.models import DismissedSuggestion, EventOrigin, KnownHost, ModelPrice, ToolRule
from coordinator.models.rules import RuleVerdict
from dashboard.admin import columns
from dashboard.admin.filters import build_choice_filter_class, build_presence_filter_class
from dashboard.admin.options import ViewOnlyAdmin


def join_agent_names(agents: Any) -> str:
    """Return the agents, joined with commas. A value that is not a list is returned as text."""
    return ", ".join(str(agent) for agent in agents) if isinstance(agents, list) else str(agents)


@admin.register(ToolRule)
class ToolRuleAdmin(ViewOnlyAdmin):
    """Tool rules in their order. The first rule that matches a call decides."""

    list_display = (
        columns.build_cell_for_attribute("position", str, sortable=False),
        columns.state_column("verdict"),
        columns.code_column("tool"),
        columns.code_column("pattern"),
        columns.text_column("reason"),
        columns.build_cell_for_attribute("agents", join_agent_names, sortable=False),
        columns.build_cell_for_attribute("wait_seconds", str, sortable=False),
        columns.text_column("changed_by"),
        columns.time_column("changed_at"),
    )
    list_filter = (build_choice_filter_class("verdict", RuleVerdict.values),)
    search_fields = ("tool", "pattern", "reason", "changed_by")
    ordering = ("position", "id")


@admin.register(DismissedSuggestion)
class DismissedSuggestionAdmin(ViewOnlyAdmin):
    """Suggested rules that a person dismissed, so that they are not suggested again."""

    list_display = (
        columns.text_column("label"),
        columns.text_column("dismissed_by"),
        columns.time_column("dismissed_at"),
    )
    search_fields = ("label", "dismissed_by")
    ordering = ("-dismissed_at", "digest")


@admin.register(KnownHost)
class KnownHostAdmin(ViewOnlyAdmin):
    """Hosts that calls in a project folder reached with a person's approval."""

    list_display = (
        columns.text_column("host"),
        columns.text_column("folder"),
        columns.code_column("request_id"),
        columns.text_column("approved_by"),
        columns.time_column("approved_at"),
    )
    search_fields = ("host", "folder", "approved_by")
    ordering = ("-approved_at", "id")


@admin.register(ModelPrice)
class ModelPriceAdmin(ViewOnlyAdmin):
    """The price of a million tokens of each model, in US dollars."""

    list_display = (
        columns.code_column("model"),
        columns.build_cell_for_attribute("input", str),
        columns.build_cell_for_attribute("output", str),
        columns.build_cell_for_attribute("cache_read", str),
        columns.build_cell_for_attribute("cache_write", str),
        columns.text_column("changed_by"),
        columns.time_column("changed_at"),
    )
    search_fields = ("model", "changed_by")
    ordering = ("model",)


@admin.register(EventOrigin)
class EventOriginAdmin(ViewOnlyAdmin):
    """The key under which an event was reported, so that one that is reported twice is stored once."""

    list_display = (
        columns.code_column("key", sortable=False),
        columns.reference_column("session_id", "coordinator_session"),
        columns.time_column("until", sortable=False),
    )
    list_filter = (build_presence_filter_class("until", "end"),)
    search_fields = ("key__exact", "session__session_id__exact")
    search_help_text = "The complete origin or session id."
    sortable_by = ()
    ordering = ("key",)
