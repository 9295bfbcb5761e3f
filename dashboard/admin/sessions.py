"""Sessions, events and runs, read-only: people act on them on the sessions pages."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from coordinator.models import Event, EventContext, Run, Session
from coordinator.models.sessions import RunStatus, SessionStatus
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.events import JSON_COLUMNS
from dashboard.admin import columns
from dashboard.admin.filters import (
    build_choice_filter_class,
    build_period_filter_class,
    build_presence_filter_class,
)
from dashboard.admin.options import ViewOnlyAdmin

EVENT_TYPES = (
    "session_start",
    "pre_tool",
    "post_tool",
    "message",
    "session_stop",
    "run_start",
    "run_completed",
)
LARGEST_ID = 2**63 - 1


@admin.register(Session)
class SessionAdmin(ViewOnlyAdmin):
    list_display = (
        columns.code_column("session_id", label="session"),
        columns.state_column("status"),
        columns.text_column("agent_name", label="agent"),
        columns.code_column("project_dir"),
        columns.text_column("hostname", label="host"),
        columns.text_column("executor_profile"),
        columns.reference_column("parent_session_id", "coordinator_session"),
        columns.time_column("created_at"),
        columns.time_column("last_resumed_at"),
    )
    list_filter = (
        build_choice_filter_class("status", SessionStatus.values),
        build_period_filter_class("created_at"),
        build_presence_filter_class("parent_session", "parent"),
    )
    search_fields = ("session_id", "agent_name", "project_dir", "hostname", "executor_session_id")
    ordering = ("-created_at",)


@admin.register(Event)
class EventAdmin(ViewOnlyAdmin):
    """Events, newest first.

    There may be millions, so the search matches a whole id, session, type or tool name.
    """

    list_display = (
        columns.build_cell_for_attribute("id", str),
        columns.reference_column("session_id", "coordinator_session"),
        columns.text_column("event_type", sortable=False),
        columns.code_column("tool_name", sortable=False),
        columns.text_column("role", sortable=False),
        columns.text_column("error", sortable=False),
        columns.text_column("timestamp", sortable=False),
    )
    list_filter = (build_choice_filter_class("event_type", EVENT_TYPES),)
    list_without = (*JSON_COLUMNS, "reason")
    sortable_by = ("id",)
    search_fields = ("id",)
    search_help_text = "The complete id of an event or session, an event type, or a tool's name."
    ordering = ("-id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Filter by the whole session id, tool name, event type or event id.

        Text search would be too slow.
        """
        for term in search_term.split():
            term_condition = Q(session=term) | Q(tool_name=term) | Q(event_type=term)
            if term.isdecimal() and int(term) <= LARGEST_ID:
                term_condition |= Q(pk=int(term))
            queryset = queryset.filter(term_condition)
        return queryset, False


@admin.register(EventContext)
class EventContextAdmin(ViewOnlyAdmin):
    """What Signalbox stores about an event in addition to what the executor sent."""

    list_display = (
        columns.reference_column("event_id", "coordinator_event"),
        columns.reference_column("session_id", "coordinator_session"),
        columns.reference_column("run_id", "coordinator_run"),
        columns.code_column("tool_use_id", sortable=False),
        columns.text_column("subagent", sortable=False),
        columns.build_cell_for_attribute("duration_ms", str, sortable=False),
        columns.text_column("model", sortable=False),
        columns.text_column("source", sortable=False),
        columns.time_column("received_at", sortable=False),
    )
    list_filter = (
        build_choice_filter_class("source", ("executor", *AGENT_TITLES, "telemetry", "transcript", "other")),
    )
    search_fields = ("session_id__exact", "tool_use_id__exact", "run_id__exact", "prompt_id__exact")
    search_help_text = "The complete id of a session, tool use, run or prompt."
    sortable_by = ("event_id",)
    ordering = ("-event_id",)


@admin.register(Run)
class RunAdmin(ViewOnlyAdmin):
    list_display = (
        columns.code_column("run_id", label="run"),
        columns.state_column("status"),
        columns.text_column("type"),
        columns.reference_column("session_id", "coordinator_session"),
        columns.text_column("agent_name", label="agent"),
        columns.text_column("prompt"),
        columns.code_column("runner_id", label="runner"),
        columns.text_column("error"),
        columns.time_column("created_at"),
        columns.time_column("completed_at"),
    )
    list_filter = (
        build_choice_filter_class("status", RunStatus.values),
        build_choice_filter_class("type", ("start_session", "resume_session")),
        build_choice_filter_class(
            "execution_mode", ("sync", "async_poll", "async_callback"), title="execution mode"
        ),
        build_period_filter_class("created_at"),
    )
    list_without = ("demands",)
    search_fields = ("run_id", "session__session_id", "agent_name", "prompt", "runner_id", "error")
    ordering = ("-created_at",)
