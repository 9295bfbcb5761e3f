"""One request at a time, the next one after each decision: for phones and for many requests."""

from __future__ import annotations

from dataclasses import replace

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from coordinator.identity.declarations import require_GET
from coordinator.policy.requests.approvals import Validity
from coordinator.sessions.titles import load_session_title
from dashboard.approvals.arrangement import LONGEST, InboxArrangement, arrangement_from_query_or_cookie
from dashboard.approvals.inbox import load_next_card_and_count
from dashboard.approvals.rights import DecisionRights
from dashboard.frame.guards import require_approver
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment

VALIDITIES = [(one.value, one.label) for one in Validity if one is not Validity.ONCE]


@require_GET
@require_approver
def show_next_waiting_request(request: HtmxHttpRequest) -> HttpResponse:
    """Show the request that waits longest, or the one that follows `after`.

    With `shown` that request is shown, so that a refresh does not replace it. With `session` only the
    requests of that session are shown, whatever the inbox's arrangement is.
    """
    return render_waiting_request_screen(
        request, after=request.GET.get("after", ""), shown_id=request.GET.get("shown", "")
    )


def render_waiting_request_screen(
    request: HtmxHttpRequest, *, after: str, shown_id: str = ""
) -> HttpResponse:
    now, session_id = timezone.now(), session_filter_id_or_empty(request)
    arrangement = (
        InboxArrangement(session=session_id)
        if session_id
        else replace(arrangement_from_query_or_cookie(request), all="")
    )
    rights = DecisionRights.load_rights_of_person(request.user, now)
    next_request = load_next_card_and_count(now, arrangement, rights, after=after, shown_id=shown_id)
    template = "approvals/_one_by_one.html" if wants_fragment(request) else "approvals/one_by_one.html"
    context = {
        "card": next_request.card,
        "left": next_request.left_count,
        "after": after,
        "narrowed": arrangement.has_filters,
        "followed_session": session_id,
        "followed_title": load_session_title(session_id) if session_id else "",
        "validities": VALIDITIES,
        "alone": True,
        "one_by_one": True,
    }
    return render(request, template, context)


def redirect_to_next_request(request: HtmxHttpRequest) -> HttpResponse:
    """Redirect to the next request; to that of the same session if only one session's requests are shown."""
    url = reverse("approvals:one-by-one")
    session_id = session_filter_id_or_empty(request)
    return redirect(f"{url}?{urlencode({'session': session_id})}" if session_id else url)


def session_filter_id_or_empty(request: HtmxHttpRequest) -> str:
    """Return the id of the session to which the requests are limited; empty for all requests."""
    values = request.POST if request.method == "POST" else request.GET
    return values.get("session", "").replace("\0", "")[:LONGEST]
