"""The list of sessions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from django.db import connection
from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.vary import vary_on_headers

from coordinator.identity.declarations import require_safe
from coordinator.models import Session
from coordinator.search import files
from coordinator.sessions import titles
from coordinator.sessions.statuses import ENDED, LIVE
from dashboard.frame.guards import require_viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.paginator import CappedPaginator, ScannedPaginator
from dashboard.lists.status_facets import build_query_with, load_status_facets, select_query_values
from dashboard.sessions.filters import SessionFilter
from dashboard.sessions.rows import SessionRow, load_session_rows
from dashboard.sessions.tables import SessionTable

PAGE = 25
MOST_CHOICES = 300
MOST_CHILDREN = 100
MOST_FOLLOWED = 16  # running sessions whose rows a list follows beside the topics of the page
STATUSES = (*LIVE, *ENDED)


@dataclass(frozen=True, slots=True)
class FilterToggle:
    label: str
    icon: str
    on: bool
    query: str


@require_safe
@vary_on_headers("HX-Request")
@require_viewer
def show_session_list(request: HtmxHttpRequest) -> HttpResponse:
    """List sessions, newest first: those that nobody's session started, or whatever the filters ask for."""
    narrowed = SessionFilter(request.GET, queryset=Session.objects.all())
    table = SessionTable(narrowed.qs)
    table.order_by = request.GET.get("sort") or "-started"
    paginator = ScannedPaginator if narrowed.needs_full_scan else CappedPaginator
    page = paginator(table.data.data, PAGE).get_page(request.GET.get("page"))
    rows = load_session_rows(page.object_list)
    context = {"filter": narrowed, "table": table, "page": page, "rows": rows}
    if wants_fragment(request):
        return render(request, "sessions/_results.html", context)
    context |= {
        "followed": select_followed_sessions(rows),
        "parent_title": titles.load_session_title(request.GET.get("parent", "")),
        "statuses": load_status_facets("sessions", STATUSES, request.GET),
        "kept": select_query_values(request.GET, "status", "dir", "parent", "sort", "errors", "waiting"),
        "switches": [
            build_filter_toggle(request.GET, "waiting", "Waiting for a person", "approvals"),
            build_filter_toggle(request.GET, "errors", "With errors", "st-cross"),
        ],
        "agents": list_column_values("agent_name"),
        "hosts": list_column_values("hostname"),
        "tools": files.list_called_tools(),
    }
    return render(request, "sessions/list.html", context)


@require_safe
@require_viewer
def list_current_session_rows(request: HtmxHttpRequest) -> HttpResponse:
    """Return the rows of the sessions that `id` names, as they are now, for a list to take its numbers from."""
    sessions = Session.objects.filter(pk__in=request.GET.getlist("id")[:PAGE])
    return render(request, "sessions/_children.html", {"rows": load_session_rows(sessions)})


@require_safe
@require_viewer
def list_child_sessions(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    sessions = Session.objects.filter(parent_session_id=session_id).order_by("created_at", "session_id")
    return render(
        request,
        "sessions/_children.html",
        {"rows": load_session_rows(sessions[:MOST_CHILDREN]), "parent": session_id},
    )


def select_followed_sessions(rows: Iterable[SessionRow]) -> list[str]:
    """Return the sessions whose rows follow their events. An id with blanks in it cannot be a topic."""
    return [row.session.pk for row in rows if row.is_live and len(row.session.pk.split()) == 1][
        :MOST_FOLLOWED
    ]


def build_filter_toggle(query: QueryDict, name: str, label: str, icon: str) -> FilterToggle:
    on = query.get(name) == "true"
    return FilterToggle(label, icon, on, build_query_with(query, **{name: "" if on else "true"}))


# From one value to the next: DISTINCT would read the index of every session from end to end.
CHOICES = """
WITH RECURSIVE found (value) AS (
    SELECT min({column}) FROM sessions
    UNION ALL
    SELECT (SELECT min({column}) FROM sessions WHERE {column} > found.value) FROM found WHERE found.value IS NOT NULL
)
SELECT CAST(value AS TEXT) FROM found WHERE value IS NOT NULL LIMIT {most}
"""


def list_column_values(column: Literal["agent_name", "hostname"]) -> list[str]:
    """Return what a column holds anywhere, in order, for a filter's choices."""
    with connection.cursor() as cursor:
        cursor.execute(CHOICES.format(column=column, most=MOST_CHOICES))
        return [row[0] for row in cursor.fetchall()]
