"""Counts of a session's events by kind: for its header and the numbers next to its filters."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from dataclasses import dataclass

from django.db.models import Count, QuerySet

from coordinator.models import Event
from coordinator.sessions.timeline.reading import CALL_STARTS, CATEGORIES, UNNAMED_TOOL


@dataclass(frozen=True, slots=True)
class SessionEventCounts:
    """Numbers of events by category (as in Filters), of calls by tool, most used first, and of events with an error."""

    total: int
    categories: dict[str, int]
    tools: list[tuple[str, int]]
    errors: int

    @property
    def call_count(self) -> int:
        return sum(number for _, number in self.tools)


RECENT_SECONDS = 10.0
MOST_RECENT_SESSIONS = 256
# By session: when its events were counted (monotonic), and the counts.
_recent_counts: OrderedDict[str, tuple[float, SessionEventCounts]] = OrderedDict()


def get_or_load_event_counts(session_id: str) -> SessionEventCounts:
    """Return a session's counts, at most RECENT_SECONDS old: many readers of one session count once."""
    session_event_count = _recent_counts.get(session_id)
    if session_event_count is not None and time.monotonic() - session_event_count[0] <= RECENT_SECONDS:
        return session_event_count[1]
    counts = load_session_event_counts(session_id)
    _recent_counts[session_id] = (time.monotonic(), counts)
    _recent_counts.move_to_end(session_id)
    while len(_recent_counts) > MOST_RECENT_SESSIONS:
        _recent_counts.popitem(last=False)
    return counts


# Numbers of events by (event type, tool), and of those with an error.
Tally = tuple[Counter[tuple[str, str | None]], int]


def load_session_event_counts(session_id: str) -> SessionEventCounts:
    """Count a session's events. Few queries, all answered by indexes alone."""
    numbers, errors = count_events_by_type_and_errors(Event.objects.filter(session_id=session_id))
    category_of = {
        word: category for category, category_words in CATEGORIES.items() for word in category_words
    }
    categories = dict.fromkeys((*CATEGORIES, "other"), 0)
    tools: dict[str, int] = {}
    ends: dict[str, int] = {}
    for (event_type, tool_name), number in numbers.items():
        categories[category_of.get(event_type, "other")] += number
        tool = tool_name or UNNAMED_TOOL
        if event_type == CALL_STARTS:
            tools[tool] = tools.get(tool, 0) + number
        elif event_type in CATEGORIES["calls"]:
            ends[tool] = ends.get(tool, 0) + number
    # Some programs report only the ends of a tool's calls.
    tools = ends | tools
    return SessionEventCounts(
        total=numbers.total(),
        categories=categories,
        tools=sorted(tools.items(), key=lambda item: (-item[1], item[0])),
        errors=errors,
    )


def count_events_by_type_and_errors(events: QuerySet[Event]) -> Tally:
    rows = events.values_list("event_type", "tool_name").annotate(number=Count("*"))
    numbers = Counter({(event_type, tool): number for event_type, tool, number in rows.order_by()})
    return numbers, events.filter(error__isnull=False).count()
