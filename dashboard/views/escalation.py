"""Escalation: admins say who is told of a request that nobody has decided after so many minutes."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from coordinator.actions import notifications
from dashboard.frame import refusals
from dashboard.frame.guards import admin
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.notifications.escalation import steps, to_choose


@require_GET
@admin
def page(request: HtmxHttpRequest) -> HttpResponse:
    context = {"steps": steps(), "choices": to_choose()}
    return render(request, "notifications/escalation.html", context)


@require_POST
@admin
def add(request: HtmxHttpRequest) -> HttpResponse:
    minutes = request.POST.get("after_minutes", "").strip()
    if not (minutes.isascii() and minutes.isdecimal() and len(minutes) < 6):
        messages.error(request, "Choose a number of minutes, 0 for at once.")
        return redirect("approvals:escalation")
    with refusals.as_message(request):
        notifications.add_step(
            by=_user(request),
            after_minutes=int(minutes),
            whom=request.POST.get("whom", "")[:200],
            now=timezone.now(),
        )
        messages.success(request, "The step was added. It applies to new requests.")
    return redirect("approvals:escalation")


@require_POST
@admin
def remove(request: HtmxHttpRequest, step_id: int) -> HttpResponse:
    with refusals.as_message(request):
        notifications.remove_step(step_id, by=_user(request), now=timezone.now())
        messages.success(request, "The step was removed.")
    return redirect("approvals:escalation")


def _user(request: HtmxHttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user
