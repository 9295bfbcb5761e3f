"""Answer an agent's question, or approve its plan."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from coordinator.identity.declarations import require_POST
from coordinator.models import PermissionRequest
from coordinator.policy.requests.judged_content import group_requests_by_card
from dashboard.approvals.cards import build_approval_cards
from dashboard.approvals.questions import AnswerForm, answer_or_deny_each_request
from dashboard.approvals.rights import DecisionRights
from dashboard.approvals.verdicts import DENY_AND_STOP
from dashboard.approvals.views.inbox import trigger_decision_toast
from dashboard.approvals.views.one_by_one import (
    VALIDITIES,
    redirect_to_next_request,
    render_waiting_request_screen,
)
from dashboard.frame.guards import require_approver
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment


@require_POST
@require_approver
def answer_card_requests(request: HtmxHttpRequest) -> HttpResponse:
    """Answer or decline the card's questions, and return the card with its new state."""
    form = AnswerForm(request.POST)
    if not form.is_valid():
        return HttpResponse("This answer could not be read. Reload the page.", status=400)
    outcome = answer_or_deny_each_request(form.cleaned_data, request.user)
    refusals = list(dict.fromkeys(outcome.refusals.values()))
    words = {"denied": "Denied.", DENY_AND_STOP: "Denied, turn ended."}
    word = words.get(form.cleaned_data["verdict"], "Sent to the agent.")
    done = word if outcome.decided else ""
    if not wants_fragment(request):
        for refusal in refusals:
            messages.error(request, refusal)
        if done:
            messages.success(request, done)
        ids = form.cleaned_data["ids"]
        if refusals:
            return redirect("approvals:detail", ids[0])
        return redirect_to_next_request(request) if "one" in request.POST else redirect("approvals:inbox")
    if refusals and not outcome.decided:  # answer 204, so that the page keeps what was typed
        response = HttpResponse(status=204)
        return trigger_decision_toast(response, refusals, "")
    if "one" in request.POST:
        response = render_waiting_request_screen(request, after=request.POST.get("after", ""))
        return trigger_decision_toast(response, refusals, done)
    rows = (
        PermissionRequest.objects.with_context_and_assignment()
        .filter(request_id__in=form.cleaned_data["ids"])
        .order_by("id")
    )
    now = timezone.now()
    cards = build_approval_cards(
        group_requests_by_card(rows),
        now,
        rights=DecisionRights.load_rights_of_person(request.user, now),
        group_key=request.POST.get("lane", "")[:8],
    )
    choosable = "choosable" in request.POST
    context = {"cards": cards, "validities": VALIDITIES, "choosable": choosable, "alone": not choosable}
    return trigger_decision_toast(render(request, "approvals/_cards.html", context), refusals, done)
