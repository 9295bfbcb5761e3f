"""Actions in the list of sessions: tags, pins, the archive, columns and saved views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone

from coordinator.actions.sessions import session_lists
from coordinator.errors import BadRequest, SignalboxError
from coordinator.identity.declarations import require_http_methods, require_POST
from coordinator.models import ArchivedSession, Session, SessionPin, SessionTag
from coordinator.sessions import titles
from dashboard.frame import form_refusals as refusals
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.sessions.tables import COLUMN_LABELS
from dashboard.sessions.views.listing import filter_sessions_and_build_context

Act = Callable[[Sequence[str], str, User, datetime], int]
# By the value of the button: the action, and the participle for the message about the changed sessions.
ACTS: dict[str, tuple[Act, str]] = {
    "pin": (lambda ids, _tags, user, now: session_lists.pin_sessions(ids, user=user, now=now), "pinned"),
    "unpin": (
        lambda ids, _tags, user, now: session_lists.unpin_sessions(ids, user=user, now=now),
        "unpinned",
    ),
    "archive": (
        lambda ids, _tags, user, now: session_lists.archive_sessions(ids, user=user, now=now),
        "archived",
    ),
    "restore": (
        lambda ids, _tags, user, now: session_lists.unarchive_sessions(ids, user=user, now=now),
        "brought back from the archive",
    ),
    "tag": (
        lambda ids, tags, user, now: session_lists.add_session_tags(
            ids, parse_nonempty_session_tags(tags), user=user, now=now
        ),
        "tagged",
    ),
    "untag": (
        lambda ids, tags, user, now: session_lists.remove_session_tags(
            ids, parse_nonempty_session_tags(tags), user=user, now=now
        ),
        "changed",
    ),
}


def parse_nonempty_session_tags(text: str) -> list[str]:
    tags = session_lists.parse_session_tags(text)
    if not tags:
        raise BadRequest("Type a tag first, then choose Add tag or Remove tag.")
    return tags


def session_list_url(query: str) -> str:
    return f"{reverse('sessions:list')}{f'?{query}' if query else ''}"


@require_POST
@require_viewer_role
def apply_action_to_chosen_sessions(request: HtmxHttpRequest) -> HttpResponse:
    """Apply an action to the chosen sessions, or toggle the pin of one.

    The response is the list of sessions with the query `back`.
    """
    assert request.user.is_authenticated
    back = request.POST.get("back", "")[: session_lists.MAX_QUERY_LENGTH]
    now = timezone.now()
    toggled = request.POST.get("toggle-pin", "")
    with refusals.add_refusal_message_during_block(request):
        if toggled:
            pinned = SessionPin.objects.filter(user_id=request.user.pk, session_id=toggled).exists()
            turn = session_lists.unpin_sessions if pinned else session_lists.pin_sessions
            turn([toggled], user=request.user, now=now)
        elif request.POST.get("do") in ACTS:
            act, done = ACTS[request.POST["do"]]
            chosen_ids = request.POST.getlist("chosen")
            number = act(chosen_ids, request.POST.get("tags", ""), request.user, now)
            noun = "session" if number == 1 else "sessions"
            messages.success(
                request, f"{number} {noun} {done}." if number else "Nothing to change: it is so already."
            )
        else:
            raise BadRequest("Choose what to do with the sessions.")
    if wants_fragment(request) and messages.get_messages(request):
        return HttpResponse(headers={"HX-Redirect": session_list_url(back)})  # the page shows the message
    if wants_fragment(request):
        request.GET = QueryDict(back)  # the links in the fragment are built from it
        return render(request, "sessions/_results.html", filter_sessions_and_build_context(request)[1])
    return redirect(session_list_url(back))


@require_POST
@require_viewer_role
def save_visible_session_columns(request: HtmxHttpRequest) -> HttpResponse:
    """Store which columns this person's list shows."""
    assert request.user.is_authenticated
    chosen = request.POST.getlist("column")
    session_lists.save_session_list_columns(
        [name for name in COLUMN_LABELS if name in chosen], user=request.user
    )
    return redirect(session_list_url(request.POST.get("back", "")[: session_lists.MAX_QUERY_LENGTH]))


@require_POST
@require_viewer_role
def save_or_delete_filter_preset_view(request: HtmxHttpRequest) -> HttpResponse:
    """Save the filters of the query `back` under a name, or delete a saved view."""
    assert request.user.is_authenticated
    back = request.POST.get("back", "")
    with refusals.add_refusal_message_during_block(request):
        if deleted := request.POST.get("delete", ""):
            if not (deleted.isascii() and deleted.isdecimal() and len(deleted) < 19):
                raise BadRequest("There is no such view.")
            name = session_lists.delete_saved_session_view(int(deleted), user=request.user)
            messages.success(request, f"Deleted the view “{name}”.")
        else:
            query = QueryDict(back, mutable=True)
            query.pop("page", None)
            view = session_lists.save_session_view(
                request.POST.get("name", ""), query.urlencode(), user=request.user
            )
            messages.success(request, f"Saved the view “{view.name}”.")
    return redirect(session_list_url(back[: session_lists.MAX_QUERY_LENGTH]))


class SessionTagsForm(forms.Form):
    """The tags of one session."""

    tags = forms.CharField(
        required=False,
        max_length=1_000,
        label="Tags",
        help_text="Separate tags by commas. Everybody sees them, and the list can be narrowed to one.",
        widget=forms.TextInput({"autofocus": True, "autocomplete": "off", "list": "known-tags"}),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@require_viewer_role
def edit_session_tags_and_archive(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Show a session's tags, pin and archive state, and change them on POST."""
    assert request.user.is_authenticated
    session = get_object_or_404(Session, pk=session_id)
    tags = list(SessionTag.objects.filter(session=session).order_by("tag").values_list("tag", flat=True))
    form = SessionTagsForm(
        request.POST if request.POST.get("do") == "save-tags" else None, initial={"tags": ", ".join(tags)}
    )
    if request.method == "POST":
        do, now = request.POST.get("do", ""), timezone.now()
        if form.is_bound and form.is_valid():
            try:
                session_lists.replace_session_tags(
                    session_id,
                    session_lists.parse_session_tags(form.cleaned_data["tags"]),
                    user=request.user,
                    now=now,
                )
                messages.success(request, "The tags are saved.")
                return redirect("sessions:detail", session_id)
            except SignalboxError as refusal:
                form.add_error("tags", str(refusal.detail))
        elif do in ("pin", "unpin", "archive", "restore"):
            act, done = ACTS[do]
            with refusals.add_refusal_message_during_block(request):
                act([session_id], "", request.user, now)
                messages.success(request, f"The session is {done}.")
            return redirect("sessions:keep-one", session_id)
    context = {
        "session": session,
        "session_title": titles.load_session_title(session_id),
        "form": form,
        "pinned": SessionPin.objects.filter(user_id=request.user.pk, session=session).exists(),
        "archived": ArchivedSession.objects.filter(pk=session_id).first(),
        "children": session.children.count(),
    }
    return render(request, "sessions/keep.html", context, status=422 if form.errors else 200)
