"""Keeps the search index up with the events: housekeeping adds what is new, a command builds it afresh.

An event enters the index once and never changes. When it goes with its session its words stay behind and find
nothing; on PostgreSQL `forget_deleted` takes them out, on SQLite the next rebuild does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from coordinator.search_text import INDEX_CHARACTERS, document

STEP = 250  # events a transaction, so that other writers wait for moments only
MOST_AT_ONCE = 20_000  # events one call of housekeeping takes on
GENTLE_FOR = 1.5  # seconds one call of housekeeping takes: less than until the next
REST_PER_WORK = 2.0
# On PostgreSQL a transaction that began early may commit late, with ids below those that are indexed already.
OVERLAP = 5_000

_COLUMNS = ("tool_input", "tool_output", "content", "error", "reason")
_INDEXED = {
    "sqlite": "SELECT 1 FROM sbx_search_docsize i WHERE i.id = e.id",
    "postgresql": "SELECT 1 FROM sbx_search i WHERE i.event_id = e.id",
}
_NEWEST = {
    "sqlite": "SELECT max(id) FROM sbx_search_docsize",
    "postgresql": "SELECT max(event_id) FROM sbx_search",
}
_INSERT = {
    # Twice the same event would be found twice, and the virtual table itself does not refuse it.
    "sqlite": (
        "INSERT INTO sbx_search (rowid, body) SELECT %s, %s"
        " WHERE NOT EXISTS (SELECT 1 FROM sbx_search_docsize WHERE id = %s)"
    ),
    "postgresql": (
        "INSERT INTO sbx_search (event_id, words) VALUES (%s, to_tsvector('simple', %s)) ON CONFLICT DO NOTHING"
    ),
}


def index_new(now: datetime | None = None, *, most: int = MOST_AT_ONCE) -> int:  # noqa: ARG001 # a job is told the time
    """Index events that are not indexed yet, oldest first, at most `most`; return how many."""
    done = 0
    after = max((_scalar(_NEWEST[connection.vendor]) or 0) - OVERLAP, 0)
    while done < most:
        ids = _missing(after)
        if not ids:
            break
        done += _index(ids)
        after = ids[-1]
    return done


def index_gently(now: datetime | None = None) -> int:  # noqa: ARG001 # a job is told the time
    """Index what is new for a moment, resting longer than it works: events that come in go first."""
    done, began = 0, time.monotonic()
    while time.monotonic() - began < GENTLE_FOR:
        step_began = time.monotonic()
        found = index_new(most=STEP)
        done += found
        if found < STEP:
            break
        time.sleep(REST_PER_WORK * (time.monotonic() - step_began))
    return done


def behind() -> int:
    """Return how many events are newer than the newest that is indexed, by their ids."""
    newest = _scalar("SELECT max(id) FROM events") or 0
    return max(newest - (_scalar(_NEWEST[connection.vendor]) or 0), 0)


def rebuild(progress: Callable[[int], object] = lambda _done: None) -> int:
    """Empty the index and build it from all events; `progress` hears how many are done. Returns how many."""
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("INSERT INTO sbx_search (sbx_search) VALUES ('delete-all')")
        else:
            cursor.execute("TRUNCATE sbx_search")
    done = after = 0
    while ids := _missing(after):
        done += _index(ids)
        after = ids[-1]
        progress(done)
    return done


def _scalar(statement: str) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]  # type: ignore[no-any-return]


def _missing(after: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT e.id FROM events e WHERE e.id > %s AND NOT EXISTS ({_INDEXED[connection.vendor]})"  # noqa: S608 # constants
            " ORDER BY e.id LIMIT %s",
            [after, STEP],
        )
        return [row[0] for row in cursor.fetchall()]


def _index(ids: Sequence[int]) -> int:
    """Index these events. Reading and cutting into words is done before the transaction: that is what takes long."""
    on_sqlite = connection.vendor == "sqlite"
    with connection.cursor() as cursor:
        documents = [(row[0], document(row[1], row[2], row[3], _values(row))) for row in _rows(cursor, ids)]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(
            _INSERT[connection.vendor],
            [(pk, text, pk) if on_sqlite else (pk, text) for pk, text in documents],
        )
    return len(documents)


def _values(row: tuple[Any, ...]) -> tuple[str | None, ...]:
    """Return what is indexed of a row. A call's end repeats its input, which would only be found twice."""
    return row[5:] if row[2] == "post_tool" else row[4:]


def _rows(cursor: Any, ids: Sequence[int]) -> list[tuple[Any, ...]]:
    heads = ", ".join(f"substr({column}, 1, {INDEX_CHARACTERS})" for column in _COLUMNS)
    places = ", ".join(["%s"] * len(ids))
    cursor.execute(
        f"SELECT id, session_id, event_type, tool_name, {heads} FROM events WHERE id IN ({places}) ORDER BY id",  # noqa: S608 # constants
        list(ids),
    )
    return list(cursor.fetchall())


def forget_deleted(now: datetime | None = None) -> int:  # noqa: ARG001 # a job is told the time
    """Take the words of deleted events out of the index, where the engine can; return how many events."""
    if connection.vendor == "sqlite":
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM sbx_search i WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.id = i.event_id)"
        )
        return int(cursor.rowcount)
