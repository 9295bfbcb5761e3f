"""Indexing of events. The index follows the feed, and sweeps through all events where the feed is not enough.

The feed's ids follow the order of commits, on both engines: "everything after N" skips nothing, not even an event whose
transaction began early and committed late, with an id below those that are indexed already. A sweep goes through all
events by their ids. It comes first after a migration, in a rebuild, and after a pause so long that the feed no longer
has the changes since. Words that an older version stored without their pieces come last.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from django.db import transaction

from coordinator.actions.search.file_touches import (
    delete_all_file_touches,
    iterate_touch_backfill_steps,
    record_file_touches,
)
from coordinator.actions.search.progress import (
    IndexProgress,
    build_sql_placeholders,
    fetch_query_ids,
    fetch_query_rows,
    load_index_progress,
    mark_indexed_events_stale,
    save_index_progress,
)
from coordinator.engine import full_text
from coordinator.engine.values import cast_to_text_sql
from coordinator.feed import reader as feed
from coordinator.search.text import (
    BEYOND_WORD,
    TEXTS,
    EventFacts,
    IndexableWords,
    extract_indexable_word_sequence,
)

READ_AT_ONCE = 50  # events whose texts are in memory at once
STEP = 400  # events a transaction, so that other writers wait for moments only: 40 ms of them are its writing
MOST_CHARACTERS = 4_000_000  # of the words of a transaction: long texts are fewer events
WINDOW = 1_000  # changes, events, or words that are looked at together
MOST_AT_ONCE = 20_000  # events one call of housekeeping takes on
GENTLE_FOR = 20.0  # seconds one call of housekeeping takes, in a thread of its own
REST_PER_WORK = 2.0
# Of a bulk fill nearly all time is worked: people wait for it, and 400 events are written in 40 ms.
BULK = 1_000  # events in one call, from which on they are many
REST_PER_BULK_WORK = 0.1


def index_new_events(
    now: datetime | None = None,  # noqa: ARG001 - jobs get the time
    *,
    most: int = MOST_AT_ONCE,
) -> int:
    """Index events that are not indexed yet until `most` are done; return how many."""
    done = 0
    for number in iterate_index_steps():
        done += number
        if done >= most:
            break
    if done:
        full_text.flush_gin_pending_lists()
    return done


def index_slice_and_count_events(now: datetime | None = None) -> int:  # noqa: ARG001
    """Index what is new for a moment, resting longer than it works: events that come in go first.

    Where there is very much, it rests little and goes on for longer.
    """
    done = 0
    started_at = step_began = time.monotonic()
    for number in iterate_index_steps():
        done += number
        if time.monotonic() - started_at > GENTLE_FOR:
            break
        rest_per_work = REST_PER_WORK if done < BULK else REST_PER_BULK_WORK
        time.sleep(rest_per_work * (time.monotonic() - step_began))
        step_began = time.monotonic()
    if done:
        full_text.flush_gin_pending_lists()
    return done


def count_unindexed_events() -> int:
    """Return how many events are not indexed. Compares all events with the index: a second for a million."""
    table, key = full_text.search_index_table_and_id()
    (event_count,) = fetch_query_ids(
        f"SELECT count(*) FROM events e WHERE NOT EXISTS (SELECT 1 FROM {table} i WHERE i.{key} = e.id)"  # noqa: S608
    )
    return event_count


def rebuild_search_index(report: Callable[[int], object] = lambda _done: None) -> int:
    """Empty the index and build it from all events; `report` receives how many are done. Returns how many.

    Interrupted, it is finished by housekeeping.
    """
    with transaction.atomic():
        full_text.clear_search_index()
        delete_all_file_touches()
        save_index_progress(
            followed=feed.find_newest_change_id(),
            swept=0,
            untidy=False,
            rebuilt=load_index_progress().rebuilt + 1,
            cut_upto=None,
        )
    done = 0
    for number in iterate_index_steps():
        done += number
        report(done)
    full_text.flush_gin_pending_lists()
    return done


def iterate_index_steps() -> Iterator[int]:
    """Index step by step, what is new first; yield after each step how many events it indexed."""
    progress = load_index_progress()
    if not feed.can_replay_changes(progress.followed):
        save_index_progress(followed=feed.find_newest_change_id(), swept=0)
        progress = load_index_progress()
    yield from iterate_change_indexing_steps(progress.followed)
    if progress.swept is not None:
        yield from iterate_event_backfill_steps(progress.swept)
    if progress.cut_upto is not None:
        yield from iterate_term_splitting_steps(progress)
    if progress.filed is not None:
        yield from iterate_touch_backfill_steps(progress.filed)


def iterate_change_indexing_steps(after: int) -> Iterator[int]:
    """Index the events of the changes after that one. What is indexed and was changed is stale."""
    while changes := feed.list_changes_after(after, upto=feed.find_newest_change_id(), limit=WINDOW):
        after = changes[-1].id
        event_ids = sorted({int(change.key) for change in changes if change.topic == "events"})
        indexed = find_indexed_event_ids(event_ids)
        changed = {int(change.key) for change in changes if (change.topic, change.op) == ("events", "update")}
        if stale := sorted(changed & indexed):
            mark_indexed_events_stale(stale)
        yield from iterate_indexing_batches([pk for pk in event_ids if pk not in indexed])
        save_index_progress(followed=after)


def iterate_event_backfill_steps(after: int) -> Iterator[int]:
    """Index what is not indexed of all events beyond `after`, oldest first.

    Looks at WINDOW events at once: asked for the first few among all, PostgreSQL reads both tables whole.
    """
    while window := fetch_query_ids(
        "SELECT id FROM events WHERE id > %s ORDER BY id LIMIT %s", [after, WINDOW]
    ):
        after = window[-1]
        indexed = find_indexed_event_ids(window)
        yield from iterate_indexing_batches([pk for pk in window if pk not in indexed])
        save_index_progress(swept=after)
        yield 0
    save_index_progress(swept=None)


def iterate_term_splitting_steps(progress: IndexProgress) -> Iterator[int]:
    """Split the stored words into pieces, in the order of the words, from where it stopped last."""
    after, done = progress.cut_upto or "", progress.words_cut
    if not after:
        save_index_progress(words_to_cut=fetch_query_ids("SELECT count(*) FROM sbx_search_terms")[0])
    while word_rows := fetch_query_rows(
        "SELECT word FROM sbx_search_terms WHERE word > %s ORDER BY word LIMIT %s", [after, WINDOW]
    ):
        (upto,) = word_rows[-1]
        with transaction.atomic():
            full_text.index_pieces_of_word_range(after, upto)
            done += len(word_rows)
            save_index_progress(cut_upto=upto, words_cut=done)
        after = upto
        yield 0
    save_index_progress(cut_upto=None)


def find_indexed_event_ids(events: Sequence[int]) -> set[int]:
    table, key = full_text.search_index_table_and_id()
    if not events:
        return set()
    return set(
        fetch_query_ids(
            f"SELECT {key} FROM {table} WHERE {key} IN ({build_sql_placeholders(events)})",  # noqa: S608
            events,
        )
    )


def iterate_indexing_batches(events: Sequence[int]) -> Iterator[int]:
    for start in range(0, len(events), STEP):
        yield index_events(events[start : start + STEP])


def index_events(events: Sequence[int]) -> int:
    """Index these events. Reading and cutting into words is done before the transaction: that is what takes long."""
    batch = IndexBatch()
    for facts, texts in iterate_event_facts_and_texts(events):
        batch.add_event(facts, extract_indexable_word_sequence(texts))
        if batch.characters > MOST_CHARACTERS:
            batch.write_to_index()
            batch = IndexBatch()
    batch.write_to_index()
    return len(events)


class IndexBatch:
    """Events that are indexed in one transaction."""

    def __init__(self) -> None:
        self.words: set[str] = set()
        self.documents: list[tuple[int, str]] = []
        self.spans: Counter[int] = Counter()
        self.characters = 0

    def add_event(self, facts: EventFacts, indexable: IndexableWords) -> None:
        self.words.update(indexable.words)
        labels = facts.index_lexemes_for_event_facts() + [BEYOND_WORD] * indexable.is_beyond
        document = " ".join(indexable.words + labels)
        self.documents.append((facts.event_id, document))
        self.spans[facts.event_time_span_number] += 1
        self.characters += len(document)

    def write_to_index(self) -> None:
        if not self.documents:
            return
        with transaction.atomic():
            full_text.store_search_words(sorted(self.words))
            full_text.index_event_texts(self.documents)
            full_text.add_indexed_event_counts(sorted(self.spans.items()))
            record_file_touches([pk for pk, _ in self.documents])


def iterate_event_facts_and_texts(events: Sequence[int]) -> Iterator[tuple[EventFacts, Sequence[str | None]]]:
    """Yield the events with their texts, which may be long: few of them are in memory at once."""
    for start in range(0, len(events), READ_AT_ONCE):
        some = events[start : start + READ_AT_ONCE]
        for pk, session_id, event_type, at_us, *texts in fetch_query_rows(
            f"SELECT e.id, {cast_to_text_sql('e.session_id')}, {cast_to_text_sql('event_type')}, instant_us,"  # noqa: S608 # constants
            f" {TEXTS} FROM events e"
            f" LEFT JOIN event_context c ON c.event_id = e.id WHERE e.id IN ({build_sql_placeholders(some)})"
            " ORDER BY e.id",
            some,
        ):
            yield EventFacts(pk, session_id, event_type, texts[-1], at_us), texts
