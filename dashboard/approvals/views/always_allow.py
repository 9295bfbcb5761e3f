"""Allow such calls from now on: the narrowest rule or grant, what else it would allow, and a button."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache

from coordinator.actions import approvals
from coordinator.errors import SignalboxError
from coordinator.identity.declarations import require_http_methods
from coordinator.models import PermissionRequest
from coordinator.policy.deciders import decider_book as deciders
from dashboard.approvals.always import build_offer_with_wider_flag, verify_accepted_offer
from dashboard.approvals.cards import build_approval_card
from dashboard.approvals.rights import DecisionRights
from dashboard.frame.guards import require_approver
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.rules.views.trials import start_trial_and_build_context


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@require_approver
def show_or_accept_always_allow(request: HtmxHttpRequest, request_id: str) -> HttpResponse:
    """Show the offered rule or grant and what else it would allow.

    A POST saves it and approves the request.
    """
    row = PermissionRequest.objects.with_context_and_assignment().filter(request_id=request_id).first()
    if row is None:
        raise Http404("No such permission request.")
    return (
        accept_always_allow_offer(request, row)
        if request.method == "POST"
        else show_always_allow_offer(request, row)
    )


def show_always_allow_offer(request: HtmxHttpRequest, row: PermissionRequest) -> HttpResponse:
    now, user_id = timezone.now(), request.user.pk
    assert user_id is not None
    card, wide = (
        build_approval_card([row], now, rights=DecisionRights.load_rights_of_person(request.user, now)),
        "wide" in request.GET,
    )
    context: dict[str, Any] = {"row": row, "card": card, "member": card.members[0], "wide": wide}
    if not card.decidable_members:
        context["problem"] = (
            card.members[0].viewer_ineligibility_reason
            if card.waiting_members
            else card.members[0].state_description
        )
        return render(request, "approvals/always.html", context)
    if not deciders.can_user_edit_policy(request.user):
        return render(request, "approvals/always.html", context | {"problem": deciders.ADMINS_EDIT})
    try:
        offer, has_wider = build_offer_with_wider_flag(row, user_id, now, wide=wide)
    except SignalboxError as refusal:
        return render(request, "approvals/always.html", context | {"problem": str(refusal.detail)})
    context |= {"offer": offer, "has_wider": has_wider}
    context |= start_trial_and_build_context(
        offer.question, QueryDict("changed=1")
    )  # what else it would allow
    return render(request, "approvals/always.html", context)


def accept_always_allow_offer(request: HtmxHttpRequest, row: PermissionRequest) -> HttpResponse:
    user_id = request.user.pk
    assert user_id is not None
    try:
        accepted_offer = verify_accepted_offer(row, user_id, request.POST.get("offer", ""), timezone.now())
        approvals.approve_request_permanently(
            row.request_id, accepted_offer.answer, person=request.user, judged=accepted_offer.judged
        )
    except SignalboxError as refusal:
        detail = refusal.detail["message"] if isinstance(refusal.detail, dict) else str(refusal.detail)
        messages.error(request, detail)
        return redirect("approvals:always", row.request_id)
    effect = f"Rule {accepted_offer.number} allows" if accepted_offer.number else "A grant allows"
    exceptions = accepted_offer.exceptions
    extent = f"such calls, but {exceptions}" if exceptions else "such calls from now on"
    messages.success(request, f"{effect} {extent}. The request is approved.")
    return redirect("approvals:inbox")
