"""How much there is of what in a session: for its header and the numbers beside its filters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from django.db.models import Count, QuerySet

from coordinator.models import Event
from coordinator.sessions import spans
from coordinator.sessions.timeline.reading import CALL_STARTS, CATEGORIES
from coordinator.sessions.timeline.wide import SessionCache, settled_event_edge


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


LATELY = 10.0  # seconds
_lately: SessionCache[SessionEventCounts] = SessionCache(LATELY)


def load_recent_event_counts(session_id: str) -> SessionEventCounts:
    """Return a session's counts as they were at most LATELY seconds ago: many readers of one session count once."""
    known = _lately.get(session_id)
    if known is None:
        known = count_session_events(session_id)
        _lately.put(session_id, known)
    return known


# Numbers of events by (event type, tool), and of those with an error.
Tally = tuple[Counter[tuple[str, str | None]], int]
# The id below which events were counted, and their tally.
_older: SessionCache[tuple[int, Tally]] = SessionCache()


def count_session_events(session_id: str) -> SessionEventCounts:
    """Count a session's events. Few queries, all answered by indexes alone."""
    numbers, errors = count_events_with_cache(session_id)
    category_of = {word: category for category, words in CATEGORIES.items() for word in words}
    categories = dict.fromkeys((*CATEGORIES, "other"), 0)
    tools: dict[str, int] = {}
    for (event_type, tool_name), number in numbers.items():
        categories[category_of.get(event_type, "other")] += number
        if event_type == CALL_STARTS:
            tools[tool_name or "tool"] = tools.get(tool_name or "tool", 0) + number
        elif event_type in CATEGORIES["calls"]:
            tools.setdefault(tool_name or "tool", 0)
    return SessionEventCounts(
        total=numbers.total(),
        categories=categories,
        tools=sorted(tools.items(), key=lambda item: (-item[1], item[0])),
        errors=errors,
    )


def count_events_with_cache(session_id: str) -> Tally:
    """Return a session's tally; of one that goes on for very long, what is old is counted once in a while."""
    span = spans.session_event_span(session_id)
    events = spans.bound_rows_to_span(Event.objects.filter(session_id=session_id), span, "id")
    edge = settled_event_edge(span)
    if edge is None:
        return count_events_by_type(events)
    known = _older.get(session_id)
    if known is None:
        known = (edge, count_events_by_type(events.filter(id__lt=edge)))
        _older.put(session_id, known)
    upto, (numbers, errors) = known
    newer, new_errors = count_events_by_type(events.filter(id__gte=upto))
    return numbers + newer, errors + new_errors


def count_events_by_type(events: QuerySet[Event]) -> Tally:
    rows = events.values_list("event_type", "tool_name").annotate(number=Count("*"))
    numbers = Counter({(event_type, tool): number for event_type, tool, number in rows.order_by()})
    return numbers, events.filter(error__isnull=False).count()
