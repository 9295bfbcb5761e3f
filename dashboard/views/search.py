"""Search across all sessions: messages, tool inputs and outputs, and what was done to a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from coordinator.lib.storable import row_id
from coordinator.search.events import Hit, SearchQuery, find
from coordinator.search.progress import coming
from coordinator.sessions import titles
from coordinator.sessions.timeline import Timeline
from coordinator.sessions.timeline.reading import CATEGORIES
from dashboard.filters.days import Days
from dashboard.frame.guards import viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.status_facets import changed
from dashboard.looks.milestones import milestone_of
from dashboard.views.session_list import choices

KINDS = (("message", "Messages"), ("pre_tool", "Inputs"), ("post_tool", "Outputs"))
OF_FILE = "file:"  # before a path: what was done to that file
FIELDS = ("q", "kind", "tool", "agent", "session")


@require_safe
@vary_on_headers("HX-Request")
@viewer
def search(request: HtmxHttpRequest) -> HttpResponse:
    question = question_of(request.GET)
    if question.text.strip().startswith(OF_FILE):
        path = question.text.strip().removeprefix(OF_FILE).strip()
        return redirect(f"{reverse('search:files')}?{urlencode({'path': path})}")
    before = request.GET.get("before", "")
    found = find(question, before=row_id(before))
    context: dict[str, Any] = {
        "question": question,
        "milestones": _milestones(found.hits),
        "titles": titles.of([*(hit.event.session_id for hit in found.hits), question.session_id]),
        "asked": bool(question.terms),
        "coming": coming(),
        "hits": found.hits,
        "looked_until": found.looked_until,
        "older": changed(request.GET, before=str(found.before)) if found.before else "",
        "first": changed(request.GET, before="") if before else "",
    }
    if wants_fragment(request):
        return render(request, "search/_hits.html", context)
    context |= {"agents": choices("agent_name"), "kinds": KINDS, "days": Days.of(request.GET)}
    return render(request, "search/search.html", context)


def _milestones(hits: Sequence[Hit]) -> dict[int, tuple[str, str, str]]:
    """Return the looks of those hits that are no call and no message, as the timeline has them, by the event's id."""
    rows = {*CATEGORIES["messages"], *CATEGORIES["calls"]}
    points: dict[str, list[int]] = {}
    for hit in hits:
        if hit.event.event_type not in rows:
            points.setdefault(hit.event.session_id, []).append(hit.event.pk)
    return {
        event.id: milestone_of(event)
        for session_id, ids in points.items()
        for event in Timeline(session_id).events(ids)
    }


def question_of(data: QueryDict) -> SearchQuery:
    """Read the query string; unreadable values are ignored."""
    days = Days.of(data)
    texts = {name: data.get(name, "")[:300] for name in FIELDS}
    return SearchQuery(
        text=texts["q"],
        session_id=texts["session"],
        kind=texts["kind"] if texts["kind"] in dict(KINDS) else "",
        tool=texts["tool"],
        agent=texts["agent"],
        since=days.start,
        until=days.end,
    )
