"""What people do to a session: stop it, delete it. Resuming is ordering a run (views.runs)."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from coordinator.actions import runs, sessions
from coordinator.actors import person
from coordinator.errors import SignalboxError
from coordinator.models import Session
from dashboard import refusals
from dashboard.guards import admin, approver
from dashboard.htmx import HtmxHttpRequest


@require_POST
@approver
def stop(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Stop whatever a session does."""
    assert request.user.is_authenticated
    with refusals.as_message(request, missing_is_404=True):
        stopped = runs.stop_session(session_id, by=person(request.user), now=timezone.now())
        messages.success(request, stopped.message or f"The session is {stopped.status}.")
    return redirect("sessions:detail", session_id)


@require_http_methods(["GET", "HEAD", "POST"])
@admin
def delete(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Delete a session with everything in it, once its id has been typed."""
    session = get_object_or_404(Session, pk=session_id)
    problem = ""
    if request.method == "POST":
        if request.POST.get("typed", "").strip() != session_id:
            problem = "That is not this session's id. Nothing was deleted."
        else:
            problem = _delete(request, session_id)
            if not problem:
                return redirect("sessions:list")
    context = {
        "session": session,
        "problem": problem,
        "events": session.events.count(),
        "children": session.children.count(),
    }
    return render(request, "sessions/delete.html", context, status=422 if problem else 200)


def _delete(request: HtmxHttpRequest, session_id: str) -> str:
    """Delete, and return what speaks against it, or nothing."""
    assert request.user.is_authenticated
    try:
        gone = sessions.delete(session_id, by=person(request.user), now=timezone.now())
    except SignalboxError as refusal:
        return str(refusal.detail)
    messages.success(request, f"Deleted {session_id} with {gone.events:,} events and {gone.runs:,} runs.")
    return ""
