"""A person's notification settings: addresses, topics of each address, quiet hours, and the sent messages."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from coordinator.actions import notifications
from coordinator.errors import SignalboxError
from coordinator.identity.declarations import require_GET, require_POST
from coordinator.models import NotificationChoice, NotificationTarget
from coordinator.notifications import apprise_services
from dashboard.frame import form_refusals as refusals
from dashboard.frame.form_page_redirects import declare_page_of_form_view
from dashboard.frame.guards import require_approver
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.lists.keyset import load_keyset_page
from dashboard.notifications import log
from dashboard.notifications.addresses import list_address_kinds, list_notification_addresses
from dashboard.notifications.devices import build_page_origin_context, list_push_devices
from dashboard.notifications.escalation import list_escalation_steps
from dashboard.notifications.quiet_hours import list_time_zone_names, load_quiet_state


@require_GET
@require_approver
def show_notification_settings(request: HtmxHttpRequest) -> HttpResponse:
    """Show the person's addresses and quiet hours, and a page of the messages that were sent to them."""
    return render_notification_settings(request, None)


def render_notification_settings(
    request: HtmxHttpRequest, new_target: NotificationTarget | None
) -> HttpResponse:
    name = request.user.get_username()
    page_url = reverse("approvals:notifications")
    page_of_log = load_keyset_page(log.logged_notifications_of_person(name), request.GET, log.PAGE)
    context = {
        "addresses": list_notification_addresses(name),
        "sent": [log.build_sent_message(row) for row in page_of_log.rows],
        "newer": f"{page_url}{page_of_log.newer}#log" if page_of_log.newer else "",
        "older": f"{page_url}{page_of_log.older}#log" if page_of_log.older else "",
        "count_label": page_of_log.count_label,
        "test_is_due": any(log.is_test_notification_pending(row) for row in page_of_log.rows),
        "kinds": list_address_kinds(),
        "made": new_target,
        "services": apprise_services.COMMON,
        "abouts": NotificationTarget.About.choices,
        "quiet": load_quiet_state(name, timezone.now()),
        "zones": list_time_zone_names(),
        "steps": list_escalation_steps(),
        "devices": list_push_devices(name),
        "hears_unguarded": not NotificationChoice.objects.filter(pk=name, unguarded=False).exists(),
        "reach": build_page_origin_context(request),
    }
    return render(request, "notifications/home.html", context)


@require_POST
@require_approver
def add_notification_address_view(request: HtmxHttpRequest) -> HttpResponse:
    """Add an address. A webhook's secret appears only in this response."""
    posted = request.POST
    try:
        notification_target = notifications.create_notification_target(
            user=signed_in_approver_of_request(request),
            kind=posted.get("kind", ""),
            address=posted.get("address", "")[:4000],
            name=posted.get("name", "")[:200],
        )
    except SignalboxError as refusal:
        messages.error(request, str(refusal.detail))
        return redirect("approvals:notifications")
    if notification_target.kind == NotificationTarget.Kind.WEBHOOK:
        return render_notification_settings(request, notification_target)
    messages.success(request, "The address was added. Send a test to check it.")
    return redirect("approvals:notifications")


@require_POST
@declare_page_of_form_view("approvals:notifications")
@require_approver
def delete_notification_address_view(request: HtmxHttpRequest, target_id: int) -> HttpResponse:
    with refusals.add_refusal_message_during_block(request):
        notifications.remove_notification_address(target_id, user=signed_in_approver_of_request(request))
        messages.success(request, "The address was removed.")
    return redirect("approvals:notifications")


@require_POST
@declare_page_of_form_view("approvals:notifications")
@require_approver
def send_test_notification_view(request: HtmxHttpRequest, target_id: int) -> HttpResponse:
    with refusals.add_refusal_message_during_block(request):
        notifications.queue_test_notification(target_id, user=signed_in_approver_of_request(request))
        messages.success(request, "A test is being sent. The log below shows the result.")
    return redirect("approvals:notifications")


def parse_limit_percent_or_zero(text: str) -> int | None:
    """Return the limit in percent.

    An empty text means no limit and returns None. Text that is not a number returns 0, which the action
    refuses.
    """
    text = text.strip()[:20]
    return None if not text else int(text) if text.isascii() and text.isdecimal() else 0


@require_POST
@declare_page_of_form_view("approvals:notifications")
@require_approver
def set_address_topics(request: HtmxHttpRequest, target_id: int) -> HttpResponse:
    """Set which requests an address is notified of."""
    posted = request.POST
    with refusals.add_refusal_message_during_block(request):
        notifications.set_notification_filter(
            target_id,
            user=signed_in_approver_of_request(request),
            about=posted.get("about", ""),
            patterns=posted.get("patterns", "")[:2000],
            limit_percent=parse_limit_percent_or_zero(posted.get("limit_percent", "")),
        )
        messages.success(request, "Saved. It applies to new requests.")
    return redirect("approvals:notifications")


@require_POST
@require_approver
def save_or_clear_quiet_hours(request: HtmxHttpRequest) -> HttpResponse:
    """Set or end the person's quiet hours."""
    posted, now = request.POST, timezone.now()
    with refusals.add_refusal_message_during_block(request):
        if "clear" in posted:
            notifications.clear_quiet_hours(user=signed_in_approver_of_request(request), now=now)
            messages.success(request, "Quiet hours removed. Messages that were held back are sent now.")
        else:
            hours = notifications.set_quiet_hours(
                user=signed_in_approver_of_request(request),
                begins=posted.get("begins", "")[:20],
                ends=posted.get("ends", "")[:20],
                zone=posted.get("time_zone", "")[:100],
                now=now,
            )
            messages.success(request, f"Quiet from {hours.begins} to {hours.ends}, {hours.zone}.")
    return redirect("approvals:notifications")


@require_POST
@require_approver
def save_unguarded_call_notifications(request: HtmxHttpRequest) -> HttpResponse:
    """Switch the person's notifications about calls without a guard on or off."""
    notify = "notify" in request.POST
    notifications.set_unguarded_call_notifications(
        user=signed_in_approver_of_request(request), notify=notify, now=timezone.now()
    )
    message = (
        "You are notified of calls without a guard."
        if notify
        else "You are no longer notified of these calls."
    )
    messages.success(request, message)
    return redirect("approvals:notifications")


def signed_in_approver_of_request(request: HtmxHttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user
