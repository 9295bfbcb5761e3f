"""The list of sessions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from django.db import connection
from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from coordinator.models import Session
from coordinator.search import files
from coordinator.sessions import titles
from coordinator.sessions.statuses import ENDED, LIVE
from dashboard.filters.sessions import SessionFilter
from dashboard.frame.guards import viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.paginator import CappedPaginator, ScannedPaginator
from dashboard.lists.status_facets import changed, kept, status_facets
from dashboard.sessions.rows import SessionRow, rows_for
from dashboard.tables.sessions import SessionTable

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
@viewer
def listing(request: HtmxHttpRequest) -> HttpResponse:
    """List sessions, newest first: those that nobody's session started, or whatever the filters ask for."""
    narrowed = SessionFilter(request.GET, queryset=Session.objects.all())
    table = SessionTable(narrowed.qs)
    table.order_by = request.GET.get("sort") or "-started"
    paginator = ScannedPaginator if narrowed.reads_all else CappedPaginator
    page = paginator(table.data.data, PAGE).get_page(request.GET.get("page"))
    rows = rows_for(page.object_list)
    context = {"filter": narrowed, "table": table, "page": page, "rows": rows}
    if wants_fragment(request):
        return render(request, "sessions/_results.html", context)
    context |= {
        "followed": followed(rows),
        "parent_title": titles.of_one(request.GET.get("parent", "")),
        "statuses": status_facets("sessions", STATUSES, request.GET),
        "kept": kept(request.GET, "status", "dir", "parent", "sort", "errors", "waiting"),
        "switches": [
            switch(request.GET, "waiting", "Waiting for a person", "approvals"),
            switch(request.GET, "errors", "With errors", "st-cross"),
        ],
        "agents": choices("agent_name"),
        "hosts": choices("hostname"),
        "tools": files.tools(),
    }
    return render(request, "sessions/list.html", context)


@require_safe
@viewer
def as_they_are(request: HtmxHttpRequest) -> HttpResponse:
    """Return the rows of the sessions that `id` names, as they are now, for a list to take its numbers from."""
    found = Session.objects.filter(pk__in=request.GET.getlist("id")[:PAGE])
    return render(request, "sessions/_children.html", {"rows": rows_for(found)})


@require_safe
@viewer
def children(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    found = Session.objects.filter(parent_session_id=session_id).order_by("created_at", "session_id")
    return render(
        request, "sessions/_children.html", {"rows": rows_for(found[:MOST_CHILDREN]), "parent": session_id}
    )


def followed(rows: Iterable[SessionRow]) -> list[str]:
    """Return the sessions whose rows follow their events. An id with blanks in it cannot be a topic."""
    return [row.session.pk for row in rows if row.is_live and len(row.session.pk.split()) == 1][
        :MOST_FOLLOWED
    ]


def switch(query: QueryDict, name: str, label: str, icon: str) -> FilterToggle:
    on = query.get(name) == "true"
    return FilterToggle(label, icon, on, changed(query, **{name: "" if on else "true"}))


# From one value to the next: DISTINCT would read the index of every session from end to end.
CHOICES = """
WITH RECURSIVE found (value) AS (
    SELECT min({column}) FROM sessions
    UNION ALL
    SELECT (SELECT min({column}) FROM sessions WHERE {column} > found.value) FROM found WHERE found.value IS NOT NULL
)
SELECT CAST(value AS TEXT) FROM found WHERE value IS NOT NULL LIMIT {most}
"""


def choices(column: Literal["agent_name", "hostname"]) -> list[str]:
    """Return what a column holds anywhere, in order, for a filter's choices."""
    with connection.cursor() as cursor:
        cursor.execute(CHOICES.format(column=column, most=MOST_CHOICES))
        return [row[0] for row in cursor.fetchall()]
