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
from coordinator.engine.partitions import GRAIN, EventPartition
from coordinator.errors import Conflict
from coordinator.feed import triggers
from coordinator.lib.instants import to_milliseconds
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


def maintain_event_parts(now: datetime) -> None:
    """Note how far the ids have come, and see that there are parts for those to come."""
    if not partitions.has_partitioned_events():
        forget_abandoned_limit(now)
        return
    last = partitions.last_assigned_event_id()
    record_newest_event_id(last, now)
    create_parts_ahead(last, estimate_monthly_ids(last, now))


def forget_abandoned_limit(now: datetime) -> None:
    """Let whole tables take any id again where nobody went on with `convert_events_table` for long, or the limit
    comes near.
    """
    limit = partition_changes.find_id_limit()
    if limit is None:
        return
    known = event_spans.newest_event_mark()
    if (
        known is None
        or known[0] < to_milliseconds(now - ABANDONED)
        or partitions.last_assigned_event_id() + LEAST > limit
    ):
        retry_for_locks(partition_changes.drop_id_limit)


def record_newest_event_id(last: int, now: datetime) -> None:
    known = event_spans.newest_event_mark()
    if known is not None and to_milliseconds(now - MARKED_EVERY) < known[0] and last < known[1] + LEAST:
        return
    event_spans.record_event_mark(to_milliseconds(now))
    event_spans.delete_marks_before(to_milliseconds(now - MARKS_KEPT))
    if last >= WORTH_PLANNING:
        partitions.analyze_event_tables()


