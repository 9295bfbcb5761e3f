"""The parts of the events table on PostgreSQL: made ahead, filled from the default, converted, dropped when all is old.

Where the events table is one, on SQLite or before `manage.py partition_events`, there is nothing to do.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import OperationalError, connection, transaction

from coordinator.engine import event_spans, locks, partition_changes, partitions
from coordinator.engine.partitions import GRAIN, Part
from coordinator.errors import Conflict
from coordinator.feed import triggers
from coordinator.lib.instants import to_ms
from coordinator.models import EventContext

log = logging.getLogger(__name__)

LEAST = 1_000_000  # ids of a part
MONTH = timedelta(days=30)
AHEAD = 2  # parts beyond the one that is being filled, and months' worth of ids
LEAST_TIME = timedelta(days=7)  # that a pace is measured over: an import of an hour is no month's pace
MOST_GROWTH = 4  # times the part before
MARKED_EVERY = timedelta(hours=6)
# Ids from which statistics are gathered. Of tables that are known to be all but empty, the check of each foreign key
# keeps a plan that reads them whole, while they fill.
WORTH_PLANNING = 10_000
MARKS_KEPT = timedelta(days=400)
ABANDONED = timedelta(days=1)
LEAST_ROOM = 10 * LEAST  # ids below the limit of tables that are being converted
SESSIONS_LOOKED_AT = 500
MOST_MADE = 12  # parts in one go
MOST_MOVED = 100_000  # events out of the default in one go of housekeeping: writers wait for a second
LEFT_BEHIND = "What others made does not follow the events table into parts:"
TRIES = 40  # who indexes events holds their locks for longer than one moment
PAUSE = 0.25  # seconds in which those who queued behind us have their turn


def keep(now: datetime) -> None:
    """Note how far the ids have come, and see that there are parts for those to come."""
    if not partitions.stand():
        _forget_abandoned_limit(now)
        return
    last = partitions.counter()
    _mark(last, now)
    make_ahead(last, month(last, now))


def _forget_abandoned_limit(now: datetime) -> None:
    """Let whole tables take any id again where nobody went on with `convert` for long, or the limit comes near."""
    limit = partition_changes.limit()
    if limit is None:
        return
    known = event_spans.newest_mark()
    if known is None or known[0] < to_ms(now - ABANDONED) or partitions.counter() + LEAST > limit:
        patiently(partition_changes.forget_limit)


def _mark(last: int, now: datetime) -> None:
    known = event_spans.newest_mark()
    if known is not None and to_ms(now - MARKED_EVERY) < known[0] and last < known[1] + LEAST:
        return
    event_spans.mark(to_ms(now))
    event_spans.forget_marks(to_ms(now - MARKS_KEPT))
    if last >= WORTH_PLANNING:
        partitions.analyze()


def month(last: int, now: datetime) -> int:
    """Return how many ids a month takes at the pace of late, in whole grains; `last` is the newest."""
    known = event_spans.mark_since(to_ms(now - MONTH))
    if known is None:
        return LEAST
    took = max(to_ms(now) - known[0], LEAST_TIME // timedelta(milliseconds=1))
    return max(LEAST, in_grains((last - known[1]) * (MONTH // timedelta(milliseconds=1)) // took))


def in_grains(ids: int) -> int:
    """Return a number of ids as parts may end there: rounded up to whole grains."""
    return -(-ids // GRAIN) * GRAIN


def make_ahead(last: int, size: int, *, most_moved: int = MOST_MOVED) -> list[Part]:
    """Make parts until AHEAD are free beyond the id `last`, and room for so many of `size`; return the new ones."""
    made: list[Part] = []
    for part in _wanted(last, size):
        waiting = partitions.in_default(part.first, part.before)
        if waiting > most_moved:
            log.warning(
                "%d events wait outside of the parts of the events table. See `manage.py doctor`.", waiting
            )
            return made
        patiently(lambda part=part, waiting=waiting: _make(part, waiting))  # type: ignore[misc]
        made.append(part)
        if len(made) == MOST_MADE:
            break
    return made


def _wanted(last: int, size: int) -> Iterator[Part]:
    known = partitions.parts()
    newest, free = known[-1], sum(part.first > last for part in known)
    while free < AHEAD or newest.before < last + AHEAD * size:
        largest = MOST_GROWTH * (newest.before - max(newest.first, 0))
        newest = Part(newest.number + 1, newest.before, newest.before + min(size, largest))
        free += newest.first > last
        yield newest


def _make(part: Part, waiting: int) -> None:
    if waiting:
        moved = partitions.make_with_rows(part)
        log.info("Moved %d events into part %d of the events table, where they belong.", moved, part.number)
    else:
        partitions.make(part)


def patiently(work: Callable[[], object], tries: int = TRIES) -> None:
    """Do what needs locks that everybody needs: a moment's wait each time, with pauses in which others go on.

    Raises the last OperationalError where they are not to be had.
    """
    for left in reversed(range(tries)):
        try:
            work()
        except OperationalError as problem:
            if not left or not locks.may_come_free(problem) or connection.in_atomic_block:
                raise
            time.sleep(PAUSE * random.uniform(0.5, 1.5))  # noqa: S311 # only so as not to keep step with a job
        else:
            return


def make_room(upto: int, size: int = LEAST) -> None:
    """Make parts of `size` for ids as far as `upto`, which somebody is about to write; nothing on one table."""
    while partitions.stand() and partitions.parts()[-1].before <= upto:
        newest = partitions.parts()[-1]
        partitions.make(Part(newest.number + 1, newest.before, newest.before + in_grains(size)))


def convert(now: datetime, say: Callable[[str], object], *, anyway: bool = False) -> None:
    """Put a whole, filled events table into parts, beside servers at work; interrupted, it may be begun again.

    No row is moved: the table becomes the first part. Everybody waits twice for the moment that it takes to change the
    tables' definitions. In between all rows are looked at once, while others read and write. Raises Conflict, before
    anything changes, where others hang on the tables what would not follow, unless `anyway`.
    """
    if not anyway and (left := partition_changes.attached_by_others()):
        raise Conflict(f"{LEFT_BEHIND} {'; '.join(left)}.")
    size = max(LEAST, in_grains(EventContext.objects.filter(received_at__gte=now - MONTH).count()))
    if partition_changes.limit() is None:
        # A month away, and taken back by housekeeping where nobody goes on for a day, or where it comes near.
        before = in_grains(partitions.counter() + max(size, LEAST_ROOM))
        event_spans.mark(to_ms(now))
        patiently(lambda: partition_changes.set_limit(before), tries=100)
        say(f"The first part will hold the events up to {before:,}.")
    for table in partitions.TABLES:
        say(f"Looking at all rows of {table} …")
        partition_changes.look_at_limit(table)
    patiently(lambda: _swap(size), tries=100)
    say("The events table is in parts.")


def _swap(size: int) -> None:
    with transaction.atomic():
        partition_changes.convert(size)
        triggers.restore(connection)


def note_spans(say: Callable[[str], object]) -> None:
    """Note where the events of each session lie that is not known yet."""
    say("Noting where the sessions' events lie …")
    after: str | None = ""
    while after is not None:
        after = event_spans.note_spans(after, 500)


@dataclass(frozen=True, slots=True)
class State:
    """How the events table stands: its parts and how many of them are still empty, how many events lie outside.

    `newest` is the last id that was given, `limit` the first that is refused while a conversion is not finished.
    """

    parts: int = 0
    free: int = 0
    outside: int = 0
    newest: int = 0
    limit: int | None = None


def examine() -> State:
    """Return how the events table stands, for the doctor."""
    newest = partitions.counter()
    if not partitions.stand():
        return State(newest=newest, limit=partition_changes.limit())
    known = partitions.parts()
    free = sum(part.first > newest for part in known)
    return State(len(known), free, partitions.in_default(), newest)


def filled_parts() -> list[Part]:
    """Return the parts that no new event will be put into, oldest first."""
    if not partitions.stand():
        return []
    last = partitions.counter()
    return [part for part in partitions.parts() if part.before <= last]


def is_older(part: Part, before: datetime) -> bool:
    """Say whether all events of a part were received before then, as far as their contexts tell (`known_events`)."""
    newest = partitions.newest_in(part)
    return newest is None or newest < to_ms(before)


def sessions_of(part: Part) -> Iterator[list[str]]:
    """Yield the sessions that have events in a part, some at a time, in order."""
    after = ""
    while found := partitions.sessions_in(part, after, SESSIONS_LOOKED_AT):
        yield found
        after = found[-1]


def known_events(part: Part) -> int | None:
    """Count the events of a part; None where one has no context, by which it is told when it was received."""
    events, contexts = partitions.count(part)
    return events if events == contexts else None


def bytes_of(part: Part) -> int:
    """Return what a part takes of the disk, with its indexes and what hangs on its events."""
    return partitions.size(part)


def drop(part: Part, before: datetime) -> None:
    """Drop a part; part of a transaction.

    Raises Conflict where an event came in at `before` or later, and OperationalError where others hold the part for
    longer than a moment.
    """
    if not partitions.drop(part, to_ms(before)):
        raise Conflict("An event has just come into this part.")
