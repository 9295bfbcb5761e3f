"""The first page: what needs somebody, what is going on, what happened last."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from coordinator.overview import look
from dashboard.guards import viewer
from dashboard.htmx import HtmxHttpRequest, wants_fragment


@require_safe
@vary_on_headers("HX-Request")
@viewer
def overview(request: HtmxHttpRequest) -> HttpResponse:
    """Show the counts and the latest rows, or these alone when a change has been signalled."""
    template = "overview/_now.html" if wants_fragment(request) else "overview/overview.html"
    return render(request, template, {"overview": look(timezone.now())})
