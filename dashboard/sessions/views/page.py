"""A session's page: its live timeline, its header and its minimap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.vary import vary_on_headers

from coordinator.identity.declarations import require_safe
from coordinator.lib.storable import parse_database_id_or_none
from coordinator.models import Session
from coordinator.search import events as search
from coordinator.search.index import IndexWalkResult
from coordinator.sessions.list_facts import session_start_microseconds
from coordinator.sessions.statuses import LIVE
from coordinator.sessions.timeline import (
    EventPosition,
    EventWindow,
    SessionEventCounts,
    SessionTimeline,
    TimelineFilters,
    find_timeline_row_position,
    get_or_load_event_counts,
    load_arrived_rows_of_events,
    load_cached_density_slots,
    load_timeline_changes,
    load_window_rows,
    newest_feed_change_id,
)
from coordinator.sessions.timeline.rows import FAR
from dashboard.budgets.states import load_session_budgets_near_limit
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.sessions.notes import build_notes_context
from dashboard.timeline.draft import build_draft_context
from dashboard.timeline.heading import build_session_header_context, session_page_url
from dashboard.timeline.minimap import Minimap, build_minimap
from dashboard.timeline.query import TimelineQuery, load_query_window
from dashboard.timeline.rows import build_timeline_row_displays
from dashboard.timeline.updates import load_approval_timeline_rows

SHORTEST_WITH_MINIMAP = 25  # events; a shorter session fits on a screen
NESTED = 60  # events of a child that are shown inside its parent's timeline


@require_safe
@vary_on_headers("HX-Request")
@require_viewer_role
def show_session(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Show a window of a session's timeline. A fragment contains only the window."""
    session = get_object_or_404(Session, pk=session_id)
    query = TimelineQuery.parse_timeline_query(request.GET)
    context = build_window_context(session, query)
    if wants_fragment(request):
        return render(request, "sessions/_window.html", context)
    context |= build_session_header_context(session, query) | build_notes_context(session)
    context["budget_warnings"] = load_session_budgets_near_limit(session, timezone.now())
    context["minimap"] = build_session_minimap_or_none(session, query, context["counts"], context["window"])
    return render(request, "sessions/detail.html", context)


