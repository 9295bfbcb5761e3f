"""Indexes events. The index follows the feed, and sweeps through all events where the feed is not enough.

The feed's ids follow the order of commits, on both engines: "everything after N" skips nothing, not even an event
whose transaction began early and committed late, with an id below those that are indexed already. A sweep goes
through all events by their ids. It comes first after a migration, in a rebuild, and after a pause so long that the
feed has forgotten what happened meanwhile. Last come the words that an older version kept without their pieces.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from django.db import transaction

from coordinator.actions.search.progress import Progress, ids, mark_stale, marks, note, progress, rows
from coordinator.actions.search.touching import forget_all_touches, note_all, note_touches
from coordinator.engine import full_text
from coordinator.engine.values import text_of
from coordinator.feed import reader as feed
from coordinator.lib import instants
from coordinator.search.text import TEXTS, Facts, words_of_texts

STEP = 100  # events a transaction, so that other writers wait for moments only
WINDOW = 1_000  # changes, events, or words that are looked at together
MOST_AT_ONCE = 20_000  # events one call of housekeeping takes on
GENTLE_FOR = 1.5  # seconds one call of housekeeping takes: less than until the next
REST_PER_WORK = 2.0


def index_new(now: datetime | None = None, *, most: int = MOST_AT_ONCE) -> int:  # noqa: ARG001 # a job is told the time
    """Index events that are not indexed yet until `most` are done; return how many."""
    done = 0
    for number in _steps():
        done += number
        if done >= most:
            break
    return done


def index_some(now: datetime | None = None) -> int:  # noqa: ARG001 # a job is told the time
    """Index what is new for a moment, resting longer than it works: events that come in go first."""
    done = 0
    began = step_began = time.monotonic()
    for number in _steps():
        done += number
        if time.monotonic() - began > GENTLE_FOR:
            break
        time.sleep(REST_PER_WORK * (time.monotonic() - step_began))
        step_began = time.monotonic()
    return done


def behind() -> int:
    """Return how many events are not indexed. Compares all events with the index: a second for a million."""
    table, key = full_text.index_keys()
    (found,) = ids(
        f"SELECT count(*) FROM events e WHERE NOT EXISTS (SELECT 1 FROM {table} i WHERE i.{key} = e.id)"  # noqa: S608
    )
    return found


def rebuild(report: Callable[[int], object] = lambda _done: None) -> int:
    """Empty the index and build it from all events; `report` is told how many are done. Returns how many.

    Interrupted, it is finished by housekeeping.
    """
    with transaction.atomic():
        full_text.empty()
        forget_all_touches()
        note(followed=feed.newest(), swept=0, untidy=False, rebuilt=progress().rebuilt + 1, cut_upto=None)
    done = 0
    for number in _steps():
        done += number
        report(done)
    return done


def _steps() -> Iterator[int]:
    """Index step by step, what is new first; yield after each step how many events it indexed."""
    known = progress()
    if not feed.can_replay(known.followed):
        note(followed=feed.newest(), swept=0)
        known = progress()
    yield from _follow(known.followed)
    if known.swept is not None:
        yield from _sweep(known.swept)
    if known.cut_upto is not None:
        yield from _cut(known)
    if known.filed is not None:
        yield from note_all(known.filed)


def _follow(after: int) -> Iterator[int]:
    """Index the events of the changes after that one. What is indexed and was changed is stale."""
    while changes := feed.changes_after(after, upto=feed.newest(), limit=WINDOW):
        after = changes[-1].id
        event_ids = sorted({int(change.key) for change in changes if change.topic == "events"})
        indexed = _indexed(event_ids)
        changed = {int(change.key) for change in changes if (change.topic, change.op) == ("events", "update")}
        if stale := sorted(changed & indexed):
            mark_stale(stale)
        yield from _index_all([pk for pk in event_ids if pk not in indexed])
        note(followed=after)


def _sweep(after: int) -> Iterator[int]:
    """Index what is not indexed of all events beyond `after`, oldest first.

    Looks at WINDOW events at once: asked for the first few among all, PostgreSQL reads both tables whole.
    """
    while window := ids("SELECT id FROM events WHERE id > %s ORDER BY id LIMIT %s", [after, WINDOW]):
        after = window[-1]
        indexed = _indexed(window)
        yield from _index_all([pk for pk in window if pk not in indexed])
        note(swept=after)
        yield 0
    note(swept=None)


def _cut(known: Progress) -> Iterator[int]:
    """Cut the kept words into pieces, from where that stands, in the order of the words."""
    after, done = known.cut_upto or "", known.words_cut
    if not after:
        note(words_to_cut=ids("SELECT count(*) FROM sbx_search_terms")[0])
    while words := rows(
        "SELECT word FROM sbx_search_terms WHERE word > %s ORDER BY word LIMIT %s", [after, WINDOW]
    ):
        (upto,) = words[-1]
        with transaction.atomic():
            full_text.cut_words(after, upto)
            done += len(words)
            note(cut_upto=upto, words_cut=done)
        after = upto
        yield 0
    note(cut_upto=None)


def _indexed(events: Sequence[int]) -> set[int]:
    table, key = full_text.index_keys()
    if not events:
        return set()
    return set(ids(f"SELECT {key} FROM {table} WHERE {key} IN ({marks(events)})", events))  # noqa: S608


def _index_all(events: Sequence[int]) -> Iterator[int]:
    for start in range(0, len(events), STEP):
        yield index(events[start : start + STEP])


def index(events: Sequence[int]) -> int:
    """Index these events. Reading and cutting into words is done before the transaction: that is what takes long."""
    words: set[str] = set()
    documents = []
    for facts, texts in _read(events):
        said = words_of_texts(texts)
        words.update(said)
        documents.append((facts.event_id, " ".join(said + facts.words())))
    with transaction.atomic():
        full_text.add_words(sorted(words))
        full_text.add_documents(documents)
        note_touches(events)
    return len(documents)


def _read(events: Sequence[int]) -> list[tuple[Facts, Sequence[str | None]]]:
    found = rows(
        f"SELECT e.id, {text_of('e.session_id')}, {text_of('event_type')}, {text_of('timestamp')}, instant_us,"  # noqa: S608 # constants
        f" {TEXTS} FROM events e"
        f" LEFT JOIN event_context c ON c.event_id = e.id WHERE e.id IN ({marks(events)}) ORDER BY e.id",
        events,
    )
    return [
        (Facts(pk, session_id, event_type, texts[-1], _moment(at_us, timestamp)), texts)
        for pk, session_id, event_type, timestamp, at_us, *texts in found
    ]


def _moment(at_us: int | None, timestamp: str) -> datetime | None:
    try:
        return instants.parse(timestamp) if at_us is None else instants.from_us(at_us)
    except OverflowError:
        return None
