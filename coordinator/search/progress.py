"""How much of the events the index does not hold yet, for those who search meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

MANY_CHANGES = 2_000  # that the index has not followed yet: fewer are followed within seconds


@dataclass(frozen=True, slots=True)
class IndexingProgress:
    """What is still to be indexed, each in percent done, or None where nothing of it is.

    `events`: a sweep through all of them. `pieces`: words that were kept before there were pieces of words.
    `files`: events that came before it was noted which files calls touch.
    `changes` says how many changes wait to be followed, 0 where they are few.
    """

    events: int | None = None
    pieces: int | None = None
    changes: int = 0
    files: int | None = None


def load_indexing_progress() -> IndexingProgress:
    """Return what the index is still to be given."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT swept, cut_upto, words_cut, words_to_cut, filed,"
            " coalesce((SELECT max(id) FROM events), 0), coalesce((SELECT max(id) FROM changes), 0) - followed"
            " FROM sbx_search_progress WHERE id = 1"
        )
        row = cursor.fetchone()
    if row is None:
        return IndexingProgress(events=0)
    swept, cut_upto, cut, to_cut, filed, newest, changes = row
    return IndexingProgress(
        events=percent_done(swept, newest) if swept is not None and swept < newest else None,
        pieces=percent_done(cut, to_cut) if cut_upto is not None and to_cut else None,
        changes=changes if changes > MANY_CHANGES else 0,
        files=percent_done(filed, newest) if filed is not None and filed < newest else None,
    )


def percent_done(done: int, of: int) -> int:
    return min(99, 100 * done // of)


def all_words_are_cut() -> bool:
    """Say whether every kept word is found by its pieces."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM sbx_search_progress WHERE id = 1 AND cut_upto IS NULL")
        return cursor.fetchone() is not None
