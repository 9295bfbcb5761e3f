"""The tab "Changes" of a session: what it changed in its work tree."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.vary import vary_on_headers

from coordinator.identity.declarations import require_safe
from coordinator.models import Session
from coordinator.sessions.statuses import LIVE
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.sessions.changes import build_changes_context
from dashboard.timeline.heading import build_session_header_context
from dashboard.timeline.query import TimelineQuery


@require_safe
@vary_on_headers("HX-Request")
@require_viewer_role
def show_session_changes(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Show what the whole session, the turn `turn` or the file `file` changed.

    A fragment contains only the changes.
    """
    session = get_object_or_404(Session, pk=session_id)
    context = build_changes_context(session, request.GET.get("turn", ""), request.GET.get("file", ""))
    context |= {"session": session, "is_live": session.status in LIVE, "alone": "file" in request.GET}
    if wants_fragment(request):
        return render(request, "sessions/_changes.html", context)
    return render(
        request, "sessions/changes.html", build_session_header_context(session, TimelineQuery()) | context
    )
