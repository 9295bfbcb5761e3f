"""The first page: what needs attention, what is running, and what happened last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.vary import vary_on_headers

from coordinator.identity.declarations import require_safe
from coordinator.identity.roles import ADMIN, APPROVER, has_role
from coordinator.models import McpTool, PermissionRequest
from coordinator.models.agent_names import LinkedAgent
from coordinator.operations.doctor import shared_user
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.deciders.waiting import load_waiting_and_snoozed_requests
from coordinator.policy.requests.approvals import requester_name
from coordinator.policy.requests.request_headlines import RequestAct, build_permission_request_headline
from coordinator.sessions.board import load_session_board
from coordinator.sessions.overview import load_dashboard_overview
from dashboard.approvals.cards import load_linked_agents_by_request
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.overview.attention_items import list_things_needing_attention
from dashboard.overview.first_steps import build_first_steps_context

MAX_CHANGED_TOOLS = 5  # named in one notice


@dataclass(frozen=True, slots=True)
class RequestLine:
    """A request as the overview lists it: its headline and its requester."""

    request: PermissionRequest
    act: RequestAct
    requester_name: str
    agent: LinkedAgent | None


@require_safe
@vary_on_headers("HX-Request")
@require_viewer_role
def show_overview(request: HtmxHttpRequest) -> HttpResponse:
    """Show the counts and the latest rows. htmx requests the body alone after a change."""
    template = "overview/_body.html" if wants_fragment(request) else "overview/overview.html"
    is_admin = has_role(request.user, ADMIN)
    shared = shared_user.cached_shared_user_problem() if is_admin else None
    now = timezone.now()
    book = deciders.load_decider_book(now)
    waiting = load_waiting_and_snoozed_requests(request.user, now, book=book)
    everything = PermissionRequest.objects.awaiting_decision(now).count()
    overview = load_dashboard_overview(now, waiting=waiting.requests)
    number = overview.waiting_requests
    context = {
        "overview": overview,
        "waiting": build_request_lines(overview.waiting),
        "decisions": build_request_lines(overview.decisions),
        "snoozed": waiting.snoozed,
        "changed_tools": list(
            McpTool.objects.with_changed_definition()
            .filter(gone_at=None)
            .order_by("-changed_at")[:MAX_CHANGED_TOOLS]
        ),
        "others_wait": everything - number - waiting.snoozed,
        "shared_user": shared,
        "board": load_session_board(now),
        "needs": list_things_needing_attention(now, is_admin=is_admin),
        "troubles": book.find_rule_problems() if is_admin else [],
        **build_first_steps_context(request, now),
        "may_decide_some": number > 0,
        "waiting_label": "Waiting for you" if has_role(request.user, APPROVER) else "Waiting for a person",
    }
    return render(request, template, context)


def build_request_lines(requests: Sequence[PermissionRequest]) -> list[RequestLine]:
    agents = load_linked_agents_by_request(requests)
    return [
        RequestLine(
            row, build_permission_request_headline(row), requester_name(row), agents.get(row.request_id)
        )
        for row in requests
    ]
