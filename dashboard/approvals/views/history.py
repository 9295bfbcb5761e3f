"""The history of all requests: filters, pages, the CSV export, and statistics."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone

from coordinator.identity.declarations import require_GET
from coordinator.models import PermissionRequest
from coordinator.policy.requests.verdicts import serialize_permission_request
from dashboard.approvals.cards import CardMember, load_linked_agents_by_request
from dashboard.approvals.filters import PermissionRequestFilter
from dashboard.approvals.statistics import compute_approval_statistics as count
from dashboard.frame.days import find_zone_by_name
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.choices import list_recent_column_values
from dashboard.lists.exports import build_csv_response
from dashboard.lists.keyset import load_keyset_page

PERIODS = (7, 30, 90)


@require_GET
@require_viewer_role
def list_approval_history(request: HtmxHttpRequest) -> HttpResponse:
    narrowed, now = (
        build_approval_history_filterset(request, PermissionRequest.objects.annotate_short_listed_inputs()),
        timezone.now(),
    )
    page, everything = load_keyset_page(narrowed.qs, request.GET), PermissionRequest.objects.all()
    agents = load_linked_agents_by_request(page.rows)
    context = {
        "filter": narrowed,
        "page": page,
        "members": [CardMember(row, now, agent=agents.get(row.request_id)) for row in page.rows],
        "filtered": any(request.GET.get(name) for name in narrowed.filters),
        "plugins": list_recent_column_values(everything, "plugin_id", chosen=request.GET.get("plugin")),
        "types": list_recent_column_values(everything, "permission_type", chosen=request.GET.get("type")),
        "export": request.GET.urlencode(),
    }
    template = "approvals/_history.html" if wants_fragment(request) else "approvals/history.html"
    return render(request, template, context)


@require_GET
@require_viewer_role
def export_approval_history(request: HtmxHttpRequest) -> StreamingHttpResponse:
    """Return a CSV file of all requests that match the filters, not only those of one page."""
    rows, now = (
        build_approval_history_filterset(request, PermissionRequest.objects.with_context()).qs.order_by(
            "-id"
        ),
        timezone.now(),
    )
    columns = (*serialize_permission_request(PermissionRequest(), now), "waited_seconds")
    return build_csv_response("approvals", columns, walk_approval_export_rows(rows, now))


@require_GET
@require_viewer_role
def show_approval_statistics(request: HtmxHttpRequest) -> HttpResponse:
    day_text = request.GET.get("days", "")
    days = int(day_text) if day_text in {str(period) for period in PERIODS} else 30
    zone_name = request.GET.get("zone", "")
    zone = find_zone_by_name(zone_name) if zone_name else None
    context = {
        "figures": count(timezone.now(), days, zone),
        "periods": PERIODS,
        "zone": zone_name if zone else str(settings.LOCAL_ZONE),
    }
    return render(request, "approvals/statistics.html", context)


def build_approval_history_filterset(
    request: HtmxHttpRequest, rows: QuerySet[PermissionRequest]
) -> PermissionRequestFilter:
    return PermissionRequestFilter(request.GET, queryset=rows)


def walk_approval_export_rows(rows: QuerySet[PermissionRequest], now: datetime) -> Iterator[dict[str, Any]]:
    for row in rows.iterator(chunk_size=20):
        wait = CardMember(row, now).waiting_time
        yield serialize_permission_request(row, now) | {
            "waited_seconds": None if wait is None else round(wait.total_seconds(), 3)
        }
