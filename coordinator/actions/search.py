"""Keeps the search index up with the events: housekeeping adds what is new, a command builds it afresh.

An event enters the index once and never changes. When it goes with its session its words stay behind and find
nothing, until `forget_deleted` takes them out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from django.db import connection, transaction

from coordinator import instants
from coordinator.search_text import TEXTS, Facts, words_said

STEP = 250  # events a transaction, so that other writers wait for moments only
WINDOW = 1_000  # events looked at together for whether they are indexed
MOST_AT_ONCE = 20_000  # events one call of housekeeping takes on
GENTLE_FOR = 1.5  # seconds one call of housekeeping takes: less than until the next
REST_PER_WORK = 2.0
MOST_FORGOTTEN = 10_000  # events whose words SQLite holds in memory at once
# On PostgreSQL a transaction that began early may commit late, with ids below those that are indexed already.
OVERLAP = 5_000

_INDEXED = {
    "sqlite": "SELECT id FROM sbx_search_docsize WHERE id BETWEEN %s AND %s",
    "postgresql": "SELECT event_id FROM sbx_search WHERE event_id BETWEEN %s AND %s",
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
    """Index events that are not indexed yet, oldest first, until `most` are done; return how many."""
    done = 0
    for ids in _missing(_beginning()):
        done += _index(ids)
        if done >= most:
            break
    return done


def index_gently(now: datetime | None = None) -> int:  # noqa: ARG001 # a job is told the time
    """Index what is new for a moment, resting longer than it works: events that come in go first."""
    done = 0
    began = step_began = time.monotonic()
    for ids in _missing(_beginning()):
        done += _index(ids)
        if time.monotonic() - began > GENTLE_FOR:
            break
        time.sleep(REST_PER_WORK * (time.monotonic() - step_began))
        step_began = time.monotonic()
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
    done = 0
    for ids in _missing(0):
        done += _index(ids)
        progress(done)
    return done


def _scalar(statement: str) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]  # type: ignore[no-any-return]


def _beginning() -> int:
    return max((_scalar(_NEWEST[connection.vendor]) or 0) - OVERLAP, 0)


def _missing(after: int) -> Iterator[list[int]]:
    """Yield the ids of events beyond `after` that are not indexed, oldest first, STEP at most at a time.

    Looks at WINDOW events at once: asked for the first few among all, PostgreSQL reads both tables whole.
    """
    while window := _ids("SELECT id FROM events WHERE id > %s ORDER BY id LIMIT %s", after, WINDOW):
        after = window[-1]
        known = set(_ids(_INDEXED[connection.vendor], window[0], after))
        missing = [pk for pk in window if pk not in known]
        for start in range(0, len(missing), STEP):
            yield missing[start : start + STEP]


def _ids(statement: str, *parameters: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return [row[0] for row in cursor.fetchall()]


def _index(ids: Sequence[int]) -> int:
    """Index these events. Reading and cutting into words is done before the transaction: that is what takes long."""
    on_sqlite = connection.vendor == "sqlite"
    words: set[str] = set()
    documents = []
    for facts, texts in _read(ids):
        said = words_said(texts)
        words.update(said)
        documents.append((facts.event_id, " ".join(said + facts.words())))
    with transaction.atomic(), connection.cursor() as cursor:
        if on_sqlite:
            cursor.executemany(
                "INSERT OR IGNORE INTO sbx_search_terms VALUES (%s)", [(w,) for w in sorted(words)]
            )
        else:
            cursor.execute(
                "INSERT INTO sbx_search_terms SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING",
                [sorted(words)],
            )
        cursor.executemany(
            _INSERT[connection.vendor],
            [(pk, text, pk) if on_sqlite else (pk, text) for pk, text in documents],
        )
    return len(documents)


def _read(ids: Sequence[int]) -> list[tuple[Facts, Sequence[str | None]]]:
    places = ", ".join(["%s"] * len(ids))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT e.id, e.session_id, event_type, timestamp, instant_us, {TEXTS} FROM events e"  # noqa: S608 # constants
            f" LEFT JOIN event_context c ON c.event_id = e.id WHERE e.id IN ({places}) ORDER BY e.id",
            list(ids),
        )
        rows = cursor.fetchall()
    return [
        (Facts(pk, session_id, event_type, texts[-1], _moment(at_us, timestamp)), texts)
        for pk, session_id, event_type, timestamp, at_us, *texts in rows
    ]


def _moment(at_us: int | None, timestamp: str) -> datetime | None:
    try:
        return instants.parse(timestamp) if at_us is None else instants.from_us(at_us)
    except OverflowError:
        return None


def forget_deleted(now: datetime | None = None) -> int:  # noqa: ARG001 # a job is told the time
    """Take the words of deleted events out of the index, of MOST_FORGOTTEN at most; return of how many events."""
    if connection.vendor == "sqlite":
        return _forget_on_sqlite()
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM sbx_search i WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.id = i.event_id)"
        )
        return int(cursor.rowcount)


# The index keeps no texts, and FTS5 takes an event's words out only if it is told them. So they are looked for in
# the index itself: one walk through all of it, and thus for many events at once.
_GONE = """
CREATE TEMP TABLE sbx_gone AS SELECT id FROM sbx_search_docsize d
WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.id = d.id) LIMIT {most}
"""
_WORDS_OF_GONE = """
CREATE TEMP TABLE sbx_gone_words AS SELECT doc AS id, group_concat(term, ' ') AS body
FROM sbx_places WHERE doc IN (SELECT id FROM sbx_gone) GROUP BY doc
"""


def _forget_on_sqlite() -> int:
    with connection.cursor() as cursor:
        try:
            cursor.execute(_GONE.format(most=MOST_FORGOTTEN))
            gone = _scalar("SELECT count(*) FROM sbx_gone") or 0
            if gone:
                cursor.execute(
                    "CREATE VIRTUAL TABLE temp.sbx_places USING fts5vocab(main, sbx_search, instance)"
                )
                cursor.execute(_WORDS_OF_GONE)
                _forget_step_by_step(gone)
        finally:
            for name in ("sbx_gone", "sbx_gone_words", "sbx_places"):
                cursor.execute(f"DROP TABLE IF EXISTS temp.{name}")
    return gone


def _forget_step_by_step(gone: int) -> None:
    for start in range(0, gone, STEP):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO sbx_search (sbx_search, rowid, body) SELECT 'delete', id, body FROM sbx_gone_words"
                " ORDER BY id LIMIT %s OFFSET %s",
                [STEP, start],
            )
