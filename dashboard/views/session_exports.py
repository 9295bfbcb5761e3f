"""A session as a file, and on paper."""

from __future__ import annotations

import re
from itertools import islice

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from coordinator.models import Session
from coordinator.timeline.walking import walk_events, walk_rows
from dashboard.exports import ndjson_response
from dashboard.guards import viewer
from dashboard.htmx import HtmxHttpRequest
from dashboard.timeline.as_markdown import markdown_of
from dashboard.timeline.query import Query
from dashboard.timeline.shown import shown
from dashboard.views.session_events import as_json
from dashboard.views.sessions import header_context

MOST_PRINTED = 1_000  # rows: a browser lays out no more in reasonable time


def file_name(session: Session) -> str:
    """Return a session's id as a file name."""
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
    """Return the session as a readable document."""
    session = get_object_or_404(Session, pk=session_id)
    response = StreamingHttpResponse(markdown_of(session), content_type="text/markdown; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{file_name(session)}.md"'
    return response


@require_safe
@viewer
def printable(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    """Show the session unfolded, without anything to press."""
    session = get_object_or_404(Session, pk=session_id)
    rows = list(islice(walk_rows(session), MOST_PRINTED + 1))
    context = header_context(session, Query.of(request.GET)) | {
        "rows": shown(rows[:MOST_PRINTED], session),
        "cut": len(rows) > MOST_PRINTED,
        "unfolded": True,
    }
    return render(request, "sessions/print.html", context)
