"""Plugins: the list, one plugin's page, its switch and its permissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from coordinator.actions.plugins import plugin_permissions, plugins
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import require_POST, require_safe
from dashboard.frame import form_refusals as refusals
from dashboard.frame.form_page_redirects import declare_page_of_form_view
from dashboard.frame.guards import require_admin, require_approver, require_policy_editor, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.lists.status_facets import build_status_facets
from dashboard.plugins.rows import load_plugin_details, load_plugin_rows
from dashboard.text.markdown import highlight_code

STATES = ("active", "inactive", "unknown")
LABELS = {"unknown": "Not registered"}


@require_safe
@require_viewer_role
def list_plugins(request: HtmxHttpRequest) -> HttpResponse:
    search_text, state = request.GET.get("q", "")[:200], request.GET.get("state", "")
    rows = [
        row for row in load_plugin_rows(timezone.now()) if plugin_row_matches_search_text(row, search_text)
    ]
    numbers = {name: sum(row.plugin_state == name for row in rows) for name in STATES}
    shown_counts = {name: number for name, number in numbers.items() if number or name == state}
    context = {
        "statuses": build_status_facets(shown_counts, request.GET, "state", LABELS),
        "rows": [row for row in rows if state in ("", row.plugin_state)],
        "words": search_text,
        "state": state,
    }
    return render(request, "plugins/list.html", context)


def plugin_row_matches_search_text(row: Any, words: str) -> bool:
    text = f"{row.plugin_id} {' '.join(row.permission_names)}".lower()
    return all(word in text for word in words.lower().split())


@require_safe
@require_viewer_role
def show_plugin(request: HtmxHttpRequest, plugin_id: str) -> HttpResponse:
    """Show a plugin's page. An unknown id also has a page, with a note that it is not registered."""
    query_values = {name: request.GET.get(name, "")[:500] for name in ("prefix", "after")}
    details = load_plugin_details(plugin_id, timezone.now(), **query_values)
    context: dict[str, Any] = {"details": details, "prefix": query_values["prefix"]}
    if details.runtime is not None:
        context["code"] = highlight_code(details.runtime.code_content, filename=details.runtime.script_name)
    return render(request, "plugins/detail.html", context)


@require_POST
@declare_page_of_form_view("plugins:detail")
@require_admin
def switch_plugin_view(request: HtmxHttpRequest, plugin_id: str) -> HttpResponse:
    on = request.POST.get("on") == "yes"

    def enable_or_disable_posted_plugin(**common: Any) -> str:
        plugins.enable_or_disable_plugin(plugin_id, on, **common)
        return f"{plugin_id} is now {'active' if on else 'inactive'}."

    return run_action_and_redirect_to_plugin(request, plugin_id, enable_or_disable_posted_plugin)


@require_POST
@declare_page_of_form_view("plugins:detail")
@require_policy_editor
def grant_plugin_permission_view(request: HtmxHttpRequest, plugin_id: str) -> HttpResponse:
    name = request.POST.get("permission", "")

    def grant_named_permission(**common: Any) -> str:
        plugin_permissions.add_plugin_permission(plugin_id, name, **common)
        return f"{name} was granted to {plugin_id}."

    return run_action_and_redirect_to_plugin(request, plugin_id, grant_named_permission)


@require_POST
@declare_page_of_form_view("plugins:detail")
@require_approver
def revoke_plugin_permission_view(request: HtmxHttpRequest, plugin_id: str) -> HttpResponse:
    name = request.POST.get("permission", "")

    def revoke_named_permission(**common: Any) -> str:
        plugin_permissions.remove_plugin_permission(plugin_id, name, **common)
        return f"{name} was revoked from {plugin_id}."

    return run_action_and_redirect_to_plugin(request, plugin_id, revoke_named_permission)


@require_POST
@require_admin
def register_plugin_view(request: HtmxHttpRequest, plugin_id: str) -> HttpResponse:
    """Register a plugin that only other tables refer to; it starts without permissions."""

    def register_unknown_plugin(*, actor: Any, now: Any, **_other_fields: Any) -> str:
        plugins.create_plugin(plugin_id, actor=actor, now=now)
        return f"{plugin_id} is registered, without permissions."

    return run_action_and_redirect_to_plugin(request, plugin_id, register_unknown_plugin)


def run_action_and_redirect_to_plugin(
    request: HtmxHttpRequest, plugin_id: str, act: Callable[..., str]
) -> HttpResponse:
    """Run `act` on the version that the person saw, and redirect to the plugin's page.

    The next page shows the message that `act` returned, or the reason for a refusal.
    """
    with refusals.add_refusal_message_during_block(request):
        message = act(
            actor=person_actor(request.user),
            seen_version=request.POST.get("version") or None,
            reason=request.POST.get("reason", "").strip()[:500] or None,
            now=timezone.now(),
        )
        messages.success(request, message)
    return redirect("plugins:detail", plugin_id)
