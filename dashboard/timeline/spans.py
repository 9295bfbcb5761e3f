"""When a row was going on, as its bar in the waterfall says it."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.lib.times import format_duration
from coordinator.sessions.timeline import ApprovalRow, CallRow, ChildRow
from dashboard.timeline.rows import TimelineRowDisplay


@dataclass(frozen=True, slots=True)
class RowSpan:
    """From when to when (microseconds), how the bar looks and what it says. What `goes_on` reaches to now."""

    target: str
    from_us: int
    to_us: int
    goes_on: bool
    css_class: str
    label: str


def build_row_span(shown: TimelineRowDisplay) -> RowSpan:
    row = shown.row
    return RowSpan(
        shown.dom_id,
        row.place.at_us,
        row.row_end_us,
        is_row_going_on(shown),
        span_css_class(shown),
        describe_row_span(shown),
    )


def is_row_going_on(shown: TimelineRowDisplay) -> bool:
    row = shown.row
    if isinstance(row, CallRow):
        return row.call_state == "running"
    if isinstance(row, ApprovalRow):
        return row.is_waiting_for_person
    return isinstance(row, ChildRow) and row.is_child_running


def span_css_class(shown: TimelineRowDisplay) -> str:
    row = shown.row
    if isinstance(row, CallRow):
        return f"call {row.call_state.replace(' ', '-')}"
    if isinstance(row, ApprovalRow):
        return f"approval {'waits' if row.is_waiting_for_person else 'over'}"
    return f"message {shown.speaker_role}" if row.row_type == "message" else row.row_type


def describe_row_span(shown: TimelineRowDisplay) -> str:
    row = shown.row
    if isinstance(row, CallRow):
        took = (
            f", {format_duration(row.duration_ms / 1000)}"
            if row.duration_ms is not None
            else f", {row.call_state}"
        )
        return f"{shown.call_display.name} {shown.call_display.title[:80]}{took}"
    if isinstance(row, ApprovalRow):
        return f"Approval: {row.request.status}"
    if isinstance(row, ChildRow):
        return f"Session {row.title or row.child.agent_name or row.child.pk}"
    return shown.speaker_role if row.row_type == "message" else shown.milestone_display[1]
