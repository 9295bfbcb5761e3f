"""Allowing such calls for good: the narrowest rule or grant, what else it would allow, and one button."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from coordinator.actions import approvals
from coordinator.errors import SignalboxError
from coordinator.models import PermissionRequest
from coordinator.policy import deciders
from dashboard.approvals.always import accepted, offer_for
from dashboard.approvals.cards import card_of
from dashboard.approvals.rights import Rights
from dashboard.frame.guards import approver
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.views.rule_trials import first_context


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@approver
def page(request: HtmxHttpRequest, request_id: str) -> HttpResponse:
    """Show what would be written and what else that would allow; or write it and approve the request."""
    row = PermissionRequest.objects.with_triage().filter(request_id=request_id).first()
    if row is None:
        raise Http404("No such permission request.")
    return _accept(request, row) if request.method == "POST" else _show(request, row)


def _show(request: HtmxHttpRequest, row: PermissionRequest) -> HttpResponse:
    now, whose = timezone.now(), request.user.pk
    assert whose is not None
    card, wide = card_of([row], now, rights=Rights.of(request.user, now)), "wide" in request.GET
    context: dict[str, Any] = {"row": row, "card": card, "member": card.members[0], "wide": wide}
    if not card.yours:
        context["problem"] = card.members[0].why_not if card.waiting else card.members[0].story
        return render(request, "approvals/always.html", context)
    if not deciders.may_edit_policy(request.user):
        return render(request, "approvals/always.html", context | {"problem": deciders.ADMINS_EDIT})
    try:
        offer, has_wider = offer_for(row, whose, now, wide=wide)
    except SignalboxError as refusal:
        return render(request, "approvals/always.html", context | {"problem": str(refusal.detail)})
    context |= {"offer": offer, "has_wider": has_wider}
    context |= first_context(offer.question, QueryDict("changed=1"))  # what else it would allow
    return render(request, "approvals/always.html", context)


def _accept(request: HtmxHttpRequest, row: PermissionRequest) -> HttpResponse:
    whose = request.user.pk
    assert whose is not None
    try:
        said = accepted(row, whose, request.POST.get("offer", ""), timezone.now())
        approvals.always_allow(row.request_id, said.answer, by=request.user, judged=said.judged)
    except SignalboxError as refusal:
        detail = refusal.detail["message"] if isinstance(refusal.detail, dict) else str(refusal.detail)
        messages.error(request, detail)
        return redirect("approvals:always", row.request_id)
    what = f"Rule {said.number} allows" if said.number else "A grant allows"
    messages.success(request, f"{what} such calls from now on. The request is approved.")
    return redirect("approvals:inbox")
