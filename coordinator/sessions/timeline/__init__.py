"""What a person reads of a session: its events in order, calls paired with their results, a window at a time."""

from __future__ import annotations

from coordinator.sessions.timeline.counts import Counts, counts_of, recent_counts
from coordinator.sessions.timeline.density import Slot, density_of
from coordinator.sessions.timeline.news import TimelineChanges, news_of, position
from coordinator.sessions.timeline.pairing import Pairs, pair, row_place
from coordinator.sessions.timeline.places import EventPlace
from coordinator.sessions.timeline.reading import Filters, StoredValue, Timeline, TimelineEvent, Window
from coordinator.sessions.timeline.rows import (
    ApprovalRow,
    ArrivedRows,
    CallRow,
    ChildRow,
    MessageRow,
    MilestoneRow,
    Row,
    approval_rows,
    rows_of,
    rows_since,
)

__all__ = [
    "ApprovalRow",
    "ArrivedRows",
    "CallRow",
    "ChildRow",
    "Counts",
    "EventPlace",
    "Filters",
    "MessageRow",
    "MilestoneRow",
    "Pairs",
    "Row",
    "Slot",
    "StoredValue",
    "Timeline",
    "TimelineChanges",
    "TimelineEvent",
    "Window",
    "approval_rows",
    "counts_of",
    "density_of",
    "news_of",
    "pair",
    "position",
    "recent_counts",
    "row_place",
    "rows_of",
    "rows_since",
]
