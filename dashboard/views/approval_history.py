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

from coordinator import approvals
from coordinator.models import PermissionRequest
from dashboard.approval_cards import Member
from dashboard.approval_statistics import statistics as count
from dashboard.exports import csv_response
from dashboard.filters.approvals import RequestFilter
from dashboard.guards import viewer
from dashboard.htmx import HtmxHttpRequest, wants_fragment
from dashboard.keyset import keyset_page

PERIODS = (7, 30, 90)
COLUMNS = (
    "request_id",
    "status",
    "created_at",
    "plugin_id",
    "permission_type",
    "target_resource",
    "justification",
    "approved_by",
    "approved_at",
    "waited_seconds",
    "validity",
    "expires_at",
    "reason",
    "revoked_at",
    "deadline",
    "session_id",
    "agent_id",
    "tool_name",
    "tool_input",
    "metadata",
)


@require_GET
@viewer
def history(request: HtmxHttpRequest) -> HttpResponse:
    """Show what was asked and how it ended, newest first."""
    narrowed, now = _narrowed(request), timezone.now()
    page = keyset_page(narrowed.qs, request.GET)
    context = {
        "filter": narrowed,
        "page": page,
        "members": [Member(row, now) for row in page.rows],
        "filtered": any(request.GET.get(name) for name in narrowed.filters),
        "plugins": _values("plugin_id"),
        "types": _values("permission_type"),
        "export": request.GET.urlencode(),
    }
    template = "approvals/_history.html" if wants_fragment(request) else "approvals/history.html"
    return render(request, template, context)


@require_GET
@viewer
def export(request: HtmxHttpRequest) -> StreamingHttpResponse:
    """Answer with the CSV of what the same filters show, all pages of it."""
    rows = _narrowed(request).qs.order_by("-id")
    return csv_response("approvals", COLUMNS, _told(rows, timezone.now()))


@require_GET
@viewer
def statistics(request: HtmxHttpRequest) -> HttpResponse:
    """Show whether people keep up with what agents ask."""
    asked = request.GET.get("days", "")
    days = int(asked) if asked in {str(period) for period in PERIODS} else 30
    context = {"figures": count(timezone.now(), days), "periods": PERIODS}
    return render(request, "approvals/statistics.html", context)


def _narrowed(request: HtmxHttpRequest) -> RequestFilter:
    return RequestFilter(request.GET, queryset=PermissionRequest.objects.with_context())


def _values(column: str) -> QuerySet[PermissionRequest, str]:
    """Return what a filter can offer; both columns are few in their values."""
    return PermissionRequest.objects.order_by(column).values_list(column, flat=True).distinct()[:200]


def _told(rows: QuerySet[PermissionRequest], now: datetime) -> Iterator[dict[str, Any]]:
    for row in rows.iterator(chunk_size=500):
        wait = Member(row, now).waited
        yield approvals.answer(row, now) | {
            "waited_seconds": None if wait is None else round(wait.total_seconds(), 3)
        }
