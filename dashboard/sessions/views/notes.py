"""Writing a note to the agent of a running session, and showing what became of it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions.sessions import notes as notes_of
from coordinator.errors import BadRequest, SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_POST, require_safe
from coordinator.lib.body_limits import UPLOAD, declare_request_body_allowance
from coordinator.models import Session
from dashboard.frame.guards import require_approver, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.sessions.notes import build_notes_context
from dashboard.sessions.views.steering import render_composer_parts


@require_safe
@never_cache
@require_viewer_role
def show_session_notes(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Return the session's latest notes. A page loads them again when a note is written or delivered."""
    session = get_object_or_404(Session, pk=session_id)
    return render(request, "sessions/_notes_now.html", build_notes_context(session))


@require_POST
@require_approver
@declare_request_body_allowance(UPLOAD)
def write_session_note_view(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Write a note. A script receives the updated parts around the field, or the error as JSON."""
    session = get_object_or_404(Session, pk=session_id)
    try:
        if request.FILES:
            raise BadRequest("Notes carry no images. Queue it as a prompt.")
        text = request.POST.get("text", "")
        notes_of.write_note(session_id, text, actor=person_actor(request.user), now=timezone.now())
    except SignalboxError as refusal:
        if wants_fragment(request):
            return JsonResponse({"detail": str(refusal.detail)}, status=refusal.status)
        messages.error(request, str(refusal.detail))
        return redirect("sessions:detail", session_id)
    if wants_fragment(request):
        return render_composer_parts(request, session)
    return redirect("sessions:detail", session_id)
