"""Removal of the words of deleted or changed events from the index, a little at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

from django.db import connection, transaction

from coordinator.actions.search.file_touches import delete_file_touches, delete_unused_file_paths
from coordinator.actions.search.indexing import index_events
from coordinator.actions.search.progress import (
    build_sql_placeholders,
    fetch_query_ids,
    fetch_query_rows,
    load_index_progress,
    save_index_progress,
)
from coordinator.engine import bulk, full_text
from coordinator.engine.locks import lock_table_against_writes

STEP = 100  # events a transaction
MOST_FORGOTTEN = 10_000  # events that are forgotten at once, their words held in memory
EVENTS_LOOKED_AT = 20_000  # ids of the index that are compared with the events' at a time
WORDS_LOOKED_AT = 500  # words of the index that are walked through at a time
REST_PER_WORK = 2.0
_STALE = "SELECT event_id FROM sbx_search_stale"
T = TypeVar("T")
_LAST = "\U0010ffff"  # comes after every word


def unindex_deleted_events(now: datetime | None = None) -> int:  # jobs get the time  # noqa: ARG001
    """Take the words of deleted and changed events out of the index, resting longer than it works.

    Takes minutes for an index of millions of events. Returns of how many events.
    """
    done = 0
    while deleted_ids := list(iterate_event_ids_to_unindex(MOST_FORGOTTEN)):
        forgotten = unindex_events(deleted_ids)
        done += forgotten
        if not forgotten:
            break  # another worker was quicker, or the index was built afresh meanwhile
    delete_unused_file_paths()
    if load_index_progress().untidy:
        delete_unused_index_terms()
    return done


def mark_index_for_word_cleanup() -> None:
    """Note that events left the index with a part of its table, so that words may be kept that none has any longer."""
    save_index_progress(untidy=True)


def iterate_steps_with_pauses(steps: Iterable[T]) -> Iterator[T]:
    """Yield the steps, resting after each for longer than it took."""
    started_at = time.monotonic()
    for step in steps:
        yield step
        started_at = sleep_after_work(started_at)


def sleep_after_work(since: float) -> float:
    """Rest for longer than the work took that began at `since`; return when the next begins."""
    time.sleep(REST_PER_WORK * (time.monotonic() - since))
    return time.monotonic()


def iterate_event_ids_to_unindex(most: int) -> Iterator[int]:
    """Yield indexed events that are stale or deleted, at most so many."""
    table, key = full_text.search_index_table_and_id()
    # Not indexed (any more) and changed: nothing is to be forgotten, and what is said now is indexed as new.
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM sbx_search_stale AS s"  # noqa: S608
            f" WHERE NOT EXISTS (SELECT 1 FROM {table} i WHERE i.{key} = s.event_id)"
        )
    stale_ids = fetch_query_ids(f"{_STALE} LIMIT %s", [most])
    stale_set = set(stale_ids)
    yield from stale_ids
    started_at = time.monotonic()
    for first, last in bulk.iterate_id_ranges(table, key, EVENTS_LOOKED_AT):
        deleted = fetch_query_ids(
            f"SELECT {key} FROM {table} i WHERE {key} BETWEEN %s AND %s"  # noqa: S608
            f" AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = i.{key} AND e.id BETWEEN %s AND %s)",
            [first, last, first, last],
        )
        new = [pk for pk in deleted if pk not in stale_set][: most - len(stale_set)]
        stale_set.update(new)
        yield from new
        if len(stale_set) >= most:
            return
        started_at = sleep_after_work(started_at)


def unindex_events(event_ids: Sequence[int]) -> int:
    """Forget these events, a few a transaction; return how many it were."""
    rebuilt = load_index_progress().rebuilt
    done = 0
    with full_text.search_index_remover_during_block(
        event_ids, iterate_steps_with_pauses(iterate_word_ranges())
    ) as take_out:
        for start in iterate_steps_with_pauses(range(0, len(event_ids), STEP)):
            done += unindex_event_batch(event_ids[start : start + STEP], rebuilt, take_out)
    return done


def unindex_event_batch(
    events: Sequence[int], rebuilt: int, take_out: Callable[[Sequence[int]], None]
) -> int:
    """Forget some of those, unless the index was emptied since: others are in it now."""
    with transaction.atomic():
        if load_index_progress().rebuilt != rebuilt:
            return 0
        still = recheck_events_to_unindex(events)
        take_out(still)
        delete_file_touches(still)
        reindex_changed_events(still)
    return len(still)


def recheck_events_to_unindex(events: Sequence[int]) -> list[int]:
    """Return those that are still indexed and still stale or deleted. Another worker may have been quicker."""
    table, key = full_text.search_index_table_and_id()
    return fetch_query_ids(
        f"SELECT {key} FROM {table} i WHERE {key} IN ({build_sql_placeholders(events)})"  # noqa: S608
        f" AND ({key} IN ({_STALE}) OR NOT EXISTS (SELECT 1 FROM events e WHERE e.id = i.{key}))",
        events,
    )


def reindex_changed_events(events: Sequence[int]) -> None:
    """Index those that were changed as they are now; what is gone stays gone. Part of a transaction."""
    if not events:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM sbx_search_stale WHERE event_id IN ({build_sql_placeholders(events)})",  # noqa: S608
            list(events),
        )
    index_events(events)
    save_index_progress(untidy=True)


def iterate_word_ranges() -> Iterator[tuple[str, str]]:
    """Yield bounds, after the one and up to the other, between which are all words of the index, labels too."""
    after = ""
    while range_rows := fetch_query_rows(
        "SELECT word FROM sbx_search_terms WHERE word > %s ORDER BY word LIMIT 1 OFFSET %s",
        [after, WORDS_LOOKED_AT],
    ):
        yield after, range_rows[0][0]
        after = range_rows[0][0]
    yield after, _LAST


def delete_unused_index_terms() -> None:
    """Forget the words by themselves that no event in the index has any longer."""
    save_index_progress(
        untidy=False
    )  # before the walk: what is forgotten meanwhile makes the next one necessary
    for after, upto in iterate_steps_with_pauses(iterate_word_ranges()):
        if orphaned_words := full_text.list_orphaned_index_words(after, upto):
            with transaction.atomic():
                # Events that are being indexed may have these words.
                lock_table_against_writes("sbx_search_terms")
                full_text.delete_search_terms_without_events(orphaned_words)
