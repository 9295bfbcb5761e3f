"""A session as a file, and on paper."""

from __future__ import annotations

import re
from itertools import islice

from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from coordinator.models import Session
from coordinator.sessions.timeline.walking import walk_events, walk_rows
from coordinator.transparency.proofs import EntryState
from dashboard.frame.guards import viewer
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.lists.exports import ndjson_response
from dashboard.sessions.evidence import MOST_ENTRIES, entries_of, evidence_of
from dashboard.timeline.as_markdown import markdown_of
from dashboard.timeline.heading import header_context
from dashboard.timeline.query import Query
from dashboard.timeline.rows import shown
from dashboard.views.session_events import as_json

MOST_PRINTED = 1_000  # rows: a browser lays out no more in reasonable time


def file_name(session: Session) -> str:
    return re.sub(r"[^\w.-]+", "_", session.pk, flags=re.ASCII)[:100].lstrip(".") or "session"


@require_safe
@viewer
def ndjson(request: HtmxHttpRequest, session_id: str) -> StreamingHttpResponse:  # noqa: ARG001
    """Return every event, in timeline order, as one JSON object a line."""
    session = get_object_or_404(Session, pk=session_id)
    return ndjson_response(file_name(session), (as_json(event) for event in walk_events(session)))


@require_safe
@viewer
def markdown(request: HtmxHttpRequest, session_id: str) -> StreamingHttpResponse:  # noqa: ARG001
    session = get_object_or_404(Session, pk=session_id)
    response = StreamingHttpResponse(markdown_of(session), content_type="text/markdown; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{file_name(session)}.md"'
    return response


@require_safe
@viewer
def evidence(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Show the session's requests and decisions, and how each stands in the audit log's tree."""
    session = get_object_or_404(Session, pk=session_id)
    found = entries_of(session)
    context = header_context(session, Query.of(request.GET)) | {
        "entries": found,
        "cut": len(found) == MOST_ENTRIES,
        "altered": [one for one in found if one.entry.problem],
        "waiting": sum(one.entry.standing is EntryState.WAITING for one in found),
    }
    return render(request, "sessions/evidence.html", context)


@require_safe
@viewer
def evidence_zip(request: HtmxHttpRequest, session_id: str) -> FileResponse:  # noqa: ARG001
    session = get_object_or_404(Session, pk=session_id)
    name = f"evidence-{file_name(session)}.zip"
    return FileResponse(
        evidence_of(session), as_attachment=True, filename=name, content_type="application/zip"
    )


@require_safe
@viewer
def printable(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    session = get_object_or_404(Session, pk=session_id)
    rows = list(islice(walk_rows(session), MOST_PRINTED + 1))
    context = header_context(session, Query.of(request.GET)) | {
        "rows": shown(rows[:MOST_PRINTED], session),
        "cut": len(rows) > MOST_PRINTED,
        "unfolded": True,
    }
    return render(request, "sessions/print.html", context)
