"""The approvals inbox: what waits for a person, the verdict, one request's page, and taking an approval back."""

from __future__ import annotations

from collections.abc import Sequence

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import trigger_client_event

from coordinator.actions import approvals, tool_calls
from coordinator.approvals import Validity, can_revoke
from coordinator.errors import SignalboxError
from coordinator.models import AuditLog, PermissionRequest
from dashboard.approval_cards import Card, Member, card_of, inbox
from dashboard.guards import approver, viewer
from dashboard.htmx import HtmxHttpRequest, wants_fragment

MOST_AT_ONCE = 200


class DecisionForm(forms.Form):
    """What a person says about one or more waiting requests."""

    ids = forms.MultipleChoiceField()
    verdict = forms.ChoiceField(choices=[("approved", "Approve"), ("denied", "Deny")])
    validity = forms.ChoiceField(choices=Validity.choices, initial=Validity.ONCE, required=False)
    reason = forms.CharField(max_length=2000, required=False)
    grant = forms.BooleanField(required=False)
    # What a person may add to a tool call's approval (templates/approvals/_tool_call.html).
    edited = forms.CharField(max_length=100_000, required=False, strip=False)
    edited_field = forms.CharField(max_length=100, required=False)
    suggestion = forms.MultipleChoiceField(choices=[(str(n), str(n)) for n in range(100)], required=False)

    def __init__(self, data: object) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        offered = self.data.getlist("ids")[:MOST_AT_ONCE] if hasattr(self.data, "getlist") else []
        self.fields["ids"].choices = [(one, one) for one in offered]  # type: ignore[attr-defined]


@require_GET
@viewer
def inbox_page(request: HtmxHttpRequest) -> HttpResponse:
    """Show every waiting request; as a fragment, also those on the page that were closed meanwhile."""
    now = timezone.now()
    shown = request.GET.getlist("ids")[:MOST_AT_ONCE] if request.htmx else []
    cards, more = inbox(now, shown)
    template = "approvals/_inbox.html" if wants_fragment(request) else "approvals/inbox.html"
    context = {"cards": cards, "more": more, "waiting": _count(cards) + more, "validities": Validity.choices}
    return render(request, template, context)


def _count(cards: Sequence[Card]) -> int:
    return sum(len(card.waiting) for card in cards)


@require_POST
@approver
def decide(request: HtmxHttpRequest) -> HttpResponse:
    """Approve or deny the card's requests, each for itself, and show the card as it stands then."""
    form = DecisionForm(request.POST)
    if not form.is_valid():
        return HttpResponse("This decision could not be read. Load the page again.", status=400)
    ids, refusals = form.cleaned_data["ids"], _decide_each(request, form)
    if not wants_fragment(request):
        for refusal in dict.fromkeys(refusals):
            messages.error(request, refusal)
        if len(refusals) < len(ids):
            messages.success(request, _done(form, len(ids) - len(refusals)))
        return redirect("approvals:inbox")
    rows = PermissionRequest.objects.with_context().filter(request_id__in=ids).order_by("id")
    response = render(
        request,
        "approvals/_card.html",
        {"card": card_of(rows, timezone.now()), "validities": Validity.choices},
    )
    return _toast(response, refusals, "" if refusals else _done(form, len(ids)))


def _decide_each(request: HtmxHttpRequest, form: DecisionForm) -> list[str]:
    """Decide one request after the other; return what was refused, in words."""
    said, refusals = form.cleaned_data, []
    for request_id in said["ids"]:
        try:
            tool_calls.decide(
                request_id,
                by=request.user,
                verdict=said["verdict"],
                reason=said["reason"],
                validity=Validity(said["validity"] or Validity.ONCE),
                grant=said["grant"] and said["verdict"] == "approved",
                edited=said["edited"] if "edited" in form.data else None,
                edited_field=said["edited_field"],
                picked=[int(one) for one in said["suggestion"]],
            )
        except SignalboxError as refusal:
            refusals.append(str(refusal.detail))
    return refusals


def _done(form: DecisionForm, number: int) -> str:
    word = "Approved" if form.cleaned_data["verdict"] == "approved" else "Denied"
    return f"{word}." if number == 1 else f"{word} {number} requests."


def _toast(response: HttpResponse, refusals: list[str], done: str) -> HttpResponse:
    if refusals:
        text = " ".join(dict.fromkeys(refusals))
        return trigger_client_event(response, "toast", {"level": "warning", "text": text})
    return trigger_client_event(response, "toast", {"level": "success", "text": done})


@require_POST
@approver
def seen(request: HtmxHttpRequest) -> HttpResponse:
    """Note which requests an approver has had in view, so that one that lapses unseen can be told apart."""
    approvals.mark_seen(request.POST.getlist("ids")[:MOST_AT_ONCE], by=request.user, now=timezone.now())
    return HttpResponse(status=204)


@require_GET
@viewer
def detail(request: HtmxHttpRequest, request_id: str) -> HttpResponse:
    """Show one request: what was asked, who decided when and why, and its whole trail."""
    row, now = _row(request_id), timezone.now()
    trail = AuditLog.objects.filter(target_id=request_id).order_by("id")
    context = {
        "card": card_of([row], now),
        "member": Member(row, now),
        "row": row,
        "trail": trail,
        "can_revoke": can_revoke(row, now),
        "validities": Validity.choices,
    }
    template = "approvals/_detail.html" if wants_fragment(request) else "approvals/detail.html"
    return render(request, template, context)


def _row(request_id: str) -> PermissionRequest:
    row = PermissionRequest.objects.with_context().filter(request_id=request_id).first()
    if row is None:
        raise Http404("No such permission request.")
    return row


@require_POST
@approver
def revoke(request: HtmxHttpRequest, request_id: str) -> HttpResponse:
    """End an approval now and go back to where the button was."""
    _row(request_id)
    try:
        approvals.revoke(request_id, by=request.user, reason=request.POST.get("reason", "")[:2000])
    except SignalboxError as refusal:
        messages.warning(request, str(refusal.detail))
    else:
        messages.success(request, "Revoked. It is not valid any more.")
    return redirect("approvals:detail", request_id)
