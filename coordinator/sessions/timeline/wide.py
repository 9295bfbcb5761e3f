"""Sessions that go on for so long that counting their events takes long: what is old is counted once.

Their events lie among very many ids (sessions.spans). Those far below the newest id come and go no more, but for
retention; so what was found of them is remembered for a while, and a page looks at the newer ones alone. PostgreSQL
then reads the last parts of the events table.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Generic, TypeVar

from coordinator.engine import partitions
from coordinator.sessions.spans import Span

WIDE = 1_500_000  # ids from a session's first event to its last
LATE = 200_000  # ids below the newest one that an event of a transaction still open may get
FOUND_KEPT_FOR = 600.0  # seconds
MOST_SESSIONS = 256

Found = TypeVar("Found")


def settled_event_edge(span: Span | None) -> int | None:
    """Return the id below which nothing new comes for a session with this span; None where it is not a wide one."""
    if span is None or span[1] - span[0] < WIDE:
        return None
    edge = (partitions.last_assigned_event_id() - LATE) // partitions.GRAIN * partitions.GRAIN
    return edge if edge > span[0] else None


class SessionCache(Generic[Found]):
    """What was found of sessions' events, by session, for `kept_for` seconds; of the latest MOST_SESSIONS."""

    def __init__(self, kept_for: float = FOUND_KEPT_FOR) -> None:
        self._kept_for = kept_for
        self._known: OrderedDict[str, tuple[float, Found]] = OrderedDict()

    def get(self, session_id: str) -> Found | None:
        known = self._known.get(session_id)
        return known[1] if known and time.monotonic() - known[0] <= self._kept_for else None

    def put(self, session_id: str, found: Found) -> None:
        self._known[session_id] = (time.monotonic(), found)
        self._known.move_to_end(session_id)
        while len(self._known) > MOST_SESSIONS:
            self._known.popitem(last=False)

    def clear(self) -> None:
        self._known.clear()
