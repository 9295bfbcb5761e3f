"""How a person is told of waiting requests: addresses, of which requests each hears, quiet hours, sent messages."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from coordinator.actions import notifications
from coordinator.errors import SignalboxError
from coordinator.models import NotificationTarget
from coordinator.notifications import apprise_services
from dashboard.frame import refusals
from dashboard.frame.guards import approver
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.lists.keyset import keyset_page
from dashboard.notifications import log
from dashboard.notifications.addresses import addresses, offered
from dashboard.notifications.devices import devices_of, how_to_reach
from dashboard.notifications.escalation import steps
from dashboard.notifications.quiet_hours import quiet_of, zones


@require_GET
@approver
def page(request: HtmxHttpRequest) -> HttpResponse:
    """Show the person's own addresses and quiet hours, and what was sent to them, page by page."""
    return _page(request, None)


def _page(request: HtmxHttpRequest, made: NotificationTarget | None) -> HttpResponse:
    name = request.user.get_username()
    place = reverse("approvals:notifications")
    page_of_log = keyset_page(log.sent_to(name), request.GET, log.PAGE)
    context = {
        "addresses": addresses(name),
        "sent": [log.sent(row) for row in page_of_log.rows],
        "newer": f"{place}{page_of_log.newer}#log" if page_of_log.newer else "",
        "older": f"{place}{page_of_log.older}#log" if page_of_log.older else "",
        "count_label": page_of_log.count_label,
        "test_is_due": any(log.is_test_on_its_way(row) for row in page_of_log.rows),
        "kinds": offered(),
        "made": made,
        "services": apprise_services.COMMON,
        "abouts": NotificationTarget.About.choices,
        "quiet": quiet_of(name, timezone.now()),
        "zones": zones(),
        "steps": steps(),
        "devices": devices_of(name),
        "reach": how_to_reach(request),
    }
    return render(request, "notifications/home.html", context)


@require_POST
@approver
def add(request: HtmxHttpRequest) -> HttpResponse:
    """Add an address; a webhook's secret is on this one answer and never shown again."""
    posted = request.POST
    try:
        made = notifications.add(
            by=_user(request),
            kind=posted.get("kind", ""),
            address=posted.get("address", "")[:4000],
            name=posted.get("name", "")[:200],
        )
    except SignalboxError as refusal:
        messages.error(request, str(refusal.detail))
        return redirect("approvals:notifications")
    if made.kind == NotificationTarget.Kind.WEBHOOK:
        return _page(request, made)
    messages.success(request, "The address was added. Send a test to check it.")
    return redirect("approvals:notifications")


@require_POST
@approver
def remove(request: HtmxHttpRequest, target_id: int) -> HttpResponse:
    with refusals.as_message(request):
        notifications.remove(target_id, by=_user(request))
        messages.success(request, "The address was removed.")
    return redirect("approvals:notifications")


@require_POST
@approver
def test(request: HtmxHttpRequest, target_id: int) -> HttpResponse:
    with refusals.as_message(request):
        notifications.send_test(target_id, by=_user(request))
        messages.success(request, "A test is being sent. The log below shows the result.")
    return redirect("approvals:notifications")


@require_POST
@approver
def about(request: HtmxHttpRequest, target_id: int) -> HttpResponse:
    """Choose of which requests an address hears."""
    posted = request.POST
    with refusals.as_message(request):
        notifications.set_about(
            target_id,
            by=_user(request),
            about=posted.get("about", ""),
            patterns=posted.get("patterns", "")[:2000],
        )
        messages.success(request, "Saved. It applies to new requests.")
    return redirect("approvals:notifications")


@require_POST
@approver
def quiet(request: HtmxHttpRequest) -> HttpResponse:
    """Set or end the person's quiet hours."""
    posted, now = request.POST, timezone.now()
    with refusals.as_message(request):
        if "clear" in posted:
            notifications.clear_quiet(by=_user(request), now=now)
            messages.success(request, "Quiet hours removed. Messages that were held back are sent now.")
        else:
            hours = notifications.set_quiet(
                by=_user(request),
                begins=posted.get("begins", "")[:20],
                ends=posted.get("ends", "")[:20],
                zone=posted.get("time_zone", "")[:100],
                now=now,
            )
            messages.success(request, f"Quiet from {hours.begins} to {hours.ends}, {hours.zone}.")
    return redirect("approvals:notifications")


def _user(request: HtmxHttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user
