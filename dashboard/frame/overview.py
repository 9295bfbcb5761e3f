"""The first page: what needs somebody, what is going on, what happened last."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.vary import vary_on_headers

from coordinator.identity.declarations import require_safe
from coordinator.identity.roles import ADMIN, APPROVER, has_role
from coordinator.models import McpTool, PermissionRequest
from coordinator.operations.doctor import shared_user
from coordinator.policy.deciders import book as deciders
from coordinator.policy.deciders.waiting import load_waiting_for_person
from coordinator.sessions.board import load_board
from coordinator.sessions.overview import load_overview
from dashboard.frame.first_steps import build_first_steps_context
from dashboard.frame.guards import require_viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.frame.needs import list_needs

MAX_CHANGED_TOOLS = 5  # named in one notice


@require_safe
@vary_on_headers("HX-Request")
@require_viewer
def show_overview(request: HtmxHttpRequest) -> HttpResponse:
    """Show the counts and the latest rows, or these alone when a change has been signalled."""
    template = "overview/_body.html" if wants_fragment(request) else "overview/overview.html"
    is_admin = has_role(request.user, ADMIN)
    shared = shared_user.cached_shared_user_problem() if is_admin else None
    now = timezone.now()
    book = deciders.load_decider_book(now)
    waiting = load_waiting_for_person(request.user, now, book=book)
    everything = PermissionRequest.objects.awaiting_decision(now).count()
    overview = load_overview(now, waiting=waiting.requests)
    number = overview.waiting_requests
    context = {
        "overview": overview,
        "snoozed": waiting.snoozed,
        "changed_tools": list(
            McpTool.objects.with_changed_definition()
            .filter(gone_at=None)
            .order_by("-changed_at")[:MAX_CHANGED_TOOLS]
        ),
        "others_wait": everything - number - waiting.snoozed,
        "shared_user": shared,
        "board": load_board(now),
        "needs": list_needs(now, is_admin=is_admin),
        "troubles": book.find_rule_problems() if is_admin else [],
        **build_first_steps_context(request, now),
        "may_decide_some": number > 0,
        "waiting_label": "Waiting for you" if has_role(request.user, APPROVER) else "Waiting for a person",
    }
    return render(request, template, context)
