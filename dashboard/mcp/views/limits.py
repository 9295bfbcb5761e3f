"""Call limits of a server and its tools, its circuit breaker and its result cache. An admin sets them."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from coordinator.actions.mcp import call_limits, result_cache
from coordinator.actions.mcp.call_limits import CallLimitSettings
from coordinator.errors import UnprocessableRequest
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_POST
from coordinator.models import McpTool
from dashboard.frame import form_refusals as refusals
from dashboard.frame.guards import require_admin
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.mcp.limit_parts import KIB

CHOICES = {"": None, "yes": True, "no": False}


@require_POST
@require_admin
def save_call_limits_view(request: HtmxHttpRequest) -> HttpResponse:
    """Save the limits of a server's calls, or of one tool's."""
    server, tool = request.POST.get("server", ""), request.POST.get("tool", "")
    with refusals.add_refusal_message_during_block(request):
        result_kib = parse_optional_whole_number_field(request, "result_kib", "The largest result")
        new = CallLimitSettings(
            parse_optional_whole_number_field(request, "call_seconds", "The longest call"),
            parse_optional_whole_number_field(request, "calls_per_minute", "The rate"),
            result_kib * KIB if result_kib is not None else None,
            CHOICES.get(request.POST.get("masks", "")),
            parse_optional_whole_number_field(
                request, "cache_seconds", "The time for which a result is answered again"
            ),
            CHOICES.get(request.POST.get("marks_addresses", "")),
            parse_optional_whole_number_field(request, "breaker_failures", "The number of failures"),
            parse_optional_whole_number_field(request, "breaker_seconds", "The time"),
        )
        is_changed = call_limits.save_call_limits(
            server, tool, new, actor=person_actor(request.user), now=timezone.now()
        )
        messages.success(request, "Saved." if is_changed else "Nothing changed.")
    return redirect(limits_page_url(server, tool))


@require_POST
@require_admin
def close_circuit_breaker_view(request: HtmxHttpRequest) -> HttpResponse:
    """Close a server's circuit breaker, so that it is called again at once."""
    server = request.POST.get("server", "")
    with refusals.add_refusal_message_during_block(request):
        was_open = call_limits.close_circuit_breaker(
            server, actor=person_actor(request.user), now=timezone.now()
        )
        messages.success(request, "The server is called again." if was_open else "It was closed already.")
    return redirect(limits_page_url(server, ""))


@require_POST
@require_admin
def clear_result_cache_view(request: HtmxHttpRequest) -> HttpResponse:
    """Delete a server's cached results."""
    server = request.POST.get("server", "")
    with refusals.add_refusal_message_during_block(request):
        deleted = result_cache.clear_result_cache(
            server, actor=person_actor(request.user), now=timezone.now()
        )
        messages.success(request, "The cache is empty." if deleted else "The cache was empty already.")
    return redirect(limits_page_url(server, ""))


def parse_optional_whole_number_field(request: HtmxHttpRequest, name: str, label: str) -> int | None:
    """Return the whole number in a form field; None if it is empty. Raises UnprocessableRequest."""
    text = request.POST.get(name, "").strip()
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 8:
        raise UnprocessableRequest(f"{label} must be a whole number.")
    return int(text)


def limits_page_url(server: str, tool: str) -> str:
    if tool and McpTool.objects.filter(server_id=server, name=tool).exists():
        return f"{reverse('mcp:tool')}?{urlencode({'server': server, 'tool': tool})}"
    return reverse("mcp:server", args=[server]) if server else reverse("mcp:list")
