"""Writing a note to the agent of a session at work, and seeing what became of it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions.sessions import notes as notes_of
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_POST, require_safe
from coordinator.models import Session
from dashboard.frame.guards import require_approver, require_viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.sessions.notes import build_notes_context


@require_safe
@never_cache
@require_viewer
def show_session_notes(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """The session's newest notes, fetched again when one is written or delivered."""
    session = get_object_or_404(Session, pk=session_id)
    return render(request, "sessions/_notes_now.html", build_notes_context(session))


@require_POST
@require_approver
def write_session_note_view(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Write a note. What is wrong with it is said beside the field, and its text stays there."""
    session = get_object_or_404(Session, pk=session_id)
    text, problem, status = request.POST.get("text", ""), "", 200
    try:
        notes_of.write_note(session_id, text, by=person_actor(request.user), now=timezone.now())
        text = ""
    except SignalboxError as refusal:
        problem, status = str(refusal.detail), refusal.status
    if wants_fragment(request):
        session.refresh_from_db()
        context = build_notes_context(session) | {"note_text": text, "note_problem": problem}
        return render(request, "sessions/_notes.html", context, status=status)
    if problem:
        messages.error(request, problem)
    return redirect("sessions:detail", session_id)