@require_safe
@require_viewer_role
def show_new_timeline_rows(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Return what arrived since change `since`: new rows, calls that are now complete, and the next `since`.

    If too much has happened, or the changes since then were pruned, htmx is redirected to the end of the
    timeline.
    """
    session = get_object_or_404(Session, pk=session_id)
    query = TimelineQuery.parse_timeline_query(request.GET)
    since = parse_database_id_or_none(request.GET.get("since", ""))
    changes = load_timeline_changes(session_id, -1 if since is None else since)
    if changes.too_many:
        return HttpResponse(
            headers={
                "HX-Redirect": session_page_url(session) + query.query_string_at_position(**{"from": "end"})
            }
        )
    timeline = SessionTimeline(session_id, search_and_build_timeline_filters(session, query))
    arrived = load_arrived_rows_of_events(
        timeline, timeline.read_filtered_events_with_ids(changes.event_ids), session
    )
    new = arrived.failed if query.errors else arrived.new
    if not query.has_timeline_filters:
        new = [*new, *load_approval_timeline_rows(session, changes.request_ids)]
    context = {
        "session": session,
        "query": query,
        "rows": build_timeline_row_displays(new, session),
        "completed": build_timeline_row_displays(arrived.completed, session),
        "since": changes.upto,
        "is_live": session.status in LIVE,
    }
    return render(request, "sessions/_new.html", context)


@require_safe
@require_viewer_role
def show_session_header(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Return the session's summary, for a page that did not receive it from the stream.

    dashboard.timeline.updates sends it to the stream.
    """
    session = get_object_or_404(Session, pk=session_id)
    return render(request, "sessions/_summary.html", build_session_header_context(session, TimelineQuery()))


@require_safe
@require_viewer_role
def show_child_session_timeline(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Return the beginning of a child's timeline, to show it inside its parent's."""
    session = get_object_or_404(Session, pk=session_id)
    timeline = SessionTimeline(session.pk)
    window = timeline.read_first_events(NESTED)
    context = {
        "session": session,
        "rows": build_timeline_row_displays(load_window_rows(timeline, window, session), session),
        "window": window,
    }
    return render(request, "sessions/_nested.html", context)


@require_safe
@require_viewer_role
def show_session_minimap(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Return the minimap of the whole session, which may be seconds old. A short session has none."""
    session = get_object_or_404(Session, pk=session_id)
    query = TimelineQuery.parse_timeline_query(request.GET)
    drawn = build_session_minimap_or_none(session, query, get_or_load_event_counts(session.pk))
    return render(request, "sessions/_minimap.html", {"session": session, "query": query, "minimap": drawn})


def build_session_minimap_or_none(
    session: Session, query: TimelineQuery, counts: SessionEventCounts, window: EventWindow | None = None
) -> Minimap | None:
    """Return the minimap of a session, with a frame around the window; None if the session is short."""
    if counts.total < SHORTEST_WITH_MINIMAP:
        return None
    slots = load_cached_density_slots(session.pk, total=counts.total, errors=counts.errors)
    frame = (window.events[0].at_us, window.events[-1].at_us) if window and window.events else None
    return build_minimap(
        slots,
        lambda slot: query.query_string_at_position(after=EventPosition(slot.from_us, 0)),
        session_page_url(session),
        frame,
        session_start_microseconds(session),
    )


@require_safe
@require_viewer_role
def jump_to_next_or_previous_event(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Redirect to the next or previous error or message.

    The search starts at the position `place`, or at the row of the event `event`. Errors are in the order in
    which they were reported. Further errors in the same row are skipped, because the MCP gateway and the
    agent may both report the same error.
    """
    session = get_object_or_404(Session, pk=session_id)
    query = TimelineQuery.parse_timeline_query(request.GET)
    direction, _, target = request.GET.get("to", "").partition("-")
    filters = TimelineFilters(errors=True) if target == "error" else TimelineFilters(categories=("messages",))
    backwards = direction == "previous"
    plain = SessionTimeline(session_id)
    event = None if query.event_id is None else plain.find_event_position(query.event_id)
    requested_position = EventPosition.parse_event_position_or_none(request.GET.get("place", ""))
    start = event or requested_position or (FAR if backwards else EventPosition(0, 0))
    timeline = plain.with_filters(filters)
    row = find_timeline_row_position(plain, start.event_id) if event else None
    position = timeline.find_next_position(start, backwards=backwards)
    while (
        position is not None
        and row is not None
        and find_timeline_row_position(plain, position.event_id) == row
    ):
        position = timeline.find_next_position(position, backwards=backwards)
    if position is None:
        messages.info(
            request,
            f"There is no {direction} {target}."
            if target in ("error", "message")
            else "There is nothing further.",
        )
        position = start if start.event_id and start != FAR else None
    if position is None:
        return redirect(session_page_url(session) + query.query_without_position)
    wider_query = (
        query if query.errors or target != "error" else replace(query, categories=(), tool="", text="")
    )
    return redirect(
        f"{session_page_url(session)}{wider_query.query_string_at_position(event=position.event_id)}#event-{position.event_id}"
    )


def search_and_build_timeline_filters(session: Session, query: TimelineQuery) -> TimelineFilters:
    """Return the filters of the timeline. Words of the query are looked up in the search index."""
    return query.build_event_filters_of_query(find_matching_events_in_session(session, query))


def find_matching_events_in_session(session: Session, query: TimelineQuery) -> IndexWalkResult | None:
    return search.walk_session_index_or_none(session.pk, query.text) if query.text else None


def build_window_context(session: Session, query: TimelineQuery) -> dict[str, Any]:
    since = newest_feed_change_id()  # read before the rows, so that no change in between is missed
    within_session = find_matching_events_in_session(session, query)
    timeline = SessionTimeline(session.pk, query.build_event_filters_of_query(within_session))
    window = load_query_window(query, timeline, live=session.status in LIVE)
    rows = build_timeline_row_displays(load_window_rows(timeline, window, session), session)
    return {
        "session": session,
        "query": query,
        "found": within_session,
        "window": window,
        "rows": rows,
        "older_url": query.query_string_at_position(before=window.events[0].event_position)
        if window.older and window.events
        else "",
        "newer_url": query.query_string_at_position(after=window.events[-1].event_position)
        if window.newer and window.events
        else "",
        "since": since,
        "is_live": session.status in LIVE,
        **build_draft_context(session.pk),
    }
