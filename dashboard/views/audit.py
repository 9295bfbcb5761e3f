"""The audit log: who did, or was refused, what to which thing. It is read here and changed nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET

from coordinator.models import AuditLog, PermissionRequest
from coordinator.policy.approvals import moment
from coordinator.transparency import proofs, state
from dashboard.filters.audit import AuditFilter
from dashboard.frame.guards import viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.choices import recent_values
from dashboard.lists.exports import csv_response, ndjson_response
from dashboard.lists.keyset import keyset_page

COLUMNS = (
    "id",
    "timestamp",
    "event_type",
    "actor_id",
    "target_id",
    "permission",
    "result",
    "reason",
    "metadata",
    "trace_id",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of a change: what it was and what it became, as text."""

    name: str
    before: str
    after: str

    @property
    def changed(self) -> bool:
        return self.before != self.after


@require_GET
@viewer
def log(request: HtmxHttpRequest) -> HttpResponse:
    narrowed = _narrowed(request)
    page = keyset_page(narrowed.qs, request.GET)
    context = {
        "filter": narrowed,
        "page": page,
        "changed": proofs.changed_among(page.rows),
        "filtered": any(request.GET.get(name) for name in narrowed.filters),
        "events": state.event_types(),
        "results": recent_values(AuditLog.objects.all(), "result", chosen=request.GET.get("result")),
        "export": request.GET.urlencode(),
        "state": state.now_at(timezone.now()),
    }
    template = "audit/_log.html" if wants_fragment(request) else "audit/list.html"
    return render(request, template, context)


@require_GET
@viewer
def entry(request: HtmxHttpRequest, entry_id: int) -> HttpResponse:
    """Show one row in full, with what it changed and what else happened in the same request."""
    row = AuditLog.objects.filter(pk=entry_id).first()
    if row is None:
        raise Http404("There is no such audit entry. Entries are deleted after 90 days.")
    same = AuditLog.objects.filter(trace_id=row.trace_id).exclude(pk=row.pk).order_by("id")
    context = {
        "row": row,
        "differences": differences(row.metadata),
        "rest": _rest(row.metadata),
        "same_trace": list(same[:50]) if row.trace_id else [],
        "in_log": proofs.look_up(row),
    }
    says_more = bool(row.reason) or any(context[name] for name in ("differences", "rest", "same_trace"))
    context |= {"says_more": says_more, "request_url": _request_url(row)}
    return render(request, "audit/entry.html", context)


@require_GET
@viewer
def export_csv(request: HtmxHttpRequest) -> StreamingHttpResponse:
    return csv_response("audit", COLUMNS, _export_rows(_narrowed(request).qs))


@require_GET
@viewer
def export_ndjson(request: HtmxHttpRequest) -> StreamingHttpResponse:
    """Answer with one JSON object a row of what the same filters show."""
    return ndjson_response("audit", _export_rows(_narrowed(request).qs))


def differences(metadata: Any) -> list[Difference]:
    """Return the fields of `before` and `after`, where a row holds both or one."""
    if not isinstance(metadata, dict) or not ("before" in metadata or "after" in metadata):
        return []
    before, after = metadata.get("before"), metadata.get("after")
    if not isinstance(before or {}, dict) or not isinstance(after or {}, dict):
        return [Difference("value", _text(before), _text(after))]
    before, after = before or {}, after or {}
    return [Difference(name, _text(before.get(name)), _text(after.get(name))) for name in {**before, **after}]


def _request_url(row: AuditLog) -> str:
    """Return the page of the permission request that the row is about, or nothing."""
    known = PermissionRequest.objects.filter(request_id=row.target_id).exists() if row.target_id else False
    return reverse("approvals:detail", args=[row.target_id]) if known else ""


def _rest(metadata: Any) -> Any:
    if not isinstance(metadata, dict):
        return metadata
    return {name: value for name, value in metadata.items() if name not in ("before", "after")}


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _narrowed(request: HtmxHttpRequest) -> AuditFilter:
    return AuditFilter(request.GET, queryset=AuditLog.objects.all())


def _export_rows(rows: QuerySet[AuditLog]) -> Iterator[dict[str, Any]]:
    for row in rows.order_by("-id").iterator(chunk_size=500):
        values = {name: getattr(row, name) for name in COLUMNS}
        yield values | {"timestamp": moment(row.timestamp)}
