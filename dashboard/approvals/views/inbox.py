"""The approvals inbox: waiting requests, decisions, one request's page, and revoking an approval."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django_htmx.http import reswap, trigger_client_event

from coordinator.actions import approvals
from coordinator.errors import SignalboxError
from coordinator.identity.declarations import require_GET, require_POST
from coordinator.models import AuditLog, PermissionRequest
from coordinator.policy.requests.approvals import has_revocable_approval
from coordinator.policy.requests.judged_content import group_requests_by_card
from dashboard.approvals.arrangement import (
    GROUPS,
    SORTS,
    TAKEN,
    arrangement_from_query_or_cookie,
    save_arrangement_cookie_if_chosen,
)
from dashboard.approvals.cards import build_approval_card, build_approval_cards
from dashboard.approvals.inbox import load_inbox_page
from dashboard.approvals.rights import DecisionRights
from dashboard.approvals.verdicts import MOST_ON_A_CARD, DecisionForm, DecisionOutcome, decide_each_request
from dashboard.approvals.views.one_by_one import (
    VALIDITIES,
    redirect_to_next_request,
    render_waiting_request_screen,
)
from dashboard.frame.guards import require_approver, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment


@require_GET
@require_viewer_role
def show_inbox_and_save_arrangement(request: HtmxHttpRequest) -> HttpResponse:
    """Show the waiting requests in the person's arrangement.

    A fragment also has the requests that the page already shows and that were closed meanwhile.
    """
    now, arrangement = timezone.now(), arrangement_from_query_or_cookie(request)
    inbox_page = load_inbox_page(
        now,
        request.GET.get("page", 1),
        request.GET.getlist("ids")[:MOST_ON_A_CARD] if request.htmx else [],
        arrangement=arrangement,
        rights=DecisionRights.load_rights_of_person(request.user, now),
    )
    template = "approvals/_inbox.html" if wants_fragment(request) else "approvals/inbox.html"
    context = {
        "inbox": inbox_page,
        "page": inbox_page.page,
        "waiting": inbox_page.waiting,
        "chosen": arrangement,
        "groups": GROUPS,
        "sorts": SORTS,
        "taken": TAKEN,
        "validities": VALIDITIES,
        "choosable": True,
    }
    return save_arrangement_cookie_if_chosen(arrangement, request, render(request, template, context))


@require_POST
@require_approver
def decide_card_requests(request: HtmxHttpRequest) -> HttpResponse:
    """Approve or deny each of the card's requests, and return the card with its new state."""
    form = DecisionForm(request.POST)
    if refused_ends := form.errors.get("until"):
        if wants_fragment(request):  # do not swap anything, so that the page keeps what was typed
            return reswap(trigger_decision_toast(HttpResponse(), list(map(str, refused_ends)), ""), "none")
        messages.error(request, " ".join(map(str, refused_ends)))
        return redirect("approvals:inbox")
    if not form.is_valid():
        return HttpResponse("This decision could not be read. Reload the page.", status=400)
    outcome, ids = decide_each_request(form.cleaned_data, request.user), form.cleaned_data["ids"]
    refusals, done = list(outcome.refusals.values()), describe_card_decision(form, outcome)
    if not wants_fragment(request):
        for refusal in dict.fromkeys(refusals):
            messages.error(request, refusal)
        if done:
            messages.success(request, done)
        return redirect_to_next_request(request) if "one" in request.POST else redirect("approvals:inbox")
    if "one" in request.POST:
        response = render_waiting_request_screen(request, after=request.POST.get("after", ""))
        return trigger_decision_toast(response, refusals, done)
    rows = PermissionRequest.objects.with_context_and_assignment().filter(request_id__in=ids).order_by("id")
    # A request that differs from what the page showed gets a card of its own, with its present content.
    now = timezone.now()
    cards = build_approval_cards(
        group_requests_by_card(rows),
        now,
        rights=DecisionRights.load_rights_of_person(request.user, now),
        group_key=request.POST.get("lane", "")[:8],
    )
    choosable = "choosable" in request.POST
    context = {"cards": cards, "validities": VALIDITIES, "choosable": choosable, "alone": not choosable}
    response = render(request, "approvals/_cards.html", context)
    return trigger_decision_toast(response, refusals, done)


def describe_card_decision(form: DecisionForm, outcome: DecisionOutcome) -> str:
    """Return in words how many requests were decided, and how many need one more approval."""
    word = "Approved" if form.cleaned_data["verdict"] == "approved" else "Denied"
    end = ", turn ended." if form.cleaned_data["stops_turn"] else "."
    decided, voted = len(outcome.decided), len(outcome.voted)
    sentences = [f"{word}{end}" if decided == 1 else f"{word} {decided} requests{end}"] if decided else []
    if voted:
        subject = "Your approval is" if voted == 1 else f"Your approvals of {voted} requests are"
        sentences.append(f"{subject} recorded. One more person must approve.")
    return " ".join(sentences)


def trigger_decision_toast(response: HttpResponse, refusals: list[str], done: str) -> HttpResponse:
    if refusals:
        text = " ".join([done, *dict.fromkeys(refusals)]).strip()
        return trigger_client_event(response, "toast", {"level": "warning", "text": text})
    return trigger_client_event(response, "toast", {"level": "success", "text": done})


@require_POST
@require_approver
def record_requests_seen_view(request: HtmxHttpRequest) -> HttpResponse:
    """Record that an approver saw these requests, so that those that expire unseen can be counted."""
    approvals.record_requests_seen(
        request.POST.getlist("ids")[:MOST_ON_A_CARD], person=request.user, now=timezone.now()
    )
    return HttpResponse(status=204)


@require_GET
@require_viewer_role
def show_permission_request(request: HtmxHttpRequest, request_id: str) -> HttpResponse:
    """Show one request: what was requested, who decided when and why, and its audit entries."""
    row, now = find_request_or_404(request_id), timezone.now()
    trail = AuditLog.objects.filter(target_id=request_id).order_by("id")
    card = build_approval_card([row], now, rights=DecisionRights.load_rights_of_person(request.user, now))
    context = {
        "card": card,
        "member": card.members[0],
        "row": row,
        "trail": trail,
        "can_revoke": has_revocable_approval(row, now),
        "validities": VALIDITIES,
    }
    template = "approvals/_detail.html" if wants_fragment(request) else "approvals/detail.html"
    return render(request, template, context)


def find_request_or_404(request_id: str) -> PermissionRequest:
    row = PermissionRequest.objects.with_context_and_assignment().filter(request_id=request_id).first()
    if row is None:
        raise Http404("No such permission request.")
    return row


@require_POST
@require_approver
def revoke_approval_view(request: HtmxHttpRequest, request_id: str) -> HttpResponse:
    """Revoke an approval now, and redirect to the request's page."""
    find_request_or_404(request_id)
    try:
        approvals.revoke_approval(
            request_id, person=request.user, reason=request.POST.get("reason", "")[:2000]
        )
    except SignalboxError as refusal:
        messages.warning(request, str(refusal.detail))
    else:
        messages.success(request, "The approval is revoked.")
    return redirect("approvals:detail", request_id)
