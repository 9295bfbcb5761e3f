"""How the gateway reaches a server, and the server's credentials: set by an admin; no page shows a value."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from coordinator.actions import mcp_credentials, mcp_upstreams
from coordinator.actions.mcp_upstreams import Upstream
from coordinator.identity.actors import person
from coordinator.models.gateway import Network, Transport
from dashboard.frame import refusals
from dashboard.frame.guards import admin
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.mcp import gateway_parts


@require_POST
@admin
def set_upstream(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Say how the gateway reaches a server, or that it does not."""
    form = request.POST
    chosen, seconds = form.get("transport", ""), form.get("call_seconds", "")
    with refusals.as_message(request):
        wanted = Upstream(
            Transport.STDIO.value if chosen == gateway_parts.NOT_OFFERED else chosen,
            form.get("url", "").strip() or None,
            form.get("sharing", ""),
            "private_network" in form,
            int(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) < 9 else 0,
            chosen != gateway_parts.NOT_OFFERED,
            form.get("network") or Network.NONE.value,
            _lines(form.get("folders", "")),
            _lines(form.get("writable_folders", "")),
        )
        seen = form.get("command", "")
        mcp_upstreams.set_upstream(name, wanted, by=person(request.user), now=timezone.now(), seen=seen)
        messages.success(request, "Saved.")
    return redirect("mcp:server", name)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


@require_POST
@admin
def set_isolation_off(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Have the server started without isolation, or isolated again."""
    is_off = request.POST.get("isolation") == "off"
    with refusals.as_message(request):
        confirmed = request.POST.get("confirm", "").strip()
        mcp_upstreams.set_isolation_off(
            name, is_off, confirmed=confirmed, by=person(request.user), now=timezone.now()
        )
        messages.success(request, "Isolation is switched off." if is_off else "Isolation is switched on.")
    return redirect("mcp:server", name)


@require_POST
@admin
def accept_command(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Let the command be started that the page showed."""
    with refusals.as_message(request):
        seen = request.POST.get("command", "")
        mcp_upstreams.accept_command(name, seen=seen, by=person(request.user), now=timezone.now())
        messages.success(request, "Accepted. The server starts with the next call.")
    return redirect("mcp:server", name)


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
        messages.success(request, f"{variable} was set. Its value is not shown again.")
    return redirect("mcp:server", name)


@require_POST
@admin
def remove(request: HtmxHttpRequest, name: str) -> HttpResponse:
    kind, _, variable = request.POST.get("credential", "").partition(" ")
    with refusals.as_message(request):
        mcp_credentials.remove(name, kind, variable, by=person(request.user), now=timezone.now())
        messages.success(request, f"{variable} was removed.")
    return redirect("mcp:server", name)
