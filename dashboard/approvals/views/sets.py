"""Decide, assign or snooze many requests at once.

One page lists the chosen requests for confirmation; each is then decided separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time, timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django_htmx.http import trigger_client_event

from coordinator.actions import approvals
from coordinator.actions.approvals.triage import MOST_ARRANGED, MOST_AT_ONCE
from coordinator.errors import BadRequest, SignalboxError
from coordinator.identity.declarations import require_POST
from coordinator.policy.requests.approvals import DECIDED
from dashboard.approvals.arrangement import InboxArrangement
from dashboard.approvals.inbox import load_request_digests_of_group
from dashboard.approvals.request_sets import load_chosen_requests_with_state
from dashboard.approvals.rights import DecisionRights
from dashboard.approvals.verdicts import (
    TOO_MANY,
    DecisionForm,
    DecisionOutcome,
    decide_each_request,
    parse_chosen_request_digests,
)
from dashboard.frame.days import find_zone_by_name
from dashboard.frame.guards import require_approver
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.templatetags.signalbox import count_of

MORNING = time(9)
LONGEST_QUERY = 4_000  # characters
SNOOZES = {"snooze-15m": timedelta(minutes=15), "snooze-1h": timedelta(hours=1)}


@require_POST
@require_approver
def ask_to_confirm_chosen_requests(request: HtmxHttpRequest) -> HttpResponse:
    """Ask for confirmation of a decision about the chosen requests or a whole group.

    Nothing is decided yet.
    """
    verdict, now = request.POST.get("verdict", ""), timezone.now()
    rights = DecisionRights.load_rights_of_person(request.user, now)
    try:
        if "group" in request.POST:
            arranged = InboxArrangement.from_query(
                QueryDict(request.POST.get("arranged", "")[:LONGEST_QUERY])
            )
            chosen = load_request_digests_of_group(request.POST["group"], now, arranged, rights)
        else:
            chosen = parse_chosen_request_digests(request.POST.getlist("chosen"))
        if not chosen:
            raise BadRequest("No request in this group is waiting any more.")
        if verdict not in DECIDED:
            raise BadRequest("Choose whether to approve or to deny.")
    except SignalboxError as refusal:
        return build_triage_refusal_response(request, refusal)
    listed = load_chosen_requests_with_state(chosen, now, rights, verdict)
    context = {
        "verdict": verdict,
        "listed": [chosen_request for chosen_request in listed if not chosen_request.problem],
        "left_out": [chosen_request for chosen_request in listed if chosen_request.problem],
    }
    template = "approvals/_set.html" if wants_fragment(request) else "approvals/set.html"
    return render(request, template, context)


@require_POST
@require_approver
def decide_chosen_requests(request: HtmxHttpRequest) -> HttpResponse:
    """Decide each of the chosen requests.

    One that differs from what the page showed is not decided but listed.
    """
    form = DecisionForm(request.POST)
    if not form.is_valid():
        return HttpResponse("This decision could not be read. Reload the page.", status=400)
    if len(form.cleaned_data["ids"]) > MOST_AT_ONCE:
        return HttpResponse(TOO_MANY, status=400)
    outcome = decide_each_request(form.cleaned_data, request.user)
    decision_outcome_text = describe_decision_outcome(outcome, form.cleaned_data["verdict"])
    if not wants_fragment(request):
        (messages.warning if outcome.refusals else messages.success)(request, decision_outcome_text)
        for refusal in dict.fromkeys(outcome.refusals.values()):
            messages.error(request, refusal)
        return redirect("approvals:inbox")
    if not outcome.refusals:
        return trigger_request_removal_in_browser(
            trigger_toast(HttpResponse(status=204), "success", decision_outcome_text), list(outcome.decided)
        )
    seen_digests = {name: form.cleaned_data["seen"].get(name, "") for name in outcome.refusals}
    now = timezone.now()
    rights, verdict = DecisionRights.load_rights_of_person(request.user, now), form.cleaned_data["verdict"]
    chosen_requests = load_chosen_requests_with_state(seen_digests, now, rights, verdict)
    listed = [
        (chosen_request, outcome.refusals[chosen_request.request_id]) for chosen_request in chosen_requests
    ]
    response = render(
        request, "approvals/_set_outcome.html", {"words": decision_outcome_text, "refused": listed}
    )
    return trigger_request_removal_in_browser(response, list(outcome.decided))


def describe_decision_outcome(outcome: DecisionOutcome, verdict: str) -> str:
    """Return the outcome in words.

    For example: "Approved 17 requests. 1 needs a second person. 2 were not decided."
    """
    word = "Approved" if verdict == "approved" else "Denied"
    number, sentences = len(outcome.decided), []
    if number or not outcome.voted:
        sentences.append(f"{word} {number} {'request' if number == 1 else 'requests'}.")
    if outcome.voted:
        voted = len(outcome.voted)
        sentences.append(f"{voted} {'needs' if voted == 1 else 'need'} a second person.")
    if outcome.refusals:
        refused_count = len(outcome.refusals)
        sentences.append(f"{refused_count} {'was' if refused_count == 1 else 'were'} not decided.")
    return " ".join(sentences)


@require_POST
@require_approver
def assign_or_snooze_chosen_requests(request: HtmxHttpRequest) -> HttpResponse:
    """Assign, unassign, snooze or unsnooze the chosen requests, and return to the list."""
    now = timezone.now()
    try:
        ids = list(parse_chosen_request_digests(request.POST.getlist("chosen"), most=MOST_ARRANGED))
        message, leaves = assign_or_snooze_and_describe(request, ids, now)
    except SignalboxError as refusal:
        return build_triage_refusal_response(request, refusal)
    if not wants_fragment(request):
        messages.success(request, message)
        return redirect("approvals:inbox")
    return trigger_request_removal_in_browser(
        trigger_toast(HttpResponse(status=204), "success", message), ids if leaves else []
    )


def assign_or_snooze_and_describe(
    request: HtmxHttpRequest, ids: Sequence[str], now: datetime
) -> tuple[str, bool]:
    """Do what the form's button says. Return a message, and whether the requests leave the page."""
    choice, by = request.POST.get("do", ""), request.user
    if choice in {"take", "assign"}:
        to = by.get_username() if choice == "take" else request.POST.get("to", "").strip()[:150]
        number = approvals.assign_requests(ids, to, person=by, now=now)
        return f"{count_of(number, 'request')} assigned to {'you' if to == by.get_username() else to}.", False
    if choice == "release":
        return (
            f"{count_of(approvals.unassign_requests(ids, person=by, now=now), 'request')} unassigned.",
            False,
        )
    if choice == "wake":
        return (
            f"{count_of(approvals.unsnooze_requests_for_person(ids, person=by), 'request')} back in your inbox.",
            True,
        )
    until = compute_snooze_end(choice, request.POST.get("zone", ""), now)
    number = approvals.snooze_requests_for_person(ids, until, person=by, now=now)
    return f"{count_of(number, 'request')} snoozed. Deadlines still apply.", True


