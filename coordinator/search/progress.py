"""How much of the events the index does not hold yet, for those who search meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from coordinator.lib import instants

MANY_CHANGES = 500  # that the index has not followed yet: fewer are followed within a second or two
MOST_COUNTED = 50_000  # waiting events


@dataclass(frozen=True, slots=True)
class IndexingProgress:
    """What is still to be indexed, each in percent done, or None where nothing of it is.

    `events`: a sweep through all of them. `pieces`: words that were kept before there were pieces of words.
    `files`: events that came before it was noted which files calls touch.
    `waiting` says how many events wait, MOST_COUNTED at most, 0 where they are few; `complete_until` since when.
    """

    events: int | None = None
    pieces: int | None = None
    waiting: int = 0
    complete_until: datetime | None = None
    files: int | None = None
    most_counted: int = MOST_COUNTED


def load_indexing_progress() -> IndexingProgress:
    """Return what the index is still to be given."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT swept, cut_upto, words_cut, words_to_cut, filed,"
            " coalesce((SELECT max(id) FROM events), 0), coalesce((SELECT max(id) FROM changes), 0) - followed,"
            " followed"
            " FROM sbx_search_progress WHERE id = 1"
        )
        row = cursor.fetchone()
    if row is None:
        return IndexingProgress(events=0)
    swept, cut_upto, cut, to_cut, filed, newest, changes, followed = row
    waiting, complete_until = 0, None
    if swept is not None and swept < newest:
        waiting, complete_until = count_and_date_unswept_events(swept)
    elif changes > MANY_CHANGES:
        waiting, complete_until = count_and_date_unindexed_events(followed)
    return IndexingProgress(
        events=indexing_percent_done(swept, newest) if swept is not None and swept < newest else None,
        pieces=indexing_percent_done(cut, to_cut) if cut_upto is not None and to_cut else None,
        waiting=waiting,
        complete_until=complete_until,
        files=indexing_percent_done(filed, newest) if filed is not None and filed < newest else None,
    )


def count_and_date_unindexed_events(followed: int) -> tuple[int, datetime | None]:
    """Return how many events came after the change up to which the index is complete, and when the first did."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), min(at) FROM (SELECT at FROM changes WHERE id > %s AND topic = 'events'"
            " ORDER BY id LIMIT %s) waiting",
            [followed, MOST_COUNTED],
        )
        number, at = cursor.fetchone()
    return number, None if at is None else instants.instant_from_microseconds(at * 1000)


def count_and_date_unswept_events(swept: int) -> tuple[int, datetime | None]:
    """Return how many events a sweep still has before it, and when the first of them was received."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM (SELECT id FROM events WHERE id > %s LIMIT %s) waiting",
            [swept, MOST_COUNTED],
        )
        (number,) = cursor.fetchone()
        cursor.execute(
            "SELECT received_at FROM event_context WHERE event_id > %s ORDER BY event_id LIMIT 1", [swept]
        )
        row = cursor.fetchone()
    return number, None if row is None or row[0] is None else instants.instant_from_microseconds(
        row[0] * 1000
    )


def indexing_percent_done(done: int, of: int) -> int:
    return min(99, 100 * done // of)


def are_all_lexemes_split_in_index() -> bool:
    """Say whether every kept word is found by its pieces."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM sbx_search_progress WHERE id = 1 AND cut_upto IS NULL")
        return cursor.fetchone() is not None
