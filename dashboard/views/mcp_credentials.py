"""Credentials of a server: set and removed by an admin; no page shows a value."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from coordinator.actions import mcp_credentials
from coordinator.identity.actors import person
from dashboard.frame import refusals
from dashboard.frame.guards import admin
from dashboard.frame.htmx import HtmxHttpRequest


@require_POST
@admin
def set_value(request: HtmxHttpRequest, name: str) -> HttpResponse:
    kind, variable = request.POST.get("kind", ""), request.POST.get("name", "").strip()
    with refusals.as_message(request):
        mcp_credentials.set_value(
            name,
            kind,
            variable,
            request.POST.get("value", ""),
            by=person(request.user),
            now=timezone.now(),
        )
        messages.success(request, f"{variable} is set. Its value is not shown again.")
    return redirect("mcp:server", name)


@require_POST
@admin
def remove(request: HtmxHttpRequest, name: str) -> HttpResponse:
    kind, _, variable = request.POST.get("credential", "").partition(" ")
    with refusals.as_message(request):
        mcp_credentials.remove(name, kind, variable, by=person(request.user), now=timezone.now())
        messages.success(request, f"{variable} is removed.")
    return redirect("mcp:server", name)
