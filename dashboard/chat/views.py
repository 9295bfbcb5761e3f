"""Chats: the list of agents, one thread, sending and deleting messages."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.vary import vary_on_headers
from django_htmx.http import trigger_client_event

from coordinator.actions.chat import chat as actions
from coordinator.api.chat import read_uploads_of_request
from coordinator.chat import reading as chat
from coordinator.chat import search as chat_search
from coordinator.chat.presence import agent_presence_status
from coordinator.errors import BadRequest, Conflict, NotFound, SignalboxError
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_http_methods, require_POST, require_safe
from coordinator.lib.body_limits import UPLOAD, declare_request_body_allowance
from coordinator.models import Agent, ChatAttachment, ChatMessage
from dashboard.chat.messages import build_chat_message_views
from dashboard.chat.threads import load_chat_rows
from dashboard.frame.guards import require_admin, require_approver, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment


@require_safe
@require_viewer_role
def list_chats(request: HtmxHttpRequest) -> HttpResponse:
    return render(request, "chat/list.html", {"rows": load_chat_rows(request.user)})


@require_safe
@require_viewer_role
def redirect_to_chat_thread(request: HtmxHttpRequest) -> HttpResponse:
    """Redirect to the thread of the agent that the form names."""
    return redirect("chat:thread", find_chat_agent_or_404(request.GET.get("agent", "")).pk)


@require_safe
@require_viewer_role
def list_chat_agents(request: HtmxHttpRequest) -> HttpResponse:
    """Return the list of agents as a fragment. `current` is the agent whose thread is open."""
    context = {"rows": load_chat_rows(request.user), "current": request.GET.get("current", "")}
    return render(request, "chat/_agents.html", context)


@require_safe
@vary_on_headers("HX-Request")
@require_viewer_role
def show_chat_thread(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    """Show the newest messages of a thread, or with `message` those around that message.

    A fragment has the messages `before` a position.
    """
    agent = find_chat_agent_or_404(agent_id)
    try:
        page, at_end = load_thread_page_with_end(request, agent)
    except BadRequest as problem:
        return HttpResponse(str(problem.detail), status=400)
    context = {
        "agent": agent,
        "older": page.has_more,
        "messages_shown": build_chat_message_views(page.messages, agent.name),
    }
    if wants_fragment(request):
        return render(request, "chat/_older.html", context)
    context |= {
        "rows": load_chat_rows(request.user),
        "current": agent.pk,
        "status": agent_presence_status(agent, timezone.now()),
        "delivery": chat.newest_user_message_delivery_state(agent.pk),
        "target": request.GET.get("message", ""),
        "at_end": at_end,
        "most_bytes": settings.ATTACHMENT_MAX_BYTES,
    }
    return render(request, "chat/thread.html", context)


def load_thread_page_with_end(request: HtmxHttpRequest, agent: Agent) -> tuple[chat.ChatMessagePage, bool]:
    """Return the requested messages, and whether they include the newest one."""
    if before := request.GET.get("before"):
        return chat.load_older_messages(agent.pk, chat.parse_message_position(before)), False
    if message := request.GET.get("message"):
        try:
            page, newer = chat.load_message_page_around(agent.pk, message)
        except NotFound as problem:
            raise Http404(str(problem.detail)) from None
        return page, not newer
    return chat.load_older_messages(agent.pk, None), True


def find_chat_agent_or_404(agent_id: str) -> Agent:
    try:
        return chat.require_chat_agent(agent_id)
    except NotFound as problem:
        raise Http404(str(problem.detail)) from None


@require_safe
@require_viewer_role
def show_agent_presence(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    """Return the agent's presence, and the notice that is shown while the agent is switched off."""
    agent = find_chat_agent_or_404(agent_id)
    context = {"agent": agent, "status": agent_presence_status(agent, timezone.now()), "out_of_band": True}
    presence_html = render_to_string("chat/_presence.html", context, request)
    return HttpResponse(presence_html + render_to_string("chat/_off.html", context, request))


