"""How the gateway reaches a server, and the server's credentials.

An admin sets both; values are never shown.
"""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from coordinator.actions.mcp import mcp_credentials, mcp_upstreams
from coordinator.actions.mcp.mcp_upstreams import UpstreamConfig
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_POST
from coordinator.models.gateway import Network, Transport
from dashboard.frame import form_refusals as refusals
from dashboard.frame.form_page_redirects import declare_page_of_form_view
from dashboard.frame.guards import require_admin
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.mcp import gateway_parts


@require_POST
@declare_page_of_form_view("mcp:server")
@require_admin
def save_upstream_view(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Save how the gateway reaches a server, or that it does not offer it."""
    form = request.POST
    chosen, seconds = form.get("transport", ""), form.get("call_seconds", "")
    with refusals.add_refusal_message_during_block(request):
        upstream_config = UpstreamConfig(
            Transport.STDIO.value if chosen == gateway_parts.NOT_OFFERED else chosen,
            form.get("url", "").strip() or None,
            form.get("sharing", ""),
            "private_network" in form,
            int(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) < 9 else 0,
            chosen != gateway_parts.NOT_OFFERED,
            form.get("network") or Network.NONE.value,
            split_nonblank_lines(form.get("folders", "")),
            split_nonblank_lines(form.get("writable_folders", "")),
        )
        command = form.get("command", "")
        mcp_upstreams.save_upstream_config(
            name, upstream_config, actor=person_actor(request.user), now=timezone.now(), seen_version=command
        )
        messages.success(request, "Saved.")
    return redirect("mcp:server", name)


def split_nonblank_lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


@require_POST
@declare_page_of_form_view("mcp:server")
@require_admin
def switch_server_isolation(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Switch the isolation of a server off or on."""
    is_off = request.POST.get("isolation") == "off"
    with refusals.add_refusal_message_during_block(request):
        confirmed = request.POST.get("confirm", "").strip()
        mcp_upstreams.change_server_isolation(
            name, is_off, confirmed=confirmed, actor=person_actor(request.user), now=timezone.now()
        )
        messages.success(request, "Isolation is switched off." if is_off else "Isolation is switched on.")
    return redirect("mcp:server", name)


@require_POST
@declare_page_of_form_view("mcp:server")
@require_admin
def accept_server_command_view(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Accept the command that the page showed, so that the server may be started."""
    with refusals.add_refusal_message_during_block(request):
        command = request.POST.get("command", "")
        mcp_upstreams.accept_changed_server_command(
            name, seen_version=command, actor=person_actor(request.user), now=timezone.now()
        )
        messages.success(request, "Accepted. The server starts with the next call.")
    return redirect("mcp:server", name)


@require_POST
@declare_page_of_form_view("mcp:server")
@require_admin
def save_server_credential_view(request: HtmxHttpRequest, name: str) -> HttpResponse:
    kind, variable = request.POST.get("kind", ""), request.POST.get("name", "").strip()
    with refusals.add_refusal_message_during_block(request):
        mcp_credentials.save_server_credential(
            name,
            kind,
            variable,
            request.POST.get("value", ""),
            actor=person_actor(request.user),
            now=timezone.now(),
        )
        messages.success(request, f"{variable} was set. Its value is not shown again.")
    return redirect("mcp:server", name)


@require_POST
@declare_page_of_form_view("mcp:server")
@require_admin
def delete_server_credential_view(request: HtmxHttpRequest, name: str) -> HttpResponse:
    kind, _, variable = request.POST.get("credential", "").partition(" ")
    with refusals.add_refusal_message_during_block(request):
        mcp_credentials.remove_server_credential(
            name, kind, variable, actor=person_actor(request.user), now=timezone.now()
        )
        messages.success(request, f"{variable} was removed.")
    return redirect("mcp:server", name)
