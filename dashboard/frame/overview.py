"""The first page: what needs somebody, what is going on, what happened last."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.vary import vary_on_headers

from coordinator.identity.declarations import require_safe
from coordinator.identity.roles import ADMIN, has_role
from coordinator.operations.doctor import shared_user
from coordinator.policy.deciders import book as deciders
from coordinator.sessions.overview import load_overview
from dashboard.frame.guards import require_viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment


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
    context = {
        "overview": load_overview(now),
        "shared_user": shared,
        "troubles": book.find_rule_problems() if is_admin else [],
        "may_decide_some": deciders.decidable_request_ids(request.user, book) != [],
    }
    return render(request, template, context)