@require_safe
@require_viewer_role
def show_newest_message_delivery_view(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    """Return the delivery state of the newest message that a person sent to the agent."""
    agent = find_chat_agent_or_404(agent_id)
    context = {"agent": agent, "delivery": chat.newest_user_message_delivery_state(agent.pk)}
    return render(request, "chat/_delivery.html", context)


@require_POST
@require_approver
@declare_request_body_allowance(UPLOAD)
def send_chat_message(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    """Send a message to an agent. A script gets the message's HTML, or the error as JSON."""
    try:
        message = submit_or_find_typed_message(request, agent_id)
    except SignalboxError as refusal:
        return build_chat_refusal_response(request, agent_id, refusal)
    if not wants_fragment(request):
        return redirect("chat:thread", agent_id)
    (chat_message,) = build_chat_message_views([message], message.agent.name)
    return render(request, "chat/_message.html", {"shown": chat_message})


def submit_or_find_typed_message(request: HtmxHttpRequest, agent_id: str) -> ChatMessage:
    text = request.POST.get("text", "").replace("\r\n", "\n").strip()
    message_id = request.POST.get("id") or None
    speaker = actions.build_person_speaker(request.user)
    try:
        return actions.submit_chat_message(
            agent_id,
            [{"type": "text", "text": text}] if text else [],
            speaker=speaker,
            files=read_uploads_of_request(request),
            message_id=message_id,
            now=timezone.now(),
        )
    except Conflict:
        # A retry after a lost response: the message is already stored, and is not stored again.
        own_message = ChatMessage.objects.filter(
            pk=message_id, agent=agent_id, user_id=speaker.user_id
        ).first()
        if own_message is None or message_id is None:
            raise
        return own_message


def build_chat_refusal_response(
    request: HtmxHttpRequest, agent_id: str, refusal: SignalboxError
) -> HttpResponse:
    if wants_fragment(request):
        return JsonResponse({"detail": refusal.detail}, status=refusal.status)
    messages.error(request, str(refusal.detail))
    return redirect("chat:thread", agent_id)


@require_POST
@require_viewer_role
def mark_chat_read(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    try:
        position = chat.parse_message_position(request.POST.get("place", ""))
    except BadRequest as problem:
        return HttpResponse(str(problem.detail), status=400)
    actions.mark_thread_read(request.user.get_username(), find_chat_agent_or_404(agent_id).pk, position)
    return trigger_client_event(HttpResponse(status=204), "chat:read")


@require_POST
@require_admin
def delete_chat_message_view(request: HtmxHttpRequest, message_id: str) -> HttpResponse:
    try:
        removal = actions.remove_chat_message(
            message_id, actor=person_actor(request.user), now=timezone.now()
        )
    except NotFound as problem:
        raise Http404(str(problem.detail)) from None
    if wants_fragment(request):
        return HttpResponse("")
    messages.success(request, "The message was deleted.")
    return redirect("chat:thread", removal.agent_id)


@require_http_methods(["GET", "HEAD", "POST"])
@require_admin
def delete_chat_thread_view(request: HtmxHttpRequest, agent_id: str) -> HttpResponse:
    """Delete a whole thread, after the person has typed the agent's id."""
    agent = find_chat_agent_or_404(agent_id)
    problem = ""
    if request.method == "POST":
        if request.POST.get("typed", "").strip() == agent.pk:
            cleared_count = actions.clear_chat_thread(
                agent.pk, actor=person_actor(request.user), now=timezone.now()
            )
            messages.success(request, f"Deleted {cleared_count:,} messages of {agent.name}.")
            return redirect("chat:thread", agent.pk)
        problem = "This is not the agent's id, so nothing was deleted. Type the id to confirm."
    context: dict[str, Any] = {
        "agent": agent,
        "problem": problem,
        "messages_count": chat.agent_thread_messages(agent.pk).count(),
        "attachments_count": ChatAttachment.objects.filter(message__agent=agent).count(),
    }
    return render(request, "chat/clear.html", context, status=422 if problem else 200)


@require_safe
@require_viewer_role
def search_chat_messages_view(request: HtmxHttpRequest) -> HttpResponse:
    """Search messages in all chats, or in one agent's, by words."""
    search_text, agent_id = request.GET.get("q", "")[:300], request.GET.get("agent", "")[:300]
    context = {
        "words": search_text,
        "agent_id": agent_id,
        "hits": chat_search.find_chat_messages(search_text, agent_id=agent_id),
        "most": chat_search.MOST_HITS,
        "agents": Agent.objects.exclude(pk=None).order_by("name").values_list("pk", "name"),
    }
    return render(request, "chat/search.html", context)
