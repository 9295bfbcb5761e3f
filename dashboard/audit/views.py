"""The audit log: who did, or was refused, what to which object. It is read-only."""

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

from coordinator.identity.declarations import require_GET
from coordinator.models import AuditLog, PermissionRequest
from coordinator.policy.requests.approvals import canonical_instant_or_text
from coordinator.transparency import proofs, state
from dashboard.audit.filters import AuditFilter
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.choices import list_recent_column_values
from dashboard.lists.exports import build_csv_response, build_ndjson_response
from dashboard.lists.keyset import load_keyset_page

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
class AuditFieldChange:
    """One field of a change, with its values before and after as text."""

    name: str
    before: str
    after: str

    @property
    def has_changed_value(self) -> bool:
        return self.before != self.after


@require_GET
@require_viewer_role
def list_audit_entries(request: HtmxHttpRequest) -> HttpResponse:
    narrowed = build_audit_filter(request)
    page = load_keyset_page(narrowed.qs, request.GET)
    context = {
        "filter": narrowed,
        "page": page,
        "changed": proofs.find_row_ids_differing_from_log(page.rows),
        "filtered": any(request.GET.get(name) for name in narrowed.filters),
        "events": state.list_audit_event_types(),
        "results": list_recent_column_values(
            AuditLog.objects.all(), "result", chosen=request.GET.get("result")
        ),
        "export": request.GET.urlencode(),
        "state": state.load_log_state(timezone.now()),
    }
    template = "audit/_log.html" if wants_fragment(request) else "audit/list.html"
    return render(request, template, context)


@require_GET
@require_viewer_role
def show_audit_entry(request: HtmxHttpRequest, entry_id: int) -> HttpResponse:
    """Show one entry in full, with its changes and the other entries of the same request."""
    row = AuditLog.objects.filter(pk=entry_id).first()
    if row is None:
        raise Http404("There is no such audit entry. Entries are deleted after 90 days.")
    same = AuditLog.objects.filter(trace_id=row.trace_id).exclude(pk=row.pk).order_by("id")
    context = {
        "row": row,
        "differences": list_audit_field_changes(row.metadata),
        "rest": audit_metadata_without_changes(row.metadata),
        "same_trace": list(same[:50]) if row.trace_id else [],
        "in_log": proofs.verify_and_load_entry_status(row),
    }
    has_details = bool(row.reason) or any(context[name] for name in ("differences", "rest", "same_trace"))
    context |= {"has_details": has_details, "request_url": permission_request_url_or_empty(row)}
    return render(request, "audit/entry.html", context)


@require_GET
@require_viewer_role
def export_audit_csv(request: HtmxHttpRequest) -> StreamingHttpResponse:
    return build_csv_response("audit", COLUMNS, walk_audit_export_rows(build_audit_filter(request).qs))


@require_GET
@require_viewer_role
def export_audit_ndjson(request: HtmxHttpRequest) -> StreamingHttpResponse:
    """Return the entries that match the filters, as one JSON object a line."""
    return build_ndjson_response("audit", walk_audit_export_rows(build_audit_filter(request).qs))


def list_audit_field_changes(metadata: Any) -> list[AuditFieldChange]:
    """Return the changed fields of an entry's metadata (`before` and `after`); empty if it has neither."""
    if not isinstance(metadata, dict) or not ("before" in metadata or "after" in metadata):
        return []
    before, after = metadata.get("before"), metadata.get("after")
    if not isinstance(before or {}, dict) or not isinstance(after or {}, dict):
        return [AuditFieldChange("value", format_audit_value(before), format_audit_value(after))]
    before, after = before or {}, after or {}
    return [
        AuditFieldChange(name, format_audit_value(before.get(name)), format_audit_value(after.get(name)))
        for name in {**before, **after}
    ]


def permission_request_url_or_empty(row: AuditLog) -> str:
    """Return the URL of the permission request that the entry is about; empty if it is about none."""
    is_known_request = (
        PermissionRequest.objects.filter(request_id=row.target_id).exists() if row.target_id else False
    )
    return reverse("approvals:detail", args=[row.target_id]) if is_known_request else ""


def audit_metadata_without_changes(metadata: Any) -> Any:
    if not isinstance(metadata, dict):
        return metadata
    return {name: value for name, value in metadata.items() if name not in ("before", "after")}


def format_audit_value(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def build_audit_filter(request: HtmxHttpRequest) -> AuditFilter:
    return AuditFilter(request.GET, queryset=AuditLog.objects.all())


def walk_audit_export_rows(rows: QuerySet[AuditLog]) -> Iterator[dict[str, Any]]:
    for row in rows.order_by("-id").iterator(chunk_size=500):
        values = {name: getattr(row, name) for name in COLUMNS}
        yield values | {"timestamp": canonical_instant_or_text(row.timestamp)}