def estimate_monthly_ids(last: int, now: datetime) -> int:
    """Return how many ids a month takes at the pace of late, in whole grains; `last` is the newest."""
    known = event_spans.first_mark_since(to_milliseconds(now - MONTH))
    if known is None:
        return LEAST
    took = max(to_milliseconds(now) - known[0], LEAST_TIME // timedelta(milliseconds=1))
    return max(LEAST, round_up_to_grains((last - known[1]) * (MONTH // timedelta(milliseconds=1)) // took))


def round_up_to_grains(ids: int) -> int:
    """Return a number of ids as parts may end there: rounded up to whole grains."""
    return -(-ids // GRAIN) * GRAIN


def create_parts_ahead(last: int, size: int, *, most_moved: int = MOST_MOVED) -> list[EventPartition]:
    """Make parts until AHEAD are free beyond the id `last`, and room for so many of `size`; return the new ones."""
    made: list[EventPartition] = []
    for part in plan_missing_parts(last, size):
        waiting = partitions.count_default_events(part.first, part.before)
        if waiting > most_moved:
            log.warning(
                "%d events wait outside of the parts of the events table. See `manage.py doctor`.", waiting
            )
            return made
        retry_for_locks(lambda part=part, waiting=waiting: create_event_part(part, waiting))  # type: ignore[misc]
        made.append(part)
        if len(made) == MOST_MADE:
            break
    return made


def plan_missing_parts(last: int, size: int) -> Iterator[EventPartition]:
    known = partitions.list_partitions()
    newest, free = known[-1], sum(part.first > last for part in known)
    while free < AHEAD or newest.before < last + AHEAD * size:
        largest = MOST_GROWTH * (newest.before - max(newest.first, 0))
        newest = EventPartition(newest.number + 1, newest.before, newest.before + min(size, largest))
        free += newest.first > last
        yield newest


def create_event_part(part: EventPartition, waiting: int) -> None:
    if waiting:
        moved = partitions.create_partition_from_default(part)
        log.info("Moved %d events into part %d of the events table, where they belong.", moved, part.number)
    else:
        partitions.create_partition(part)


def retry_for_locks(work: Callable[[], object], tries: int = TRIES) -> None:
    """Do what needs locks that everybody needs: a moment's wait each time, with pauses in which others go on.

    Raises the last OperationalError where they are not to be had.
    """
    for left in reversed(range(tries)):
        try:
            work()
        except OperationalError as problem:
            if not left or not locks.is_retryable_lock_error(problem) or connection.in_atomic_block:
                raise
            time.sleep(PAUSE * random.uniform(0.5, 1.5))  # noqa: S311 # only so as not to keep step with a job
        else:
            return


def create_parts_up_to(upto: int, size: int = LEAST) -> None:
    """Make parts of `size` for ids as far as `upto`, which somebody is about to write; nothing on one table."""
    while partitions.has_partitioned_events() and partitions.list_partitions()[-1].before <= upto:
        newest = partitions.list_partitions()[-1]
        partitions.create_partition(
            EventPartition(newest.number + 1, newest.before, newest.before + round_up_to_grains(size))
        )


def convert_events_table(now: datetime, say: Callable[[str], object], *, anyway: bool = False) -> None:
    """Put a whole, filled events table into parts, beside servers at work; interrupted, it may be begun again.

    No row is moved: the table becomes the first part. Everybody waits twice for the moment that it takes to change the
    tables' definitions. In between all rows are looked at once, while others read and write. Raises Conflict, before
    anything changes, where others hang on the tables what would not follow, unless `anyway`.
    """
    if not anyway and (left := partition_changes.list_unmovable_attachments()):
        raise Conflict(f"{LEFT_BEHIND} {'; '.join(left)}.")
    size = max(LEAST, round_up_to_grains(EventContext.objects.filter(received_at__gte=now - MONTH).count()))
    if partition_changes.find_id_limit() is None:
        # A month away, and taken back by housekeeping where nobody goes on for a day, or where it comes near.
        before = round_up_to_grains(partitions.last_assigned_event_id() + max(size, LEAST_ROOM))
        event_spans.record_event_mark(to_milliseconds(now))
        retry_for_locks(lambda: partition_changes.set_id_limit(before), tries=100)
        say(f"The first part will hold the events up to {before:,}.")
    for table in partitions.TABLES:
        say(f"Looking at all rows of {table} …")
        partition_changes.validate_id_limit(table)
    retry_for_locks(lambda: swap_events_table(size), tries=100)
    say("The events table is in parts.")


def swap_events_table(size: int) -> None:
    with transaction.atomic():
        partition_changes.convert_to_partitions(size)
        triggers.restore_triggers(connection)


def backfill_session_spans(say: Callable[[str], object]) -> None:
    """Note where the events of each session lie that is not known yet."""
    say("Noting where the sessions' events lie …")
    after: str | None = ""
    while after is not None:
        after = event_spans.record_session_spans(after, 500)


@dataclass(frozen=True, slots=True)
class EventsTableState:
    """How the events table stands: its parts and how many of them are still empty, how many events lie outside.

    `newest` is the last id that was given, `limit` the first that is refused while a conversion is not finished.
    """

    parts: int = 0
    free: int = 0
    outside: int = 0
    newest: int = 0
    limit: int | None = None


def examine_events_table() -> EventsTableState:
    """Return how the events table stands, for the doctor."""
    newest = partitions.last_assigned_event_id()
    if not partitions.has_partitioned_events():
        return EventsTableState(newest=newest, limit=partition_changes.find_id_limit())
    known = partitions.list_partitions()
    free = sum(part.first > newest for part in known)
    return EventsTableState(len(known), free, partitions.count_default_events(), newest)


def list_filled_parts() -> list[EventPartition]:
    """Return the parts that no new event will be put into, oldest first."""
    if not partitions.has_partitioned_events():
        return []
    last = partitions.last_assigned_event_id()
    return [part for part in partitions.list_partitions() if part.before <= last]


def is_part_older(part: EventPartition, before: datetime) -> bool:
    """Say whether all events of a part were received before then, as far as their contexts tell
    (`count_events_with_context`).
    """
    newest = partitions.newest_partition_receipt(part)
    return newest is None or newest < to_milliseconds(before)


def iterate_part_sessions(part: EventPartition) -> Iterator[list[str]]:
    """Yield the sessions that have events in a part, some at a time, in order."""
    after = ""
    while found := partitions.list_partition_sessions(part, after, SESSIONS_LOOKED_AT):
        yield found
        after = found[-1]


def count_events_with_context(part: EventPartition) -> int | None:
    """Count the events of a part; None where one has no context, by which it is told when it was received."""
    events, contexts = partitions.count_partition_events(part)
    return events if events == contexts else None


def part_disk_bytes(part: EventPartition) -> int:
    """Return what a part takes of the disk, with its indexes and what hangs on its events."""
    return partitions.partition_size_bytes(part)


def drop_event_part(part: EventPartition, before: datetime) -> None:
    """Drop a part; part of a transaction.

    Raises Conflict where an event came in at `before` or later, and OperationalError where others hold the part for
    longer than a moment.
    """
    if not partitions.drop_partition(part, to_milliseconds(before)):
        raise Conflict("An event has just come into this part.")
