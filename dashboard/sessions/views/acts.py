"""Actions on a session: rename, stop and delete it. Resuming it orders a run (dashboard.runs.views)."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from coordinator.actions import runs
from coordinator.actions.sessions import sessions, titles
from coordinator.actions.sessions.titles import MOST_TYPED
from coordinator.errors import SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_http_methods, require_POST
from coordinator.models import Session, SessionTitle
from coordinator.sessions import titles as known_titles
from dashboard.frame import form_refusals as refusals
from dashboard.frame.guards import require_admin, require_approver
from dashboard.frame.htmx import HtmxHttpRequest


@require_POST
@require_approver
def stop_session_view(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    assert request.user.is_authenticated
    with refusals.add_refusal_message_during_block(request, missing_is_404=True):
        stopped = runs.request_session_stop(session_id, actor=person_actor(request.user), now=timezone.now())
        messages.success(request, stopped.message or f"The session is {stopped.status}.")
    return redirect("sessions:detail", session_id)


class SessionTitleForm(forms.Form):
    """The title that a person gives to a session."""

    title = forms.CharField(
        required=False,
        max_length=MOST_TYPED,
        label="Title",
        help_text="What the session is about. If empty, the title comes from the agent or the first prompt.",
        widget=forms.TextInput({"autofocus": True, "autocomplete": "off"}),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@require_approver
def rename_session_view(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Set a session's title. A title from a person is not replaced by one from the agent."""
    assert request.user.is_authenticated
    session = get_object_or_404(Session, pk=session_id)
    session_title = known_titles.load_session_title(session_id)
    form = SessionTitleForm(request.POST or None, initial={"title": session_title})
    if request.method == "POST" and form.is_valid():
        called = titles.save_person_title(
            session_id, form.cleaned_data["title"], actor=person_actor(request.user), now=timezone.now()
        )
        messages.success(
            request, f"The session is now called “{called}”." if called else "The session now has no title."
        )
        return redirect("sessions:detail", session_id)
    context = {
        "session": session,
        "session_title": session_title,
        "form": form,
        "own": SessionTitle.objects.filter(pk=session_id).first(),
    }
    return render(request, "sessions/rename.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@require_admin
def delete_session_view(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Delete a session with all its data, if the person has typed its id."""
    session = get_object_or_404(Session, pk=session_id)
    problem = ""
    if request.method == "POST":
        if request.POST.get("typed", "").strip() != session_id:
            problem = "This is not the session's id, so nothing was deleted. Type the id to confirm."
        else:
            problem = delete_session_or_return_error(request, session_id)
            if not problem:
                return redirect("sessions:list")
    context = {
        "session": session,
        "session_title": known_titles.load_session_title(session_id),
        "problem": problem,
        "events": session.events.count(),
        "children": session.children.count(),
    }
    return render(request, "sessions/delete.html", context, status=422 if problem else 200)


def delete_session_or_return_error(request: HtmxHttpRequest, session_id: str) -> str:
    assert request.user.is_authenticated
    try:
        removal = sessions.remove_session(session_id, actor=person_actor(request.user), now=timezone.now())
    except SignalboxError as refusal:
        return str(refusal.detail)
    messages.success(
        request, f"Deleted {session_id} with {removal.events:,} events and {removal.runs:,} runs."
    )
    return ""
