"""Escalation: admins set who is notified of a request that is undecided after a number of minutes."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from coordinator.actions import notifications
from coordinator.identity.declarations import require_GET, require_POST
from dashboard.frame import form_refusals as refusals
from dashboard.frame.form_page_redirects import declare_page_of_form_view
from dashboard.frame.guards import require_admin
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.notifications.escalation import list_escalation_recipient_choices, list_escalation_steps


@require_GET
@require_admin
def show_escalation_steps(request: HtmxHttpRequest) -> HttpResponse:
    context = {"steps": list_escalation_steps(), "choices": list_escalation_recipient_choices()}
    return render(request, "notifications/escalation.html", context)


@require_POST
@require_admin
def add_escalation_step_view(request: HtmxHttpRequest) -> HttpResponse:
    minutes = request.POST.get("after_minutes", "").strip()
    if not (minutes.isascii() and minutes.isdecimal() and len(minutes) < 6):
        messages.error(request, "Choose a number of minutes, 0 for at once.")
        return redirect("approvals:escalation")
    with refusals.add_refusal_message_during_block(request):
        notifications.create_escalation_step(
            user=signed_in_admin_of_request(request),
            after_minutes=int(minutes),
            whom=request.POST.get("whom", "")[:200],
            now=timezone.now(),
        )
        messages.success(request, "The step was added. It applies to new requests.")
    return redirect("approvals:escalation")


@require_POST
@declare_page_of_form_view("approvals:escalation")
@require_admin
def delete_escalation_step_view(request: HtmxHttpRequest, step_id: int) -> HttpResponse:
    with refusals.add_refusal_message_during_block(request):
        notifications.remove_escalation_step(
            step_id, user=signed_in_admin_of_request(request), now=timezone.now()
        )
        messages.success(request, "The step was removed.")
    return redirect("approvals:escalation")


def signed_in_admin_of_request(request: HtmxHttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user
