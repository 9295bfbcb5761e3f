"""Plugins: the list, one plugin's page, its switch and its permissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from coordinator.actions import plugin_permissions, plugins
from coordinator.identity.actors import person
from dashboard.frame import refusals
from dashboard.frame.guards import admin, approver, policy_editor, viewer
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.lists.status_facets import facets
from dashboard.plugins.rows import plugin_details, plugin_rows
from dashboard.text.markdown import colour

STATES = ("active", "inactive", "unknown")
LABELS = {"unknown": "Not registered"}


@require_safe
@viewer
def listing(request: HtmxHttpRequest) -> HttpResponse:
    words, state = request.GET.get("q", "")[:200], request.GET.get("state", "")
    rows = [row for row in plugin_rows(timezone.now()) if _matches(row, words)]
    numbers = {name: sum(row.state == name for row in rows) for name in STATES}
    shown = {name: number for name, number in numbers.items() if number or name == state}
    context = {
        "statuses": facets(shown, request.GET, "state", LABELS),
        "rows": [row for row in rows if state in ("", row.state)],
        "words": words,
        "state": state,
    }
    return render(request, "plugins/list.html", context)


def _matches(row: Any, words: str) -> bool:
    text = f"{row.plugin_id} {' '.join(row.permissions)}".lower()
    return all(word in text for word in words.lower().split())


@require_safe
@viewer
def detail(request: HtmxHttpRequest, plugin_id: str) -> HttpResponse:
    """Show one plugin; one that is not known has a page too, which says so."""
    asked = {name: request.GET.get(name, "")[:500] for name in ("prefix", "after")}
    details = plugin_details(plugin_id, timezone.now(), **asked)
    context: dict[str, Any] = {"details": details, "prefix": asked["prefix"]}
    if details.runtime is not None:
        context["code"] = colour(details.runtime.code_content, filename=details.runtime.script_name)
    return render(request, "plugins/detail.html", context)


@require_POST
@admin
def switch(request: HtmxHttpRequest, plugin_id: str) -> HttpResponse:
    on = request.POST.get("on") == "yes"

    def act(**common: Any) -> str:
        plugins.set_active(plugin_id, on, **common)
        return f"{plugin_id} is now {'active' if on else 'inactive'}."

    return _done(request, plugin_id, act)


@require_POST
@policy_editor
def grant(request: HtmxHttpRequest, plugin_id: str) -> HttpResponse:
    name = request.POST.get("permission", "")

    def act(**common: Any) -> str:
        plugin_permissions.grant(plugin_id, name, **common)
        return f"{name} was granted to {plugin_id}."

    return _done(request, plugin_id, act)


@require_POST
@approver
def revoke(request: HtmxHttpRequest, plugin_id: str) -> HttpResponse:
    name = request.POST.get("permission", "")

    def act(**common: Any) -> str:
        plugin_permissions.revoke(plugin_id, name, **common)
        return f"{name} was revoked from {plugin_id}."

    return _done(request, plugin_id, act)


@require_POST
@admin
def register(request: HtmxHttpRequest, plugin_id: str) -> HttpResponse:
    """Register a plugin that only other tables refer to; it starts without permissions."""

    def act(*, by: Any, now: Any, **_others: Any) -> str:
        plugins.register(plugin_id, by=by, now=now)
        return f"{plugin_id} is registered, without permissions."

    return _done(request, plugin_id, act)


def _done(request: HtmxHttpRequest, plugin_id: str, act: Callable[..., str]) -> HttpResponse:
    """Act on the version the person has seen, say what came of it, and go back to the plugin."""
    with refusals.as_message(request):
        said = act(
            by=person(request.user),
            seen=request.POST.get("version") or None,
            reason=request.POST.get("reason", "").strip()[:500] or None,
            now=timezone.now(),
        )
        messages.success(request, said)
    return redirect("plugins:detail", plugin_id)