def compute_snooze_end(form: str, zone: str, now: datetime) -> datetime:
    if form in SNOOZES:
        return now + SNOOZES[form]
    if form != "snooze-tomorrow":
        raise BadRequest("Choose what to do with the requests.")
    return find_tomorrow_morning(now, zone)


def find_tomorrow_morning(now: datetime, zone: str) -> datetime:
    """Return 9:00 of the next day in the zone `zone`, or in UTC if it is empty or unknown."""
    local_now = now.astimezone(find_zone_by_name(zone or "UTC") or find_zone_by_name("UTC"))
    return datetime.combine(local_now.date() + timedelta(days=1), MORNING, tzinfo=local_now.tzinfo)


def build_triage_refusal_response(request: HtmxHttpRequest, refusal: SignalboxError) -> HttpResponse:
    detail = str(refusal.detail)
    if not wants_fragment(request):
        messages.error(request, detail)
        return redirect("approvals:inbox")
    return trigger_toast(HttpResponse(status=204), "warning", detail)


def trigger_toast(response: HttpResponse, level: str, text: str) -> HttpResponse:
    return trigger_client_event(response, "toast", {"level": level, "text": text})


def trigger_request_removal_in_browser(response: HttpResponse, ids: Sequence[str]) -> HttpResponse:
    """Add an event to the response that makes the page remove these requests (static/js/approvals.js).

    For more than MOST_AT_ONCE requests, the event says that all chosen ones are removed: it is sent in a
    header, and proxies accept only a few kilobytes there.
    """
    detail: dict[str, Any] = {"ids": list(ids)} if len(ids) <= MOST_AT_ONCE else {"ids": [], "all": True}
    return trigger_client_event(response, "arranged", detail)
