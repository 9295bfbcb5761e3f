"""The rail's numbers, asked for again when what they count has changed."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from coordinator.identity.roles import has_role
from dashboard.frame.guards import refuse, viewer
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.frame.rail import entry_of


@require_safe
@never_cache
@viewer
def badge(request: HtmxHttpRequest, key: str) -> HttpResponse:
    entry = entry_of(key)
    if entry is None or entry.badge is None:
        raise Http404
    if not has_role(request.user, entry.least):
        return refuse(request, entry.least)
    number = entry.badge.number(request.user)
    context = {"item": entry, "count": number.value, "own": number.own}
    return render(request, "components/_rail_badge.html", context)
