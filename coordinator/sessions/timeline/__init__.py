"""The timeline of a session: its events in order, calls paired with their results, a window at a time."""

from __future__ import annotations

from coordinator.sessions.timeline.counts import (
    SessionEventCounts,
    get_or_load_event_counts,
    load_session_event_counts,
)
from coordinator.sessions.timeline.density import DensitySlot, load_cached_density_slots
from coordinator.sessions.timeline.pairing import CallPairs, find_timeline_row_position, pair_call_events
from coordinator.sessions.timeline.positions import EventPosition
from coordinator.sessions.timeline.reading import (
    EventWindow,
    SessionTimeline,
    StoredValue,
    TimelineEvent,
    TimelineFilters,
)
from coordinator.sessions.timeline.rows import (
    ApprovalRow,
    ArrivedRows,
    CallRow,
    ChildRow,
    MessageRow,
    MilestoneRow,
    TimelineRow,
    build_approval_rows,
    load_arrived_rows_of_events,
    load_window_rows,
)
from coordinator.sessions.timeline.updates import (
    TimelineChanges,
    load_timeline_changes,
    newest_feed_change_id,
)

__all__ = [
    "ApprovalRow",
    "ArrivedRows",
    "CallPairs",
    "CallRow",
    "ChildRow",
    "DensitySlot",
    "EventPosition",
    "EventWindow",
    "MessageRow",
    "MilestoneRow",
    "SessionEventCounts",
    "SessionTimeline",
    "StoredValue",
    "TimelineChanges",
    "TimelineEvent",
    "TimelineFilters",
    "TimelineRow",
    "build_approval_rows",
    "find_timeline_row_position",
    "get_or_load_event_counts",
    "load_arrived_rows_of_events",
    "load_cached_density_slots",
    "load_session_event_counts",
    "load_timeline_changes",
    "load_window_rows",
    "newest_feed_change_id",
    "pair_call_events",
]
