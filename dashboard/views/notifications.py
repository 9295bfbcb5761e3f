"""How a person is notified of waiting requests: addresses, sent messages, and this browser's own signals."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from coordinator.actions import notifications
from coordinator.errors import SignalboxError
from coordinator.models import Notification, NotificationTarget
from dashboard.frame import refusals
from dashboard.frame.guards import approver
from dashboard.frame.htmx import HtmxHttpRequest

SHOWN = 30  # messages of the log


@require_GET
@approver
def page(request: HtmxHttpRequest) -> HttpResponse:
    """Show the person's own addresses and what was sent to them last."""
    return _page(request, None)


def _page(request: HtmxHttpRequest, made: NotificationTarget | None) -> HttpResponse:
    targets = NotificationTarget.objects.filter(person=request.user.get_username())
    sent = Notification.objects.select_related("target").filter(target__in=targets).order_by("-id")
    context = {"targets": targets.order_by("id"), "sent": sent[:SHOWN], "made": made}
    return render(request, "approvals/notifications.html", context)


@require_POST
@approver
def add(request: HtmxHttpRequest) -> HttpResponse:
    """Add an address; a webhook's secret is on this one answer and never shown again."""
    user = _user(request)
    try:
        made = notifications.add(
            by=user, kind=request.POST.get("kind", ""), address=request.POST.get("address", "")[:2000]
        )
    except SignalboxError as refusal:
        messages.error(request, str(refusal.detail))
        return redirect("approvals:notifications")
    if made.kind == NotificationTarget.Kind.WEBHOOK:
        return _page(request, made)
    messages.success(request, "The address is added. Send a test to check it.")
    return redirect("approvals:notifications")


@require_POST
@approver
def remove(request: HtmxHttpRequest, target_id: int) -> HttpResponse:
    with refusals.as_message(request):
        notifications.remove(target_id, by=_user(request))
        messages.success(request, "The address is removed.")
    return redirect("approvals:notifications")


@require_POST
@approver
def test(request: HtmxHttpRequest, target_id: int) -> HttpResponse:
    with refusals.as_message(request):
        notifications.send_test(target_id, by=_user(request))
        messages.success(request, "A test is being sent. The log below shows the result.")
    return redirect("approvals:notifications")


def _user(request: HtmxHttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user
