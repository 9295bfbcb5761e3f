"""The numbers in the rail, which pages fetch again when the counted rows have changed."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache

from coordinator.identity.declarations import require_safe
from coordinator.identity.roles import has_role
from dashboard.frame.guards import render_role_refusal, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.frame.rail import find_rail_entry_by_key


@require_safe
@never_cache
@require_viewer_role
def show_rail_badge(request: HtmxHttpRequest, key: str) -> HttpResponse:
    entry = find_rail_entry_by_key(key)
    if entry is None or entry.badge is None:
        raise Http404
    if not has_role(request.user, entry.least):
        return render_role_refusal(request, entry.least)
    number = entry.badge.number(request.user)
    context = {
        "item": entry,
        "count": number.value,
        "own": number.own,
        "seconds": number.seconds_until_change,
    }
    return render(request, "components/_rail_badge.html", context)
