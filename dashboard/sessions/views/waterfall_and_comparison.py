"""A session's waterfall, and its comparison with another session."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from coordinator.identity.declarations import require_safe
from coordinator.models import Session
from coordinator.sessions.list_facts import session_start_microseconds
from coordinator.sessions.statuses import LIVE
from coordinator.sessions.timeline import get_or_load_event_counts, load_cached_density_slots
from coordinator.sessions.titles import load_session_title
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.sessions.changes import count_changed_files_if_reported
from dashboard.sessions.comparing import (
    build_session_comparison_context,
    list_comparison_candidates,
    load_compared_session,
)
from dashboard.timeline.heading import session_page_url
from dashboard.timeline.minimap import build_minimap
from dashboard.timeline.waterfall import Waterfall, WaterfallQuery, load_waterfall_or_none


@require_safe
@require_viewer_role
def show_session_waterfall(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Show the events of a range of the session on a time axis.

    A drag over the axis redirects to the dragged range.
    """
    session = get_object_or_404(Session, pk=session_id)
    query = WaterfallQuery.parse_waterfall_query(request.GET)
    drag = parse_dragged_percent_range(request.GET.get("left", ""), request.GET.get("right", ""))
    waterfall = load_waterfall_or_none(session, query, timezone.now(), drag=drag)
    if drag is not None and waterfall is not None:
        return redirect(f"{request.path}{query.query_between(waterfall.from_us, waterfall.to_us)}")
    context = {
        "session": session,
        "session_title": load_session_title(session.pk),
        "changed_files": count_changed_files_if_reported(session.pk),
        "query": query,
        "waterfall": waterfall,
        "minimap": build_waterfall_minimap(session, query, waterfall) if waterfall else None,
        "follows": session.status in LIVE and query.from_us is None and query.to_us is None,
    }
    fragment = wants_fragment(request)
    return render(request, "sessions/_waterfall.html" if fragment else "sessions/waterfall.html", context)


def build_waterfall_minimap(session: Session, query: WaterfallQuery, waterfall: Waterfall) -> object:
    """Return the minimap of the whole session, with links to the ranges of the waterfall."""
    counts = get_or_load_event_counts(session.pk)
    slots = load_cached_density_slots(session.pk, total=counts.total, errors=counts.errors)
    return build_minimap(
        slots,
        lambda slot: query.query_between(slot.from_us, slot.to_us),
        session_page_url(session),
        (waterfall.from_us, waterfall.to_us),
        session_start_microseconds(session),
    )


def parse_dragged_percent_range(left: str, right: str) -> tuple[float, float] | None:
    """Return the two ends of a drag in percent of the width, or None if they are not valid."""
    try:
        first, last = float(left), float(right)
    except ValueError:
        return None
    return (first, last) if 0 <= first <= 100 and 0 <= last <= 100 and first != last else None


@require_safe
@require_viewer_role
def compare_sessions(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Show the session next to another one, or sessions to compare it with."""
    session, now = get_object_or_404(Session, pk=session_id), timezone.now()
    typed = request.GET.get("with", "").strip()[:500].replace("\0", "")
    other = Session.objects.filter(pk=typed).first() if typed else None
    problem = ""
    if typed and other is None:
        problem = "No session has this id. Choose one below, or copy the id from the other session's page."
    elif other is not None and other.pk == session.pk:
        problem, other = "This is the same session. Choose another one.", None
    session_title = load_session_title(session.pk)
    context = {
        "session": session,
        "session_title": session_title,
        "changed_files": count_changed_files_if_reported(session.pk),
        "typed": typed,
        "problem": problem,
        "candidates": list_comparison_candidates(session),
        "second": other,
    }
    if other is not None:
        sides = [
            load_compared_session(session, session_title, now),
            load_compared_session(other, load_session_title(other.pk), now),
        ]
        context |= {"sides": sides, **build_session_comparison_context(*sides)}
    return render(
        request, "sessions/compare.html", context, status=404 if problem and typed and not other else 200
    )
