"""Sessions: the list and one session's live timeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from coordinator.lib import instants
from coordinator.models import Session
from coordinator.search import events as search
from coordinator.search.index import Walk
from coordinator.sessions.list_facts import began_us
from coordinator.sessions.statuses import LIVE
from coordinator.sessions.timeline import (
    Counts,
    EventPlace,
    Filters,
    Timeline,
    Window,
    density_of,
    news_of,
    position,
    recent_counts,
    row_place,
    rows_of,
    rows_since,
)
from coordinator.sessions.timeline.rows import FAR
from dashboard.budgets.standings import warnings
from dashboard.frame.guards import viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.sessions.notes import notes_context
from dashboard.timeline.draft import draft_context
from dashboard.timeline.heading import header_context, page_url
from dashboard.timeline.minimap import Minimap, minimap_of
from dashboard.timeline.news import asked_of
from dashboard.timeline.query import WINDOW, Query, window_of
from dashboard.timeline.rows import shown
from dashboard.timeline.waterfall import waterfall_of

NESTED = 60  # events of a child that are read inside its parent


@require_safe
@vary_on_headers("HX-Request")
@viewer
def detail(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Show a window of a session's timeline; a fragment has the window alone."""
    session = get_object_or_404(Session, pk=session_id)
    query = Query.of(request.GET)
    context = window_context(session, query)
    if wants_fragment(request):
        return render(request, "sessions/_window.html", context)
    context |= header_context(session, query) | notes_context(session)
    context["budget_warnings"] = warnings(session, timezone.now())
    context["minimap"] = minimap_for(session, query, context["counts"], context["window"])
    return render(request, "sessions/detail.html", context)


@require_safe
@viewer
def newest(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Return what arrived since change `since`: rows to append, calls that are complete now, the next `since`.

    Where too much has happened, or the reader's place is no longer kept, htmx is told to load the end afresh.
    """
    session = get_object_or_404(Session, pk=session_id)
    query = Query.of(request.GET)
    since = request.GET.get("since", "")
    news = news_of(session_id, int(since) if since.isdigit() and len(since) < 19 else -1)
    if news.too_many:
        return HttpResponse(headers={"HX-Redirect": page_url(session) + query.with_place(**{"from": "end"})})
    timeline = Timeline(session_id, filters_of(session, query))
    arrived = rows_since(timeline, timeline.arrived(news.event_ids), session)
    new = arrived.failed if query.errors else arrived.new
    if not query.filtered:
        new = [*new, *asked_of(session, news.request_ids)]
    context = {
        "session": session,
        "query": query,
        "rows": shown(new, session),
        "completed": shown(arrived.completed, session),
        "since": news.upto,
        "is_live": session.status in LIVE,
    }
    return render(request, "sessions/_new.html", context)


@require_safe
@viewer
def header(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Return the session's summary, for a page that did not get it from the stream (timeline.news)."""
    session = get_object_or_404(Session, pk=session_id)
    return render(request, "sessions/_summary.html", header_context(session, Query()))


@require_safe
@viewer
def nested(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Return the beginning of a child's timeline, to be read inside its parent's."""
    session = get_object_or_404(Session, pk=session_id)
    timeline = Timeline(session.pk)
    window = timeline.first(NESTED)
    context = {
        "session": session,
        "rows": shown(rows_of(timeline, window, session), session),
        "window": window,
    }
    return render(request, "sessions/_nested.html", context)


@require_safe
@viewer
def minimap(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Return the strip of the whole session as it was seconds ago; nothing while it fits on its page."""
    session = get_object_or_404(Session, pk=session_id)
    query = Query.of(request.GET)
    drawn = minimap_for(session, query, recent_counts(session.pk))
    return render(request, "sessions/_minimap.html", {"session": session, "query": query, "minimap": drawn})


def minimap_for(
    session: Session, query: Query, counts: Counts, window: Window | None = None
) -> Minimap | None:
    """Return the strip of a session that is longer than a page, framing the window."""
    if counts.total <= WINDOW:
        return None
    slots = density_of(session.pk, total=counts.total, errors=counts.errors)
    return minimap_of(slots, query, window, began_us(session))


@require_safe
@viewer
def go(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Lead on to the next or previous error or message, seen from `place`, or from the row of the event `event`.

    Errors follow one another in the order in which they were reported. What else that row tells of is passed over: the
    MCP gateway and the agent may both tell of one error.
    """
    session = get_object_or_404(Session, pk=session_id)
    query = Query.of(request.GET)
    direction, _, what = request.GET.get("to", "").partition("-")
    filters = Filters(errors=True) if what == "error" else Filters(categories=("messages",))
    backwards = direction == "previous"
    plain = Timeline(session_id)
    event = None if query.event_id is None else plain.place_of(query.event_id)
    place = EventPlace.parse(request.GET.get("place", ""))
    here = event or place or (FAR if backwards else EventPlace(0, 0))
    timeline = plain.seen_through(filters)
    row = row_place(plain, here.event_id) if event else None
    found = timeline.next_place(here, backwards=backwards)
    while found is not None and row is not None and row_place(plain, found.event_id) == row:
        found = timeline.next_place(found, backwards=backwards)
    if found is None:
        messages.info(
            request,
            f"There is no {direction} {what}."
            if what in ("error", "message")
            else "There is nothing further.",
        )
        found = here if here.event_id and here != FAR else None
    if found is None:
        return redirect(page_url(session) + query.without_place)
    kept = query if query.errors or what != "error" else replace(query, categories=(), tool="", text="")
    return redirect(f"{page_url(session)}{kept.with_place(event=found.event_id)}#event-{found.event_id}")


def filters_of(session: Session, query: Query) -> Filters:
    """Return the timeline's filters; words are looked up in the search index."""
    return query.filters(_found(session, query))


def _found(session: Session, query: Query) -> Walk | None:
    return search.in_session(session.pk, query.text) if query.text else None


def window_context(session: Session, query: Query) -> dict[str, Any]:
    since = position()  # before the rows, so that nothing can fall between them
    found = _found(session, query)
    timeline = Timeline(session.pk, query.filters(found))
    window = window_of(query, timeline, live=session.status in LIVE)
    rows = shown(rows_of(timeline, window, session), session)
    return {
        "session": session,
        "query": query,
        "found": found,
        "window": window,
        "rows": rows,
        "older_url": query.with_place(before=window.events[0].place)
        if window.older and window.events
        else "",
        "newer_url": query.with_place(after=window.events[-1].place)
        if window.newer and window.events
        else "",
        "waterfall": waterfall_of(rows, _now_us()),
        "since": since,
        "is_live": session.status in LIVE,
        **draft_context(session.pk),
    }


def _now_us() -> int:
    return instants.to_us(timezone.now())
