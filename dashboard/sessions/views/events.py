"""An event of a session, or a part of it: whole values, images, raw JSON. Pages load them on demand."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.vary import vary_on_headers

from coordinator.api.downloads import POLICY
from coordinator.chat import attachments, thumbnails
from coordinator.identity.declarations import require_safe
from coordinator.models import Event, Session
from coordinator.sessions.events import JSON_COLUMNS
from coordinator.sessions.timeline import CallRow, MessageRow, SessionTimeline, StoredValue, TimelineEvent
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest, wants_fragment
from dashboard.looks.parts import (
    DisplayPart,
    build_json_part,
    disable_shortening_in_block,
    extract_content_blocks,
    is_image_block,
)
from dashboard.timeline.rows import TimelineRowDisplay

TITLES = {"tool_input": "Input", "tool_output": "Output", "content": "Message"}


def find_event_or_404(session_id: str, event_id: int) -> Event:
    """Return the session's event with its context. Raises Http404 if there is none."""
    return get_object_or_404(Event.objects.select_related("context"), session_id=session_id, pk=event_id)


@require_safe
@require_viewer_role
def show_raw_event(request: HtmxHttpRequest, session_id: str, event_id: int) -> HttpResponse:  # noqa: ARG001
    """Return an event as JSON: its columns, decoded, and what Signalbox stores about it."""
    event = find_event_or_404(session_id, event_id)
    return JsonResponse(export_event_as_dict(event), json_dumps_params={"indent": 2, "ensure_ascii": False})


def export_event_as_dict(event: Event) -> dict[str, Any]:
    """Return an event's columns and those of its context, in the form of exports."""
    data = {field.attname: getattr(event, field.attname) for field in event._meta.concrete_fields}
    context = getattr(event, "context", None)
    if context is not None:
        context_fields = {
            field.attname: getattr(context, field.attname) for field in context._meta.concrete_fields
        }
        data["context"] = {
            name: value for name, value in context_fields.items() if name not in {"event_id", "session_id"}
        }
    return data


@require_safe
@vary_on_headers("HX-Request")
@require_viewer_role
def show_event_value(request: HtmxHttpRequest, session_id: str, event_id: int, column: str) -> HttpResponse:
    """Show the whole input or output of a call, or a whole message, as a fragment in its row or as a page."""
    session = get_object_or_404(Session, pk=session_id)
    if column not in TITLES:
        raise Http404
    event = load_event_with_uncut_values(session_id, event_id)
    context: dict[str, Any] = {
        "session": session,
        "event": event,
        "of": event_id,
        "which": column,
        "parts": None,
    }
    base = reverse("sessions:detail", args=[session_id])
    context |= {"column": column, "back": f"{base}?event={event_id}#event-{event_id}"}
    context["title"] = f"{TITLES[column]} of {event.tool_name}" if event.tool_name else TITLES[column]
    with disable_shortening_in_block():
        if event.event_type in ("message", "result"):
            context["shown"] = TimelineRowDisplay(MessageRow(event.event_position, event), base, 0)
        else:
            context["parts"] = build_column_parts(event, column, base)
        template = "sessions/_value.html" if wants_fragment(request) else "sessions/value.html"
        return render(request, template, context)


def build_column_parts(event: TimelineEvent, column: str, base: str) -> list[DisplayPart]:
    """Return one column of an event as display parts."""
    if event.event_type not in ("pre_tool", "post_tool"):
        stored = getattr(event, column)
        return [build_json_part(stored.value)] if stored else []
    start, end = (event, None) if event.event_type == "pre_tool" else (None, event)
    call_display = TimelineRowDisplay(
        CallRow(event.event_position, start, end, may_run=False), base, 0
    ).call_display
    return call_display.inputs if column == "tool_input" else call_display.outputs


def load_event_with_uncut_values(session_id: str, event_id: int) -> TimelineEvent:
    """Return an event with complete values, however long they are.

    The end of a call also has the call's input.
    """
    events = SessionTimeline(session_id).read_events_with_ids([event_id])
    if not events:
        raise Http404
    row = find_event_or_404(session_id, event_id)
    complete_values = {
        name: StoredValue(getattr(row, name), 0) if getattr(row, name) is not None else None
        for name in JSON_COLUMNS
    }
    event = events[0]
    return TimelineEvent(
        **{name: getattr(event, name) for name in event.__slots__} | complete_values | {"error": row.error}
    )


@require_safe
@require_viewer_role
def show_event_image(
    request: HtmxHttpRequest,  # noqa: ARG001
    session_id: str,
    event_id: int,
    column: str,
    number: int,
) -> HttpResponse:
    """Return the image in a content block. Raises Http404 if its bytes are not of a supported image type."""
    if column not in TITLES:
        raise Http404
    blocks = extract_content_blocks(getattr(find_event_or_404(session_id, event_id), column))
    if number >= len(blocks) or not is_image_block(blocks[number]):
        raise Http404
    data = image_block_bytes_or_empty(blocks[number])
    kind = attachments.sniff_mime_type(data[: attachments.HEAD])
    if kind not in thumbnails.TYPES:
        raise Http404
    response = HttpResponse(data, content_type=kind)
    response["Content-Security-Policy"] = POLICY
    return response


def image_block_bytes_or_empty(block: dict[str, Any]) -> bytes:
    text = block["data"] if isinstance(block.get("data"), str) else block["source"]["data"]
    try:
        return base64.b64decode(text, validate=False)
    except (binascii.Error, ValueError):
        return b""
