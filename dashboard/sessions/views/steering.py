"""Steering a session from its page: the next prompt, the queue, the current turn, the agent's settings."""

from __future__ import annotations

import base64
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone

from coordinator.actions import runs
from coordinator.actions.driving import commands
from coordinator.errors import BadRequest, RequestTooLarge, SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_POST
from coordinator.lib.body_limits import UPLOAD, declare_request_body_allowance
from coordinator.models import Run, Session
from coordinator.runs.statuses import ACTIVE, RESUME
from dashboard.frame import form_refusals as refusals
from dashboard.frame.guards import require_approver
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.sessions.notes import build_notes_context
from dashboard.sessions.steering import build_steering_context

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MOST_IMAGES = 10
MOST_BYTES = 8 * 1024 * 1024  # of all images of a prompt


@require_POST
@require_approver
@declare_request_body_allowance(UPLOAD)
def queue_session_prompt(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Order the session's next turn, which waits while another one runs. A script receives the new queue."""
    session = get_object_or_404(Session, pk=session_id)
    assert request.user.is_authenticated
    try:
        text = request.POST.get("text", "").replace("\r\n", "\n").strip()
        images = read_prompt_images(request)
        if not text and not images:
            raise BadRequest("Write what the agent should do.")
        runs.queue_start_or_resume_run(
            kind=RESUME,
            session_id=session_id,
            prompt=text,
            parameters={"prompt": text, "images": images} if images else None,
            actor=person_actor(request.user),
            now=timezone.now(),
        )
    except SignalboxError as refusal:
        if wants_fragment(request):
            return JsonResponse({"detail": str(refusal.detail)}, status=refusal.status)
        messages.error(request, str(refusal.detail))
        return redirect("sessions:detail", session_id)
    if wants_fragment(request):
        return render_composer_parts(request, session)
    return redirect(f"{reverse('sessions:detail', args=[session_id])}?from=end")


def read_prompt_images(request: HtmxHttpRequest) -> list[dict[str, str]]:
    """Return the images of a form in the format of a prompt. Raises BadRequest and RequestTooLarge."""
    files = request.FILES.getlist("files")
    if len(files) > MOST_IMAGES:
        raise BadRequest(f"A prompt may have at most {MOST_IMAGES} images.")
    if sum(file.size or 0 for file in files) > MOST_BYTES:
        raise RequestTooLarge(f"The images of a prompt may total {MOST_BYTES // 1024 // 1024} MB.")
    images = []
    for file in files:
        if file.content_type not in IMAGES:
            raise BadRequest(f"{file.name} is not an image that agents accept. Use PNG, JPEG, GIF or WebP.")
        images.append({"mimeType": file.content_type, "data": base64.b64encode(file.read()).decode()})
    return images


def render_composer_parts(request: HtmxHttpRequest, session: Session) -> HttpResponse:
    """Return the parts around the field that change after something was sent."""
    session.refresh_from_db()
    context = build_steering_context(session) | build_notes_context(session)
    return render(request, "sessions/_steer_sent.html", context)


@require_POST
@require_approver
def stop_session_turn(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Stop the session's current turn. Queued prompts run after it."""
    assert request.user.is_authenticated
    session = get_object_or_404(Session, pk=session_id)
    with refusals.add_refusal_message_during_block(request, missing_is_404=True):
        working = Run.objects.filter(session=session, status__in=ACTIVE).first()
        if working is None:
            messages.info(request, "No turn is running.")
        else:
            stopped = runs.request_run_stop(
                working.run_id, actor=person_actor(request.user), now=timezone.now()
            )
            messages.success(request, stopped.message or "The turn is being stopped.")
    return redirect("sessions:detail", session_id)


@require_POST
@require_approver
def remove_queued_prompt(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Remove a prompt from the queue before it runs."""
    assert request.user.is_authenticated
    with refusals.add_refusal_message_during_block(request, missing_is_404=True):
        run = get_object_or_404(Run, pk=request.POST.get("run", ""), session_id=session_id)
        runs.request_run_stop(
            run.run_id, actor=person_actor(request.user), now=timezone.now(), only_pending=True
        )
        messages.success(request, "The prompt was removed from the queue.")
    return redirect("sessions:detail", session_id)


@require_POST
@require_approver
def send_session_command(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Send a command to the session's runner. `what` has the format of `split_session_command_text`."""
    assert request.user.is_authenticated
    get_object_or_404(Session, pk=session_id)
    with refusals.add_refusal_message_during_block(request, missing_is_404=True):
        session_command = split_session_command_text(request.POST.get("what", ""))
        commands.queue_session_command(
            session_id, session_command, actor=person_actor(request.user), now=timezone.now()
        )
        is_about_files = "remove_worktree" in session_command
        messages.success(request, "Sent to the runner." if is_about_files else "Sent to the agent.")
        if is_about_files:
            return redirect("sessions:changes", session_id)
    return redirect("sessions:detail", session_id)


def split_session_command_text(command_text: str) -> dict[str, Any]:
    """Return a button's value as a command.

    Examples: `set_mode=plan`, `set_config:effort=high`, `remove_worktree=discard`.
    """
    kind, _, value = command_text.partition("=")
    kind, _, option = kind.partition(":")
    if kind == "remove_worktree":
        return {kind: value or True}
    if kind == "set_config":
        return {kind: {"configId": option, "value": value}}
    return {kind: value}
