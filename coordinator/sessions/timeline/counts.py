"""How much there is of what in a session: for its header and the numbers beside its filters."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

from django.db.models import Count

from coordinator.models import Event
from coordinator.sessions.timeline.reading import CALL_STARTS, KINDS


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of events by kind (as in Filters), of calls by tool, most used first, and of events with an error."""

    total: int
    kinds: dict[str, int]
    tools: list[tuple[str, int]]
    errors: int

    @property
    def calls(self) -> int:
        return sum(number for _, number in self.tools)


LATELY = 10.0  # seconds
REMEMBERED = 256  # sessions
_lately: OrderedDict[str, tuple[float, Counts]] = OrderedDict()


def recent_counts(session_id: str) -> Counts:
    """Return a session's counts as they were at most LATELY seconds ago: many readers of one session count once."""
    known = _lately.get(session_id)
    if known is None or time.monotonic() - known[0] > LATELY:
        known = (time.monotonic(), counts_of(session_id))
        _lately[session_id] = known
        while len(_lately) > REMEMBERED:
            _lately.popitem(last=False)
    return known[1]


def counts_of(session_id: str) -> Counts:
    """Count a session's events. Two queries, both answered by indexes alone."""
    rows = list(
        Event.objects.filter(session_id=session_id)
        .values_list("event_type", "tool_name")
        .annotate(number=Count("*"))
        .order_by("event_type", "tool_name")
    )
    kind_of = {word: kind for kind, words in KINDS.items() for word in words}
    kinds = dict.fromkeys((*KINDS, "other"), 0)
    tools: dict[str, int] = {}
    for event_type, tool_name, number in rows:
        kinds[kind_of.get(event_type, "other")] += number
        if event_type == CALL_STARTS:
            tools[tool_name or "tool"] = tools.get(tool_name or "tool", 0) + number
        elif event_type in KINDS["calls"]:
            tools.setdefault(tool_name or "tool", 0)
    return Counts(
        total=sum(row[2] for row in rows),
        kinds=kinds,
        tools=sorted(tools.items(), key=lambda item: (-item[1], item[0])),
        errors=Event.objects.filter(session_id=session_id, error__isnull=False).count(),
    )
