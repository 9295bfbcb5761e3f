"""What a person reads of a session: its events in order, calls paired with their results, a window at a time."""

from __future__ import annotations

from coordinator.timeline.counts import Counts, counts_of
from coordinator.timeline.density import Slot, density_of
from coordinator.timeline.news import News, news_of, position
from coordinator.timeline.pairing import Pairs, pair, row_place
from coordinator.timeline.places import Place
from coordinator.timeline.reading import Filters, Stored, Timeline, TimelineEvent, Window
from coordinator.timeline.rows import (
    ApprovalRow,
    CallRow,
    ChildRow,
    MarkerRow,
    MessageRow,
    Row,
    approval_rows,
    rows_of,
    rows_since,
)

__all__ = [
    "ApprovalRow",
    "CallRow",
    "ChildRow",
    "Counts",
    "Filters",
    "MarkerRow",
    "MessageRow",
    "News",
    "Pairs",
    "Place",
    "Row",
    "Slot",
    "Stored",
    "Timeline",
    "TimelineEvent",
    "Window",
    "approval_rows",
    "counts_of",
    "density_of",
    "news_of",
    "pair",
    "position",
    "row_place",
    "rows_of",
    "rows_since",
]
