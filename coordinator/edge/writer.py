"""Group commit: one thread per process writes whatever waits, in one transaction, then answers each caller.

An answer means committed. A refusal comes in time: whoever waited too long gets 503 and was not written.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from django.db import DatabaseError, DataError, OperationalError, connection, connections, transaction
from django.utils import timezone

from coordinator import meters
from coordinator.actions import idempotency
from coordinator.actions.events import NewEvent, Outcome, Prepared, Recorded, prepare_events, write_events
from coordinator.edge.threads import refresh_connections
from coordinator.errors import Busy, Invalid, SignalboxError

log = logging.getLogger(__name__)

GROUP_EVENTS = 1_000  # events in one transaction, unless one batch alone is larger
QUEUE_EVENTS = 50_000  # beyond this a caller is told to come back
QUEUE_BYTES = 128 * 1024 * 1024
SLOW_TO_PREPARE = 64 * 1024  # bytes from which events are prepared beside the writer, not by it
LOCK_RETRY = 0.001  # seconds between tries for SQLite's write lock; its own handler sleeps up to 100 ms
# PostgreSQL's words for a deadlock and for a lock that was not had while the most pressed caller could wait: the
# transaction is undone as a whole, and whoever has time left tries again.
DEADLOCK, NO_LOCK = "40P01", "55P03"
GIVE_UP_BEFORE = 0.3  # seconds before a caller's deadline after which its events are not begun any more

T = TypeVar("T")
# What a batch's caller gets, made in the writing thread so that it can be kept in the same transaction.
MakeAnswer = Callable[[Sequence[Outcome]], bytes]
Result = list[Outcome] | bytes | SignalboxError


@dataclass(slots=True, eq=False)
class Job:
    """One caller's events, or its `work`. `deadline` is on time.monotonic's clock, `size` in bytes."""

    items: list[NewEvent]
    deadline: float
    size: int
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    once: idempotency.Claim | None = None
    make_answer: MakeAnswer | None = None
    work: Callable[[], Any] | None = None
    prepared: list[Prepared] = field(default_factory=list)
    given_up: bool = False
    written: int = 0  # events, as the transaction that is committed wrote them


class GroupWriter:
    """The one writer of a process. `submit` is called on the event loop."""

    def __init__(self, wake: Callable[[], None], *, clock: Callable[[], datetime] = timezone.now) -> None:
        self._wake = wake
        self._clock = clock
        self._queue: deque[Job] = deque()
        self._events = 0
        self._bytes = 0
        self._stopping = False
        self._prepared: object = None
        self._began: float | None = None  # when the group at hand was begun, on time.monotonic's clock
        self._some = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, within: float = 3.0) -> None:
        """Write what waits, then end the thread."""
        with self._some:
            self._stopping = True
            self._some.notify()
        self._thread.join(within)

    @property
    def waiting(self) -> int:
        """How many events wait to be written."""
        return self._events

    def stuck_for(self) -> float:
        """Return how many seconds the group at hand has been worked on; infinity where the thread is gone."""
        if not self._thread.is_alive():
            return float("inf")
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    async def submit(
        self,
        items: list[NewEvent],
        *,
        deadline: float,
        size: int,
        once: idempotency.Claim | None = None,
        make_answer: MakeAnswer | None = None,
    ) -> list[Outcome] | bytes:
        """Have the events written; return their outcomes, or with `make_answer` the answer it made.

        With `once`, a resend gets the kept answer and writes nothing. Raises Busy where the events were not
        written in time (by `deadline`, on time.monotonic's clock), and what `once` refuses.
        """
        loop = asyncio.get_running_loop()
        result: list[Outcome] | bytes = await self._done(
            Job(items, deadline, size, loop, loop.create_future(), once, make_answer)
        )
        return result

    async def perform(self, work: Callable[[], T], *, deadline: float) -> T:
        """Have a small `work` done in the next group's transaction, after its events; return what it returns.

        For what belongs to events and would otherwise be one more writer beside this one. It may be called twice.
        What it raises is raised here, but for the database's errors: those are refused as `submit` refuses them.
        """
        loop = asyncio.get_running_loop()
        result: T = await self._done(Job([], deadline, 0, loop, loop.create_future(), work=work))
        return result

    async def _done(self, job: Job) -> Any:
        """Hand the job to the thread and return its result. Raises what it was refused for."""
        if job.size >= SLOW_TO_PREPARE:
            job.prepared = await asyncio.to_thread(prepare_events, job.items, self._clock())
        self._enqueue(job)
        # The thread keeps to the deadline by itself; this is for a thread that hangs in the database.
        alarm = job.loop.call_later(max(job.deadline - time.monotonic(), 0.01), _give_up, job)
        try:
            result = await job.answer
        finally:
            alarm.cancel()
            job.given_up = True
        if isinstance(result, Exception):
            raise result
        return result

    def _enqueue(self, job: Job) -> None:
        with self._some:
            if self._stopping:
                raise Busy("The server is stopping. Try again in a moment.", retry_after=1)
            if self._events + len(job.items) > QUEUE_EVENTS or self._bytes + job.size > QUEUE_BYTES:
                raise Busy("Too many events wait to be written. Nothing was; try again.", retry_after=1)
            self._queue.append(job)
            self._events += len(job.items)
            self._bytes += job.size
            self._some.notify()

    def _run(self) -> None:
        while group := self._next_group():
            self._began = time.monotonic()
            try:
                self._write(group)
            except Exception:  # the writer must never die: whoever waits is told to try again
                log.exception("The writer failed on a group of %d", len(group))
                _settle((job, not_written()) for job in group)
            finally:
                self._began = None
        connections.close_all()

    def _next_group(self) -> list[Job]:
        with self._some:
            while not self._queue and not self._stopping:
                self._some.wait()
            group: list[Job] = []
            events = 0
            while self._queue and (not group or events + len(self._queue[0].items) <= GROUP_EVENTS):
                job = self._queue.popleft()
                group.append(job)
                events += len(job.items)
                self._events -= len(job.items)
                self._bytes -= job.size
            return group

    def _write(self, group: list[Job]) -> None:
        """Write the group in one transaction; where that fails for its content, each job in its own."""
        refresh_connections()
        while group := _refuse_late(group):
            try:
                results = self._commit(group)
            except OperationalError as problem:
                if _may_come_free(problem):
                    time.sleep(LOCK_RETRY)
                    continue
                log.warning("Events could not be written: %s", str(problem).strip())
                results = [not_written() for _ in group]
            except DatabaseError as problem:
                if len(group) > 1:
                    for job in group:
                        self._write([job])
                    return
                results = [_refusal(problem)]
            self._wake()
            if written := sum(job.written for job in group):
                meters.EVENTS.add(n=written)
                meters.GROUPS.observe(written)
            _settle(zip(group, results, strict=True))
            return

    def _commit(self, group: Sequence[Job]) -> list[Any]:
        now = self._clock()
        for job in group:
            if not job.prepared:
                job.prepared = prepare_events(job.items, now)
        self._prepared = _fail_fast_on_locks(self._prepared)
        with transaction.atomic():
            _bound_lock_waits(group)
            plain = [job for job in group if job.make_answer is None and job.work is None]
            found = iter(write_events([one for job in plain for one in job.prepared], now) if plain else ())
            by_job = {id(job): [next(found) for _ in job.prepared] for job in plain}
            for job in plain:
                job.written = _written(by_job[id(job)])
            return [by_job[id(job)] if id(job) in by_job else _other(job, now) for job in group]


def _other(job: Job, now: datetime) -> Any:
    """Write a batch, or do a job's work: what goes wrong with that, the database apart, is its caller's alone."""
    if job.work is None:
        return _batch(job, now)
    try:
        with transaction.atomic():
            return job.work()
    except DatabaseError:
        raise
    except Exception as problem:
        return problem


def _batch(job: Job, now: datetime) -> Result:
    """Write one batch, or find that it was written before."""
    job.written = 0
    if job.once is not None:
        try:
            kept = idempotency.find(job.once)
        except SignalboxError as refusal:
            return refusal
        if kept is not None:
            return kept
    outcomes = write_events(job.prepared, now)
    job.written = _written(outcomes)
    result = job.make_answer(outcomes) if job.make_answer else outcomes
    if job.once is not None and isinstance(result, bytes):
        idempotency.keep(job.once, result, now)
    return result


def _fail_fast_on_locks(prepared: object) -> object:
    """On SQLite, do not sleep for the write lock inside the library: we retry, and watch deadlines meanwhile.

    Return the raw connection that is set up so; `prepared` is the one that was.
    """
    if connection.vendor == "sqlite":
        connection.ensure_connection()
        if connection.connection is not prepared:
            connection.connection.execute("PRAGMA busy_timeout = 0")
    return connection.connection


def _bound_lock_waits(group: Sequence[Job]) -> None:
    """On PostgreSQL, wait for locks, at commit too, no longer than the most pressed caller can."""
    if connection.vendor == "postgresql":
        left = min(job.deadline for job in group) - time.monotonic() - GIVE_UP_BEFORE / 2
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {max(int(left * 1000), 1)}")


def _may_come_free(problem: OperationalError) -> bool:
    """Say whether the next try may go through: a lock was taken, or PostgreSQL ended a deadlock with us."""
    if connection.vendor == "sqlite":
        return "locked" in str(problem) or "busy" in str(problem)
    return getattr(problem.__cause__, "sqlstate", None) in {DEADLOCK, NO_LOCK}


def _refuse_late(group: Sequence[Job]) -> list[Job]:
    """Answer those whose time is up and return the others."""
    latest = time.monotonic() + GIVE_UP_BEFORE
    _settle((job, not_written()) for job in group if job.deadline <= latest or job.given_up)
    return [job for job in group if job.deadline > latest and not job.given_up]


def _written(outcomes: Sequence[Outcome]) -> int:
    """Count the events that are new; one that was told before, or refused, is none."""
    return sum(isinstance(one, Recorded) and one.event_id is not None for one in outcomes)


def not_written() -> Busy:
    """The refusal of events that were not written."""
    meters.BUSY.add()
    return Busy("The database is busy or cannot be written. Nothing was written; try again.", retry_after=1)


def _refusal(problem: DatabaseError) -> SignalboxError:
    if isinstance(problem, DataError):
        return Invalid(f"The database cannot hold this event: {str(problem).strip().splitlines()[0]}")
    log.error("An event could not be written", exc_info=problem)
    return not_written()


def _give_up(job: Job) -> None:
    job.given_up = True
    if not job.answer.done():
        job.answer.set_result(not_written())


def _settle(results: Iterator[tuple[Job, Any]] | zip[tuple[Job, Any]]) -> None:
    """Hand results over to the event loop, all in one go."""
    pairs = list(results)
    if not pairs:
        return

    def answer() -> None:
        for job, result in pairs:
            if not job.answer.done():
                job.answer.set_result(result)

    try:
        pairs[0][0].loop.call_soon_threadsafe(answer)
    except RuntimeError:
        log.debug("the event loop is gone; nobody is left to be answered")
