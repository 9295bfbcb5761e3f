"""Counting events by time: ranges of the index cost SQLite least, grouping costs PostgreSQL least."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from coordinator.engine import is_sqlite

Slots = Sequence[tuple[int, int]]  # from one instant until before another, in microseconds since 1970


def count_events_per_slot(session_id: str, slot_stretches: Sequence[Slots]) -> list[int]:
    """Return how many of the session's events fall into each slot, in order.

    Slots of one row follow each other and are of one length, but for its last.
    """
    if is_sqlite():
        return count_events_per_interval_on_sqlite(
            session_id, [slot for row in slot_stretches for slot in row]
        )
    return [
        number for row in slot_stretches for number in count_events_per_interval_on_postgres(session_id, row)
    ]


def count_events_per_interval_on_sqlite(session_id: str, slots: Slots) -> list[int]:
    interval_sql = (
        "SELECT count(*) FROM event_context WHERE session_id = %s AND instant_us >= %s AND instant_us < %s"
    )
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ALL ".join([interval_sql] * len(slots)),
            [value for first, last in slots for value in (session_id, first, last)],
        )
        return [number for (number,) in cursor.fetchall()]


def count_events_per_interval_on_postgres(session_id: str, slots: Slots) -> list[int]:
    (begin, then), (_, end) = slots[0], slots[-1]
    counts = [0] * len(slots)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (instant_us - %s) / %s AS slot, count(*) FROM event_context"
            " WHERE session_id = %s AND instant_us >= %s AND instant_us < %s GROUP BY slot",
            [begin, then - begin, session_id, begin, end],
        )
        for number, events in cursor.fetchall():
            counts[number] = events
    return counts
