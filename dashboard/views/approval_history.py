"""Every request ever: filters, pages, the CSV, and the figures that show whether people keep up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from coordinator.models import PermissionRequest
from coordinator.policy.verdicts import exported
from dashboard.approvals.cards import CardMember
from dashboard.approvals.statistics import statistics as count
from dashboard.filters.approvals import RequestFilter
from dashboard.frame.guards import viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.choices import recent_values
from dashboard.lists.exports import csv_response
from dashboard.lists.keyset import keyset_page

PERIODS = (7, 30, 90)


@require_GET
@viewer
def history(request: HtmxHttpRequest) -> HttpResponse:
    narrowed, now = _narrowed(request, PermissionRequest.objects.as_listed()), timezone.now()
    page, everything = keyset_page(narrowed.qs, request.GET), PermissionRequest.objects.all()
    context = {
        "filter": narrowed,
        "page": page,
        "members": [CardMember(row, now) for row in page.rows],
        "filtered": any(request.GET.get(name) for name in narrowed.filters),
        "plugins": recent_values(everything, "plugin_id", chosen=request.GET.get("plugin")),
        "types": recent_values(everything, "permission_type", chosen=request.GET.get("type")),
        "export": request.GET.urlencode(),
    }
    template = "approvals/_history.html" if wants_fragment(request) else "approvals/history.html"
    return render(request, template, context)


@require_GET
@viewer
def export(request: HtmxHttpRequest) -> StreamingHttpResponse:
    """Answer with the CSV of what the same filters show, all pages of it."""
    rows, now = (
        _narrowed(request, PermissionRequest.objects.with_context()).qs.order_by("-id"),
        timezone.now(),
    )
    columns = (*exported(PermissionRequest(), now), "waited_seconds")
    return csv_response("approvals", columns, _export_rows(rows, now))


@require_GET
@viewer
def statistics(request: HtmxHttpRequest) -> HttpResponse:
    asked = request.GET.get("days", "")
    days = int(asked) if asked in {str(period) for period in PERIODS} else 30
    context = {"figures": count(timezone.now(), days), "periods": PERIODS}
    return render(request, "approvals/statistics.html", context)


def _narrowed(request: HtmxHttpRequest, rows: QuerySet[PermissionRequest]) -> RequestFilter:
    return RequestFilter(request.GET, queryset=rows)


def _export_rows(rows: QuerySet[PermissionRequest], now: datetime) -> Iterator[dict[str, Any]]:
    for row in rows.iterator(chunk_size=20):
        wait = CardMember(row, now).waited
        yield exported(row, now) | {
            "waited_seconds": None if wait is None else round(wait.total_seconds(), 3)
        }
