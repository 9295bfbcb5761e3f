"""When a row was going on, as its bar in the waterfall says it."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.lib.times import length
from coordinator.sessions.timeline import ApprovalRow, CallRow, ChildRow
from dashboard.timeline.rows import ShownRow


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when (microseconds), how the bar looks and what it says. What `goes_on` reaches to now."""

    target: str
    from_us: int
    to_us: int
    goes_on: bool
    css_class: str
    label: str


def span_of(shown: ShownRow) -> Span:
    row = shown.row
    return Span(shown.dom_id, row.place.at_us, row.ends_us, _goes_on(shown), _css_class(shown), _label(shown))


def _goes_on(shown: ShownRow) -> bool:
    row = shown.row
    if isinstance(row, CallRow):
        return row.state == "running"
    if isinstance(row, ApprovalRow):
        return row.waits
    return isinstance(row, ChildRow) and row.runs


def _css_class(shown: ShownRow) -> str:
    row = shown.row
    if isinstance(row, CallRow):
        return f"call {row.state.replace(' ', '-')}"
    if isinstance(row, ApprovalRow):
        return f"approval {'waits' if row.waits else 'over'}"
    return f"message {shown.speaker}" if row.row_type == "message" else row.row_type


def _label(shown: ShownRow) -> str:
    row = shown.row
    if isinstance(row, CallRow):
        took = f", {length(row.duration_ms / 1000)}" if row.duration_ms is not None else f", {row.state}"
        return f"{shown.look.name} {shown.look.title[:80]}{took}"
    if isinstance(row, ApprovalRow):
        return f"Approval: {row.request.status}"
    if isinstance(row, ChildRow):
        return f"Session {row.title or row.child.agent_name or row.child.pk}"
    return shown.speaker if row.row_type == "message" else shown.milestone[1]
