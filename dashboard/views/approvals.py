"""The approvals inbox: what waits for a person, the verdict, one request's page, and taking an approval back."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import trigger_client_event

from coordinator.actions import approvals, tool_calls
from coordinator.actions.tool_calls import Additions
from coordinator.errors import BadRequest, SignalboxError
from coordinator.models import AuditLog, PermissionRequest
from coordinator.policy.approvals import Scope, Validity, can_revoke, groups
from dashboard.approvals.cards import card_of, cards_of, inbox
from dashboard.approvals.rights import Rights
from dashboard.frame.guards import approver, viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment

MOST_AT_ONCE = 200
VALIDITIES = [(one.value, one.label) for one in Validity if one is not Validity.ONCE]


class DecisionForm(forms.Form):
    """What a person says about one or more waiting requests, and what their card showed of each.

    `judged` holds, for each request, `DIGEST:ID` (policy.approvals.judged_digest). A text field counts as edited
    only where it differs from `edited_from`, which the browser sends back from the same text, with the same changes
    to line breaks; so no text that merely passed through a browser is ever taken for a person's.
    """

    ids = forms.MultipleChoiceField()
    judged = forms.MultipleChoiceField(required=False)
    verdict = forms.ChoiceField(choices=[("approved", "Approve"), ("denied", "Deny")])
    scope = forms.ChoiceField(choices=Scope.choices, required=False)
    validity = forms.ChoiceField(choices=Validity.choices, required=False)
    reason = forms.CharField(max_length=2000, required=False)
    grant = forms.BooleanField(required=False)
    # What a person may add to a tool call's approval (templates/approvals/_tool_call.html).
    edited = forms.CharField(max_length=100_000, required=False, strip=False)
    edited_from = forms.CharField(max_length=100_000, required=False, strip=False)
    edited_field = forms.CharField(max_length=100, required=False)
    suggestion = forms.MultipleChoiceField(required=False)

    def __init__(self, data: object) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        for name in ("ids", "judged", "suggestion"):
            offered = self.data.getlist(name)[:MOST_AT_ONCE] if hasattr(self.data, "getlist") else []
            self.fields[name].choices = [(one, one) for one in offered]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        """Add what was seen of each request, by its id, and what the person chose to add."""
        said = self.cleaned_data
        said["scope"] = Scope(said.get("scope") or Scope.CALL)
        this_call = said["scope"] is Scope.CALL
        said["validity"] = Validity.ONCE if this_call else Validity(said.get("validity") or Validity.ONCE)
        said["seen"] = {
            name: seen for seen, _, name in (one.partition(":") for one in said.get("judged", []))
        }
        changed = "edited" in self.data and said.get("edited") != said.get("edited_from", "")
        said["additions"] = Additions(
            said.get("edited", "") if changed else None,
            said.get("edited_field", ""),
            frozenset(said.get("suggestion", [])),
        )
        return said


@require_GET
@viewer
def inbox_page(request: HtmxHttpRequest) -> HttpResponse:
    """Show every waiting request; as a fragment, also those on the page that were closed meanwhile."""
    shown = request.GET.getlist("ids")[:MOST_AT_ONCE] if request.htmx else []
    now, everything = timezone.now(), "all" in request.GET
    rights = Rights.of(request.user, now)
    found = inbox(now, request.GET.get("page", 1), shown, rights=rights, everything=everything)
    template = "approvals/_inbox.html" if wants_fragment(request) else "approvals/inbox.html"
    context = {
        "cards": found.cards,
        "page": found.page,
        "waiting": found.waiting,
        "rights": rights,
        "everything": everything,
        "validities": VALIDITIES,
    }
    return render(request, template, context)


@require_POST
@approver
def decide(request: HtmxHttpRequest) -> HttpResponse:
    """Approve or deny the card's requests, each for itself, and show the card as it stands then."""
    form = DecisionForm(request.POST)
    if not form.is_valid():
        return HttpResponse("This decision could not be read. Reload the page.", status=400)
    ids, refusals = form.cleaned_data["ids"], _decide_each(request, form)
    if not wants_fragment(request):
        for refusal in dict.fromkeys(refusals):
            messages.error(request, refusal)
        if len(refusals) < len(ids):
            messages.success(request, _done(form, len(ids) - len(refusals)))
        return redirect("approvals:inbox")
    rows = PermissionRequest.objects.with_context().filter(request_id__in=ids).order_by("id")
    # One that is not what the page showed gets a card of its own: no card stands for what it does not show.
    now = timezone.now()
    cards = cards_of(groups(rows), now, rights=Rights.of(request.user, now))
    response = render(request, "approvals/_cards.html", {"cards": cards, "validities": VALIDITIES})
    return _toast(response, refusals, "" if refusals else _done(form, len(ids)))


def _decide_each(request: HtmxHttpRequest, form: DecisionForm) -> list[str]:
    """Decide one request after the other; return what was refused, in words."""
    said, refusals = form.cleaned_data, []
    for request_id in said["ids"]:
        try:
            if said["verdict"] == "approved" and request_id not in said["seen"]:
                raise BadRequest(
                    "Nothing was approved: the form does not say what the page showed. Reload the page."
                )
            tool_calls.decide(
                request_id,
                by=request.user,
                verdict=said["verdict"],
                reason=said["reason"],
                validity=said["validity"],
                scope=said["scope"],
                judged=said["seen"].get(request_id),
                grant=said["grant"] and said["verdict"] == "approved",
                additions=said["additions"],
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
    """Note which requests an approver has had in view, so that one that expires unseen can be told apart."""
    approvals.mark_seen(request.POST.getlist("ids")[:MOST_AT_ONCE], by=request.user, now=timezone.now())
    return HttpResponse(status=204)


@require_GET
@viewer
def detail(request: HtmxHttpRequest, request_id: str) -> HttpResponse:
    """Show one request: what was asked, who decided when and why, and its whole trail."""
    row, now = _row(request_id), timezone.now()
    trail = AuditLog.objects.filter(target_id=request_id).order_by("id")
    card = card_of([row], now, rights=Rights.of(request.user, now))
    context = {
        "card": card,
        "member": card.members[0],
        "row": row,
        "trail": trail,
        "can_revoke": can_revoke(row, now),
        "validities": VALIDITIES,
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
        messages.success(request, "The approval is revoked.")
    return redirect("approvals:detail", request_id)
