"""Takes the words of events that are gone, or were changed, out of the index, a little at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

from django.db import connection, transaction

from coordinator.actions.search.indexing import STEP, index
from coordinator.actions.search.progress import ids, marks, note, progress, rows
from coordinator.actions.search.touching import forget_files, forget_touches
from coordinator.engine import bulk, full_text
from coordinator.engine.locks import keep_others_from_writing

MOST_FORGOTTEN = 10_000  # events that are forgotten at once, their words held in memory
EVENTS_LOOKED_AT = 20_000  # ids of the index that are compared with the events' at a time
WORDS_LOOKED_AT = 500  # words of the index that are walked through at a time
REST_PER_WORK = 2.0
_STALE = "SELECT event_id FROM sbx_search_stale"
T = TypeVar("T")
_LAST = "\U0010ffff"  # comes after every word


def forget_deleted(now: datetime | None = None) -> int:  # noqa: ARG001 # a job is told the time
    """Take the words of deleted and changed events out of the index, resting longer than it works.

    Takes minutes for an index of millions of events. Returns of how many events.
    """
    done = 0
    while gone := list(_gone(MOST_FORGOTTEN)):
        forgotten = _forget(gone)
        done += forgotten
        if not forgotten:
            break  # another worker was quicker, or the index was built afresh meanwhile
    forget_files()
    if progress().untidy:
        _forget_words()
    return done


def note_gone() -> None:
    """Note that events left the index with a part of its table, so that words may be kept that none has any longer."""
    note(untidy=True)


def _with_rests(steps: Iterable[T]) -> Iterator[T]:
    """Yield the steps, resting after each for longer than it took."""
    began = time.monotonic()
    for step in steps:
        yield step
        began = _rest(began)


def _rest(since: float) -> float:
    """Rest for longer than the work took that began at `since`; return when the next begins."""
    time.sleep(REST_PER_WORK * (time.monotonic() - since))
    return time.monotonic()


def _gone(most: int) -> Iterator[int]:
    """Yield indexed events that are stale or deleted, at most so many."""
    table, key = full_text.index_keys()
    # Not indexed (any more) and changed: nothing is to be forgotten, and what is said now is indexed as new.
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM sbx_search_stale AS s"  # noqa: S608
            f" WHERE NOT EXISTS (SELECT 1 FROM {table} i WHERE i.{key} = s.event_id)"
        )
    found = ids(f"{_STALE} LIMIT %s", [most])
    seen = set(found)
    yield from found
    began = time.monotonic()
    for first, last in bulk.stretches(table, key, EVENTS_LOOKED_AT):
        deleted = ids(
            f"SELECT {key} FROM {table} i WHERE {key} BETWEEN %s AND %s"  # noqa: S608
            f" AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = i.{key} AND e.id BETWEEN %s AND %s)",
            [first, last, first, last],
        )
        new = [pk for pk in deleted if pk not in seen][: most - len(seen)]
        seen.update(new)
        yield from new
        if len(seen) >= most:
            return
        began = _rest(began)


def _forget(gone: Sequence[int]) -> int:
    """Forget these events, a few a transaction; return how many it were."""
    rebuilt = progress().rebuilt
    done = 0
    with full_text.forgetting(gone, _with_rests(_stretches_of_words())) as take_out:
        for start in _with_rests(range(0, len(gone), STEP)):
            done += _forget_some(gone[start : start + STEP], rebuilt, take_out)
    return done


def _forget_some(events: Sequence[int], rebuilt: int, take_out: Callable[[Sequence[int]], None]) -> int:
    """Forget some of those, unless the index was emptied since: others are in it now."""
    with transaction.atomic():
        if progress().rebuilt != rebuilt:
            return 0
        still = _still_to_forget(events)
        take_out(still)
        forget_touches(still)
        _read_again(still)
    return len(still)


def _still_to_forget(events: Sequence[int]) -> list[int]:
    """Return those that are still indexed and still stale or deleted. Another worker may have been quicker."""
    table, key = full_text.index_keys()
    return ids(
        f"SELECT {key} FROM {table} i WHERE {key} IN ({marks(events)})"  # noqa: S608
        f" AND ({key} IN ({_STALE}) OR NOT EXISTS (SELECT 1 FROM events e WHERE e.id = i.{key}))",
        events,
    )


def _read_again(events: Sequence[int]) -> None:
    """Index those that were changed as they are now; what is gone stays gone. Part of a transaction."""
    if not events:
        return
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM sbx_search_stale WHERE event_id IN ({marks(events)})", list(events))  # noqa: S608
    index(events)
    note(untidy=True)


def _stretches_of_words() -> Iterator[tuple[str, str]]:
    """Yield bounds, after the one and up to the other, between which are all words of the index, labels too."""
    after = ""
    while found := rows(
        "SELECT word FROM sbx_search_terms WHERE word > %s ORDER BY word LIMIT 1 OFFSET %s",
        [after, WORDS_LOOKED_AT],
    ):
        yield after, found[0][0]
        after = found[0][0]
    yield after, _LAST


def _forget_words() -> None:
    """Forget the words by themselves that no event in the index has any longer."""
    note(untidy=False)  # before the walk: what is forgotten meanwhile makes the next one necessary
    for after, upto in _with_rests(_stretches_of_words()):
        if words := full_text.unused_words(after, upto):
            with transaction.atomic():
                # Events that are being indexed may have these words.
                keep_others_from_writing("sbx_search_terms")
                full_text.delete_unused_words(words)
