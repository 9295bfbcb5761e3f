"""Writing a note to the agent of a session at work, and seeing what became of it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from coordinator.actions import notes as notes_of
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person
from coordinator.models import Session
from dashboard.frame.guards import approver, viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.sessions.notes import notes_context


@require_safe
@never_cache
@viewer
def notes(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """The session's newest notes, fetched again when one is written or delivered."""
    session = get_object_or_404(Session, pk=session_id)
    return render(request, "sessions/_notes_now.html", notes_context(session))


@require_POST
@approver
def write(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Write a note. What is wrong with it is said beside the field, and its text stays there."""
    session = get_object_or_404(Session, pk=session_id)
    text, problem, status = request.POST.get("text", ""), "", 200
    try:
        notes_of.write(session_id, text, by=person(request.user), now=timezone.now())
        text = ""
    except SignalboxError as refusal:
        problem, status = str(refusal.detail), refusal.status
    if wants_fragment(request):
        session.refresh_from_db()
        context = notes_context(session) | {"note_text": text, "note_problem": problem}
        return render(request, "sessions/_notes.html", context, status=status)
    if problem:
        messages.error(request, problem)
    return redirect("sessions:detail", session_id)
