"""Updates of a session's page from the live stream: new rows and the session's summary.

They are rendered once for all viewers, but each viewer has other filters. A row therefore says which filters
it passes, and static/js/timeline.js leaves out the rows that its viewer filters out. A search for words is
not updated live, because the index contains new rows only after a few seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.template.loader import render_to_string

from coordinator.feed.reader import FeedChange
from coordinator.live.fragments import Drawing, LiveView
from coordinator.models import PermissionRequest, Session
from coordinator.sessions.list_facts import session_start_microseconds
from coordinator.sessions.timeline import (
    ApprovalRow,
    ArrivedRows,
    CallRow,
    MessageRow,
    MilestoneRow,
    SessionTimeline,
    TimelineRow,
    build_approval_rows,
    load_arrived_rows_of_events,
)
from coordinator.sessions.timeline.reading import CATEGORIES
from coordinator.sessions.timeline.updates import MOST_EVENTS, parse_permission_request_ids
from dashboard.rendering.allowance import wrap_with_rendering_allowance
from dashboard.sessions.steering import build_steering_context
from dashboard.timeline import draft
from dashboard.timeline.heading import build_session_header_context
from dashboard.timeline.query import TimelineQuery
from dashboard.timeline.rows import build_timeline_row_displays

STEERED_BY = frozenset({"runs", "driven"})


def draw_timeline_updates(session_id: str, changes: Sequence[FeedChange]) -> Drawing | None:
    """Return the updates that these changes cause in a session's timeline, or None if there are none.

    Keys: `rows` are new or completed rows, in the timeline's order. `draft` is what the agent is doing now,
    and `steer` the composer with the queue, each only after a change. `{"too_many": True}` tells the page to
    reload the end.
    """
    changed_rows = draw_changed_rows(session_id, changes)
    if any(change.topic == "drafts" and change.key == session_id for change in changes):
        changed_rows = {**(changed_rows or {}), "draft": draft.render_session_draft(session_id)}
    if any(change.topic in STEERED_BY and session_id in {change.key, change.parent} for change in changes):
        changed_rows = {**(changed_rows or {}), "steer": render_prompt_composer_updates(session_id)}
    return changed_rows


def render_prompt_composer_updates(session_id: str) -> str:
    """Return the current parts of the composer that can change, as HTML."""
    session = Session.objects.filter(pk=session_id).first()
    if session is None:
        return ""
    context = {"session": session, **build_steering_context(session)}
    return render_to_string("sessions/_steer_changes.html", context)[:]


def draw_changed_rows(session_id: str, changes: Sequence[FeedChange]) -> Drawing | None:
    event_ids = event_ids_of_matching_changes(changes, "insert", session_id)
    changed_ids = [
        row for row in event_ids_of_matching_changes(changes, "update", session_id) if row not in event_ids
    ]
    request_ids = parse_permission_request_ids(
        change.key for change in changes if change.topic == "permission_requests"
    )
    concerned = event_ids or request_ids or changed_ids
    session = Session.objects.filter(pk=session_id).first() if concerned else None
    if session is None:
        return None
    if len(event_ids) + len(changed_ids) > MOST_EVENTS:
        return {"too_many": True}
    timeline = SessionTimeline(session_id)
    arrived = load_arrived_rows_of_events(
        timeline, timeline.read_filtered_events_with_ids(event_ids), session
    )
    started_at = session_start_microseconds(session)
    rows = [
        *iterate_arrived_row_drawings(arrived, session, started_at),
        *iterate_drawings_of_eventless_rows(
            load_approval_timeline_rows(session, request_ids), session, started_at
        ),
    ]
    if changed_ids:
        changed = load_arrived_rows_of_events(
            timeline, timeline.read_filtered_events_with_ids(changed_ids), session
        )
        rows += [
            arrived_row | {"completes": True}
            for arrived_row in iterate_arrived_row_drawings(changed, session, started_at)
        ]
    return {"rows": rows} if rows else None


def event_ids_of_matching_changes(changes: Sequence[FeedChange], op: str, session_id: str) -> list[int]:
    wanted_change = ("events", op, session_id)
    return [
        int(change.key) for change in changes if (change.topic, change.op, change.parent) == wanted_change
    ]


def load_approval_timeline_rows(session: Session, request_ids: Iterable[int]) -> list[TimelineRow]:
    """Return the rows of those permission requests that belong to this session."""
    wanted_ids = list(request_ids)
    permission_requests = PermissionRequest.objects.filter(pk__in=wanted_ids, context__session_id=session.pk)
    return [*build_approval_rows(permission_requests.annotate_short_listed_inputs())] if wanted_ids else []


def session_summary_drawing_or_none(session_id: str) -> Drawing | None:
    """Return the session's current summary as HTML."""
    session = Session.objects.filter(pk=session_id).first()
    if session is None:
        return None
    return {
        "summary": render_to_string(
            "sessions/_summary.html", build_session_header_context(session, TimelineQuery())
        )[:]
    }


VIEW = LiveView(
    "timeline",
    frozenset({"events", "sessions", "runs", "driven", "session_changes"}),
    frozenset({"permission_requests"}),
    wrap_with_rendering_allowance(draw_timeline_updates),
    wrap_with_rendering_allowance(session_summary_drawing_or_none),
    along=frozenset({"drafts"}),
)


def iterate_arrived_row_drawings(
    arrived: ArrivedRows, session: Session, began: int
) -> Iterator[dict[str, Any]]:
    """Yield rows with the data for filters.

    A row that is in the list of all and in that of errors is rendered once.
    """
    errors = list(arrived.failed)
    for row, completes in [
        *((row, False) for row in arrived.new),
        *((row, True) for row in arrived.completed),
    ]:
        is_error = not completes and row in errors
        if is_error:
            errors.remove(row)
        yield draw_timeline_row_with_category(row, session, began, among_all=True, among_errors=is_error) | {
            "completes": completes
        }
    for row in errors:
        yield draw_timeline_row_with_category(row, session, began, among_all=False, among_errors=True) | {
            "completes": False
        }


def iterate_drawings_of_eventless_rows(
    rows: Iterable[TimelineRow], session: Session, began: int
) -> Iterator[dict[str, Any]]:
    """Yield rows that have no event. They are visible only without filters."""
    for row in rows:
        yield draw_timeline_row_with_category(row, session, began, among_all=True, among_errors=False) | {
            "completes": False
        }


def draw_timeline_row_with_category(
    row: TimelineRow, session: Session, began: int, *, among_all: bool, among_errors: bool
) -> dict[str, Any]:
    (drawn,) = build_timeline_row_displays([row], session, began)
    html = render_to_string("sessions/_timeline_row.html", {"shown": drawn, "session": session})
    return {
        "html": html[:],  # a plain str, because the stream's encoder rejects Django's SafeString
        "category": find_row_category(row),
        "tool": row.event_with_tool_name_and_input.tool_name if isinstance(row, CallRow) else None,
        "among_all": among_all,
        "among_errors": among_errors,
    }


def find_row_category(row: TimelineRow) -> str | None:
    """Return the category of a row for filters; None for a row without an event."""
    if isinstance(row, CallRow):
        return "calls"
    if isinstance(row, MessageRow):
        return "messages"
    if isinstance(row, MilestoneRow):
        return "lifecycle" if row.event.event_type in CATEGORIES["lifecycle"] else "other"
    assert isinstance(row, ApprovalRow)
    return None
