"""Search in the messages, tool inputs and tool outputs of all sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.vary import vary_on_headers

from coordinator.identity.declarations import require_safe
from coordinator.models.agent_names import list_agent_filter_choices, load_linked_agents_by_name
from coordinator.search.events import (
    EventHit,
    SearchQuery,
    count_searched_events_beyond_index,
    group_and_count_session_hits,
    search_events,
)
from coordinator.search.index import MOST_BEYOND, parse_search_position_or_none
from coordinator.search.progress import load_indexing_progress
from coordinator.sessions import titles
from coordinator.sessions.timeline import SessionTimeline
from coordinator.sessions.timeline.reading import CATEGORIES
from dashboard.frame.days import DayRange
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.status_facets import query_string_with_changed_values
from dashboard.looks.milestones import milestone_icon_text_and_tone

KINDS = (("message", "Messages"), ("pre_tool", "Inputs"), ("post_tool", "Outputs"))
OF_FILE = "file:"  # prefix of a query that searches what was done to a file
FIELDS = ("q", "kind", "tool", "agent", "session")


@require_safe
@vary_on_headers("HX-Request")
@require_viewer_role
def search_sessions(request: HtmxHttpRequest) -> HttpResponse:
    question = parse_search_query(request.GET)
    if question.text.strip().startswith(OF_FILE):
        path = question.text.strip().removeprefix(OF_FILE).strip()
        return redirect(f"{reverse('search:files')}?{urlencode({'path': path})}")
    before = request.GET.get("before", "")
    events = search_events(question, before=parse_search_position_or_none(before))
    groups = group_and_count_session_hits(question, events.hits, is_all=not before and events.before is None)
    context: dict[str, Any] = {
        "question": question,
        "milestones": milestone_labels_by_hit_event(events.hits),
        "titles": titles.load_session_titles(
            [*(hit.event.session_id for hit in events.hits), question.session_id]
        ),
        "asked": bool(question.search_terms),
        "beyond": count_searched_events_beyond_index(question) if question.search_terms else 0,
        "most_beyond": MOST_BEYOND,
        "deeper": query_string_with_changed_values(request.GET, deeper="1", before=""),
        "not_deeper": query_string_with_changed_values(request.GET, deeper="", before=""),
        "coming": load_indexing_progress(),
        "groups": groups,
        "agents_by_name": load_linked_agents_by_name(group.session.agent_name for group in groups),
        "looked_until": events.looked_until,
        "older": query_string_with_changed_values(request.GET, before=str(events.before))
        if events.before
        else "",
        "first": query_string_with_changed_values(request.GET, before="") if before else "",
    }
    if wants_fragment(request):
        return render(request, "search/_hits.html", context)
    context |= {
        "agents": list_agent_filter_choices(question.agent),
        "kinds": KINDS,
        "days": DayRange.from_query(request.GET),
        "filter_count": count_filled_search_fields(request.GET),
    }
    return render(request, "search/search.html", context)


def milestone_labels_by_hit_event(hits: Sequence[EventHit]) -> dict[int, tuple[str, str, str]]:
    """Return icon, text and tone by event id, for hits that are neither calls nor messages.

    They look the same as in the timeline.
    """
    rows = {*CATEGORIES["messages"], *CATEGORIES["calls"]}
    points: dict[str, list[int]] = {}
    for hit in hits:
        if hit.event.event_type not in rows:
            points.setdefault(hit.event.session_id, []).append(hit.event.pk)
    return {
        event.id: milestone_icon_text_and_tone(event)
        for session_id, ids in points.items()
        for event in SessionTimeline(session_id).read_events_with_ids(ids)
    }


def count_filled_search_fields(data: QueryDict) -> int:
    """Return how many of the fields are filled that a phone hides behind a button."""
    return sum(bool(data.get(name)) for name in ("kind", "tool", "agent", "since", "until"))


def parse_search_query(data: QueryDict) -> SearchQuery:
    """Return the search that the query string describes. Invalid values are ignored."""
    days = DayRange.from_query(data)
    texts = {name: data.get(name, "")[:300] for name in FIELDS}
    return SearchQuery(
        text=texts["q"],
        session_id=texts["session"],
        kind=texts["kind"] if texts["kind"] in dict(KINDS) else "",
        tool=texts["tool"],
        agent=texts["agent"],
        since=days.start_instant,
        until=days.end_instant,
        is_deep=data.get("deeper") == "1",
    )
