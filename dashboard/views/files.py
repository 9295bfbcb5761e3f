"""What agents did to a file, across all sessions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from coordinator.lib import instants
from coordinator.lib.storable import row_id
from coordinator.search import files
from coordinator.search.progress import coming
from coordinator.sessions.timeline import StoredValue
from dashboard.frame.guards import viewer
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.lists.status_facets import changed
from dashboard.looks import Look, look_of
from dashboard.views.session_list import choices

MOST_SHOWN = 20  # files that the page names, of those that are meant


@dataclass(frozen=True, slots=True)
class TouchRow:
    """A call, as the list draws it. `at` is None where nobody can tell when it was."""

    touch: files.Touch
    look: Look
    at: datetime | None


@require_safe
@vary_on_headers("HX-Request")
@viewer
def touched(request: HtmxHttpRequest) -> HttpResponse:
    """List the calls that touched the files that `path` means, newest first."""
    asked = {name: request.GET.get(name, "")[:1000] for name in ("path", "tool", "agent")}
    before = request.GET.get("before", "")
    meant = files.named(asked["path"])
    found = files.touches(
        meant,
        tool=asked["tool"],
        agent=asked["agent"],
        before=row_id(before),
    )
    context = {
        "asked": asked,
        "files": meant[:MOST_SHOWN],
        "more_files": len(meant) - MOST_SHOWN,
        "most_files": files.MOST_FILES,
        "all_meant": len(meant) < files.MOST_FILES,
        "rows": [row_of(touch) for touch in found.touches],
        "coming": coming(),
        "older": changed(request.GET, before=str(found.before)) if found.before else "",
        "first": changed(request.GET, before="") if before else "",
    }
    if wants_fragment(request):
        return render(request, "search/_touches.html", context)
    context |= {"agents": choices("agent_name"), "tools": files.tools()}
    return render(request, "search/files.html", context)


def row_of(touch: files.Touch) -> TouchRow:
    context = getattr(touch.event, "context", None)
    at = instants.from_us(context.instant_us) if context else instants.parse(touch.event.timestamp)
    return TouchRow(touch, look_of(touch.event.tool_name, _stored(touch.tool_input), None, None), at)


def _stored(text: str) -> StoredValue | None:
    try:
        return StoredValue(json.loads(text), len(text))
    except (ValueError, RecursionError):
        return None
