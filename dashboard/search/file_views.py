"""The page of what agents did to a file, across all sessions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.vary import vary_on_headers

from coordinator.identity.declarations import require_safe
from coordinator.lib import instants
from coordinator.lib.storable import parse_database_id_or_none
from coordinator.models.agent_names import list_agent_filter_choices, load_linked_agents_by_name
from coordinator.search import files
from coordinator.search.progress import load_indexing_progress
from coordinator.sessions import titles
from coordinator.sessions.timeline import StoredValue
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.status_facets import query_string_with_changed_values
from dashboard.looks import CallDisplay, build_call_display

MOST_SHOWN = 20  # matching files whose names the page lists


@dataclass(frozen=True, slots=True)
class FileTouchRow:
    """A call that touched a file, ready for display. `at` is None if the time is unknown."""

    touch: files.FileTouch
    look: CallDisplay
    at: datetime | None


@require_safe
@vary_on_headers("HX-Request")
@require_viewer_role
def list_file_touches(request: HtmxHttpRequest) -> HttpResponse:
    """List the calls that touched the files that match `path`, the latest first."""
    query_values = {name: request.GET.get(name, "")[:1000] for name in ("path", "tool", "agent")}
    before = request.GET.get("before", "")
    named_files = files.find_touched_files_matching_path(query_values["path"])
    file_touches = files.load_calls_touching_files(
        named_files,
        tool=query_values["tool"],
        agent=query_values["agent"],
        before=parse_database_id_or_none(before),
    )
    sessions = [touch.event.session for touch in file_touches.touches]
    context = {
        "asked": query_values,
        "files": named_files[:MOST_SHOWN],
        "more_files": len(named_files) - MOST_SHOWN,
        "most_files": files.MOST_FILES,
        "all_meant": len(named_files) < files.MOST_FILES,
        "rows": [build_file_touch_row(touch) for touch in file_touches.touches],
        "agents_by_name": load_linked_agents_by_name(session.agent_name for session in sessions),
        "titles": titles.load_session_titles(session.pk for session in sessions),
        "coming": load_indexing_progress(),
        "older": query_string_with_changed_values(request.GET, before=str(file_touches.before))
        if file_touches.before
        else "",
        "first": query_string_with_changed_values(request.GET, before="") if before else "",
    }
    if wants_fragment(request):
        return render(request, "search/_touches.html", context)
    context |= {
        "agents": list_agent_filter_choices(query_values["agent"]),
        "tools": files.list_all_called_tools(),
        "filter_count": sum(bool(query_values[name]) for name in ("tool", "agent")),
    }
    return render(request, "search/files.html", context)


def build_file_touch_row(touch: files.FileTouch) -> FileTouchRow:
    context = getattr(touch.event, "context", None)
    at = (
        instants.instant_from_microseconds(context.instant_us)
        if context
        else instants.parse_instant_or_none(touch.event.timestamp)
    )
    return FileTouchRow(
        touch,
        build_call_display(touch.event.tool_name, parse_stored_input_or_none(touch.tool_input), None, None),
        at,
    )


def parse_stored_input_or_none(text: str) -> StoredValue | None:
    try:
        return StoredValue(json.loads(text), len(text))
    except (ValueError, RecursionError):
        return None
