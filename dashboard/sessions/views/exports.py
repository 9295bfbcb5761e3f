"""A session as a file, and as a page to print."""

from __future__ import annotations

import re
from itertools import islice

from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render

from coordinator.identity.declarations import require_safe
from coordinator.models import Session
from coordinator.sessions.timeline.walking import walk_session_events, walk_session_rows
from coordinator.transparency.proofs import EntryState
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.lists.exports import build_ndjson_response
from dashboard.sessions.evidence import MOST_ENTRIES, load_session_audit_entries, open_temporary_evidence_zip
from dashboard.sessions.views.events import export_event_as_dict
from dashboard.timeline.as_markdown import iterate_session_markdown
from dashboard.timeline.heading import build_session_header_context
from dashboard.timeline.query import TimelineQuery
from dashboard.timeline.rows import build_timeline_row_displays

MOST_PRINTED = 1_000  # rows; a browser cannot lay out more in reasonable time


def session_export_file_stem(session: Session) -> str:
    return re.sub(r"[^\w.-]+", "_", session.pk, flags=re.ASCII)[:100].lstrip(".") or "session"


@require_safe
@require_viewer_role
def export_session_ndjson(request: HtmxHttpRequest, session_id: str) -> StreamingHttpResponse:  # noqa: ARG001
    """Return all events in timeline order, one JSON object per line."""
    session = get_object_or_404(Session, pk=session_id)
    return build_ndjson_response(
        session_export_file_stem(session),
        (export_event_as_dict(event) for event in walk_session_events(session)),
    )


@require_safe
@require_viewer_role
def export_session_markdown(request: HtmxHttpRequest, session_id: str) -> StreamingHttpResponse:  # noqa: ARG001
    session = get_object_or_404(Session, pk=session_id)
    response = StreamingHttpResponse(
        iterate_session_markdown(session), content_type="text/markdown; charset=utf-8"
    )
    response.headers["Content-Disposition"] = f'attachment; filename="{session_export_file_stem(session)}.md"'
    return response


@require_safe
@require_viewer_role
def show_session_evidence(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Show the session's requests and decisions, and the state of each in the audit log's Merkle tree."""
    session = get_object_or_404(Session, pk=session_id)
    session_audit_entries = load_session_audit_entries(session)
    context = build_session_header_context(session, TimelineQuery.parse_timeline_query(request.GET)) | {
        "entries": session_audit_entries,
        "cut": len(session_audit_entries) == MOST_ENTRIES,
        "altered": [audit_entry for audit_entry in session_audit_entries if audit_entry.entry.problem],
        "waiting": sum(
            audit_entry.entry.state is EntryState.WAITING for audit_entry in session_audit_entries
        ),
    }
    return render(request, "sessions/evidence.html", context)


@require_safe
@require_viewer_role
def download_session_evidence(request: HtmxHttpRequest, session_id: str) -> FileResponse:  # noqa: ARG001
    session = get_object_or_404(Session, pk=session_id)
    name = f"evidence-{session_export_file_stem(session)}.zip"
    return FileResponse(
        open_temporary_evidence_zip(session),
        as_attachment=True,
        filename=name,
        content_type="application/zip",
    )


@require_safe
@require_viewer_role
def show_printable_session(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    session = get_object_or_404(Session, pk=session_id)
    rows = list(islice(walk_session_rows(session), MOST_PRINTED + 1))
    context = build_session_header_context(session, TimelineQuery.parse_timeline_query(request.GET)) | {
        "rows": build_timeline_row_displays(rows[:MOST_PRINTED], session),
        "cut": len(rows) > MOST_PRINTED,
        "unfolded": True,
    }
    return render(request, "sessions/print.html", context)
