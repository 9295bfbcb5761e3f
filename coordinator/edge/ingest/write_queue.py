"""Group commit: one thread per process writes all waiting events in one transaction, then answers each caller.

An answer means committed. A refusal comes in time: a caller that waited too long gets 503, and its events were not
written. Events that the database already has when the time is up are waited for a little longer. Where the outcome is
unknown even then, the 503 says so, and that a retry with the same Idempotency-Key writes them once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.utils import timezone

from coordinator.actions.people.key_quotas import KeyQuotas
from coordinator.actions.sessions.events import (
    Outcome,
    PreparedEvent,
    prepare_event_rows,
    write_prepared_events,
)
from coordinator.actions.upkeep import idempotency
from coordinator.engine import locks
from coordinator.errors import ServiceBusy, SignalboxError, UnprocessableRequest
from coordinator.lib import process_metrics as meters
from coordinator.lib.fair_queue import CALLER, FairQueue
from coordinator.lib.threads import close_broken_database_connections
from coordinator.sessions.events import NewEvent, RecordedEvent

log = logging.getLogger(__name__)

GROUP_EVENTS = 200  # in one transaction, unless one batch alone is larger: some 0.1 s, for which others wait
# A caller who would have more of these waiting than it leaves free is refused with Retry-After.
QUEUE_EVENTS = 50_000
QUEUE_BYTES = 128 * 1024 * 1024
SLOW_TO_PREPARE = 64 * 1024  # bytes from which events are prepared in another thread than the writer's
LOCK_RETRY = 0.001  # seconds between tries for SQLite's write lock; its own handler sleeps up to 100 ms
# Seconds after a caller's deadline for which we wait for the outcome of events that are being written.
ANSWER_TIMEOUT_SECONDS = 1.0
GIVE_UP_BEFORE = 0.3  # seconds before a caller's deadline after which its events are not begun any more

T = TypeVar("T")
# What a batch's caller gets, made in the writing thread so that it can be kept in the same transaction.
MakeAnswer = Callable[[Sequence[Outcome]], bytes]
# Events that depend on what the database holds, and what else their caller wants to know of it.
MakeEvents = Callable[[], tuple[Any, Sequence[NewEvent]]]
ReadBack = Callable[[], Any]
Result = list[Outcome] | bytes | SignalboxError


@dataclass(slots=True, eq=False)
class WriteJob:
    """One caller's events, or its `work`. `deadline` is on time.monotonic's clock, `size` in bytes.

    `make` makes the events in the transaction, and `created` is what else it returned; `read_back` is asked after the
    commit, and `read_values` is what it answered (`WriteResult`).
    """

    items: list[NewEvent]
    deadline: float
    size: int
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    once: idempotency.IdempotencyClaim | None = None
    make_answer: MakeAnswer | None = None
    work: Callable[[], Any] | None = None
    make: MakeEvents | None = None
    created: Any = None
    read_back: ReadBack | None = None
    read_values: Any = None
    prepared: list[PreparedEvent] = field(default_factory=list)
    given_up: bool = False
    begun: bool = False  # in the hands of the database: committed or not, nobody knows yet
    answer_timeout: float = ANSWER_TIMEOUT_SECONDS
    alarm: asyncio.TimerHandle | None = None
    written: int = 0  # events, as the transaction that is committed wrote them
    caller: str = field(default_factory=CALLER.get)

    @property
    def is_refused(self) -> bool:
        """Whether it is answered with a refusal, of all or of one event."""
        result = self.answer.result()
        return isinstance(result, Exception) or any(
            isinstance(inner_result, SignalboxError) for inner_result in result
        )


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write: `outcomes` of the events, other rows `created` and values read after the commit.

    `read_values` is None, too, where the database did not answer.
    """

    outcomes: list[Outcome]
    created: Any = None
    read_values: Any = None


@dataclass(slots=True)
class QueueLoad:
    """How much waits to be written, of one caller or of all. `size` in bytes."""

    jobs: int = 0
    events: int = 0
    size: int = 0

    def count_job(self, job: WriteJob, by: int) -> None:
        """Count a job as waiting (`by` 1) or as waiting no more (`by` -1)."""
        self.jobs += by
        self.events += by * len(job.items)
        self.size += by * job.size


class GroupWriter:
    """The one writer of a process. `submit` is called on the event loop."""

    def __init__(
        self,
        wake: Callable[[], None],
        *,
        clock: Callable[[], datetime] = timezone.now,
    ) -> None:
        """`wake` is called after each transaction."""
        self._wake = wake
        self._clock = clock
        self._queue: FairQueue[WriteJob] = FairQueue()
        self._all = QueueLoad()
        self._by_caller: dict[str, QueueLoad] = {}
        self._stopping = False
        self._committing = False  # all is written; whether it is committed is not known until COMMIT returns
        self._prepared: object = None
        self._quotas = KeyQuotas()
        self._began: float | None = None  # when the current group was begun, on time.monotonic's clock
        self._some = threading.Condition()
        self._thread = threading.Thread(target=self.run_writer, name="writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, within: float = 3.0) -> None:
        """Write what waits, then end the thread."""
        with self._some:
            self._stopping = True
            self._some.notify()
        self._thread.join(within)

    @property
    def waiting_event_count(self) -> int:
        return self._all.events

    def seconds_stuck(self) -> float:
        """Return how many seconds the current group has been worked on; infinity where the thread is gone."""
        if not self._thread.is_alive():
            return float("inf")
        stuck_since = self._began
        return 0.0 if stuck_since is None else time.monotonic() - stuck_since

    async def submit_events(
        self,
        items: list[NewEvent],
        *,
        deadline: float,
        size: int,
        once: idempotency.IdempotencyClaim | None = None,
        make_answer: MakeAnswer | None = None,
        answer_timeout: float = ANSWER_TIMEOUT_SECONDS,
    ) -> list[Outcome] | bytes:
        """Have the events written; return their outcomes, or with `make_answer` the answer it made.

        With `once`, a resend gets the kept answer and writes nothing. Raises ServiceBusy where the events were not
        written in time (by `deadline`, on time.monotonic's clock), or where `answer_timeout` seconds later it is not
        known whether they were (its words say which), and what `once` refuses.
        """
        loop = asyncio.get_running_loop()
        job = WriteJob(items, deadline, size, loop, loop.create_future(), once, make_answer)
        job.answer_timeout = answer_timeout
        result: list[Outcome] | bytes = await self.submit_job_and_wait(job)
        return result

    async def write_and_read_back(
        self,
        items: Sequence[NewEvent] = (),
        *,
        deadline: float,
        size: int,
        make: MakeEvents | None = None,
        read_back: ReadBack | None = None,
    ) -> WriteResult:
        """Have the events written, those `items` or those that `make` makes; raises as `submit` and `perform` do.

        `make` runs in the transaction and may be called twice; it returns whatever its caller wants to know, and the
        events. `read_back` reads what is committed by then. A group asks each once, for all who gave the same.
        """
        loop = asyncio.get_running_loop()
        job = WriteJob(
            list(items), deadline, size, loop, loop.create_future(), make=make, read_back=read_back
        )
        outcomes = await self.submit_job_and_wait(job)
        return WriteResult(outcomes, job.created, job.read_values)

    def enqueue_small_event_write(
        self, items: list[NewEvent], *, deadline: float, size: int, read_back: ReadBack | None = None
    ) -> WriteJob:
        """Have events of less than `SLOW_TO_PREPARE` bytes written; `is_answered` and `written` wait.

        Raises ServiceBusy.
        """
        loop = asyncio.get_running_loop()
        job = WriteJob(items, deadline, size, loop, loop.create_future(), read_back=read_back)
        self.enqueue_job(job)
        return job

    async def wait_and_check_job_answered(self, job: WriteJob, *, within: float) -> bool:
        """Wait so many seconds for a job that was begun; say whether it is answered. However this ends, it goes on."""
        waited_for = job.answer
        job.alarm = job.loop.call_later(within, release_job_waiter_without_answer, job)
        try:
            await waited_for
        finally:
            job.alarm.cancel()
            if waited_for.cancelled():
                job.answer = job.loop.create_future()
        return job.answer is waited_for

    async def wait_for_write_result(self, job: WriteJob) -> WriteResult:
        """Wait for a job that was begun, and return what became of it. Raises as `record` does."""
        outcomes = await self.wait_for_job_until_deadline(job)
        return WriteResult(outcomes, job.created, job.read_values)

    async def perform_in_transaction(self, work: Callable[[], T], *, deadline: float) -> T:
        """Have a small `work` done in the next group's transaction, after its events; return what it returns.

        For what belongs to events and would otherwise need one more writer. It may be called twice.
        What it raises is raised here, but for the database's errors: those are refused as `submit` refuses them.
        """
        loop = asyncio.get_running_loop()
        result: T = await self.submit_job_and_wait(
            WriteJob([], deadline, 0, loop, loop.create_future(), work=work)
        )
        return result

    async def submit_job_and_wait(self, job: WriteJob) -> Any:
        """Hand the job to the thread and return its result. Raises what it was refused for."""
        if job.size >= SLOW_TO_PREPARE:
            job.prepared = await asyncio.to_thread(prepare_event_rows, job.items, self._clock())
        self.enqueue_job(job)
        return await self.wait_for_job_until_deadline(job)

    async def wait_for_job_until_deadline(self, job: WriteJob) -> Any:
        """Wait for the job as long as it has; return its result. Raises what it was refused for."""
        job.alarm = job.loop.call_later(
            max(job.deadline - time.monotonic(), 0.01), self.time_out_write_job, job
        )
        try:
            result = await job.answer
        finally:
            if job.alarm is not None:
                job.alarm.cancel()
            job.given_up = True
        if isinstance(result, Exception):
            raise result
        return result

    def time_out_write_job(self, job: WriteJob) -> None:
        """The time is up: what is not begun is not written any more; what is begun has a little longer."""
        with self._some:
            job.given_up = not job.begun
        if job.given_up:
            refuse_write_job(job, count_and_build_not_written_error)
        else:
            job.alarm = job.loop.call_later(
                job.answer_timeout, refuse_write_job, job, count_and_build_outcome_unknown_error
            )

    def begin_live_jobs_refuse_expired(self, group: list[WriteJob]) -> list[WriteJob]:
        """Mark as begun, and return, the jobs that somebody still waits for and that have time left."""
        latest = time.monotonic() + GIVE_UP_BEFORE
        with self._some:
            for job in group:
                job.begun = job.deadline > latest and not job.given_up
        deliver_write_results((job, count_and_build_not_written_error()) for job in group if not job.begun)
        return [job for job in group if job.begun]

    def mark_jobs_as_not_begun(self, group: list[WriteJob]) -> None:
        """Mark jobs whose transaction was undone as not begun."""
        with self._some:
            for job in group:
                job.begun = False

    def enqueue_job(self, job: WriteJob) -> None:
        if (
            job.work is None
            and (refusal := self._quotas.find_storage_quota_error(job.caller, self._clock())) is not None
        ):
            raise refusal
        with self._some:
            if self._stopping:
                raise ServiceBusy("The server is stopping. Try again in a moment.", retry_after=1)
            self.reserve_queue_capacity_for_job(job)
            self._queue.put(job.caller, job)
            self._some.notify()

    def reserve_queue_capacity_for_job(self, job: WriteJob) -> None:
        """Count the job as waiting. Raises ServiceBusy where its caller would have more waiting than it leaves free."""
        caller_load = self._by_caller.get(job.caller) or QueueLoad()
        events = self._all.events + caller_load.events + 2 * len(job.items)
        size = self._all.size + caller_load.size + 2 * job.size
        if events > QUEUE_EVENTS or size > QUEUE_BYTES:
            raise ServiceBusy(
                "Too many events wait to be written. Nothing was written; try again.", retry_after=1
            )
        self._by_caller[job.caller] = caller_load
        for load in (caller_load, self._all):
            load.count_job(job, 1)

    def release_queue_capacity_of_job(self, job: WriteJob) -> None:
        """Count the job as waiting no more."""
        caller_load = self._by_caller[job.caller]
        for load in (caller_load, self._all):
            load.count_job(job, -1)
        if not caller_load.jobs:
            del self._by_caller[job.caller]

    def run_writer(self) -> None:
        while group := self.dequeue_next_job_group():
            self._began = time.monotonic()
            try:
                self.write_group(group)
            except Exception:  # the writer must never die: waiting callers are asked to retry
                log.exception("The writer failed on a group of %d", len(group))
                refusal = (
                    count_and_build_outcome_unknown_error
                    if self._committing
                    else count_and_build_not_written_error
                )
                deliver_write_results((job, refusal()) for job in group)
            finally:
                self._began = None
        connections.close_all()

    def dequeue_next_job_group(self) -> list[WriteJob]:
        with self._some:
            while not self._queue and not self._stopping:
                self._some.wait()
            group = self._queue.pop_next_batch(GROUP_EVENTS, lambda job: len(job.items))
            for job in group:
                self.release_queue_capacity_of_job(job)
            return group

    def write_group(self, group: list[WriteJob]) -> None:
        """Write the group in one transaction; where that fails for its content, each job in its own."""
        close_broken_database_connections()
        found_twin = is_retry = False
        while group := self.begin_live_jobs_refuse_expired(group):
            self._committing = False
            try:
                results = self.write_group_in_transaction(group)
            except OperationalError as problem:
                if locks.is_retryable_lock_error(problem):
                    self.mark_jobs_as_not_begun(group)
                    time.sleep(LOCK_RETRY)
                    continue
                if not (is_retry or self._committing) and locks.is_commit_uncertain(problem):
                    # The connection was cut, as a rule while nothing was written; nothing is committed.
                    is_retry = True
                    self.mark_jobs_as_not_begun(group)
                    connection.close()
                    continue
                log.warning("Events could not be written: %s", str(problem).strip())
                lost = self._committing and locks.is_commit_uncertain(problem)
                refusal = count_and_build_outcome_unknown_error if lost else count_and_build_not_written_error
                results = [refusal() for _ in group]
            except DatabaseError as problem:
                if len(group) > 1:
                    self.mark_jobs_as_not_begun(group)
                    for job in group:
                        self.write_group([job])
                    return
                if isinstance(problem, IntegrityError) and group[0].once is not None and not found_twin:
                    # Another server has just written the same batch: its answer is there now.
                    found_twin = True
                    self.mark_jobs_as_not_begun(group)
                    continue
                results = [log_and_build_database_refusal(problem)]
            self._wake()
            set_read_values_after_commit(
                [job for job, result in zip(group, results, strict=True) if not isinstance(result, Exception)]
            )
            if written := sum(job.written for job in group):
                meters.EVENTS.add(n=written)
                meters.GROUPS.observe(written)
            deliver_write_results(zip(group, results, strict=True))
            return

    def write_group_in_transaction(self, group: Sequence[WriteJob]) -> list[Any]:
        now = self._clock()
        for job in group:
            if not job.prepared:
                job.prepared = prepare_event_rows(job.items, now)
        self._prepared = locks.shorten_connection_lock_waits(self._prepared)
        with transaction.atomic():
            nearest_deadline = min(job.deadline for job in group)
            locks.limit_lock_wait(nearest_deadline - time.monotonic() - GIVE_UP_BEFORE / 2)
            by_job: dict[int, Any] = self.quota_refusals_by_job_id(group, now)
            by_job |= {
                id(job): problem
                for job in group
                if job.make is not None
                and id(job) not in by_job
                and (problem := prepare_events_or_return_error(job, job.make, now)) is not None
            }
            plain = [
                job for job in group if job.make_answer is None and job.work is None and id(job) not in by_job
            ]
            recorded_events = iter(
                write_prepared_events([event for job in plain for event in job.prepared], now)
                if plain
                else ()
            )
            for job in plain:
                by_job[id(job)] = outcomes = [next(recorded_events) for _ in job.prepared]
                job.written = count_new_events(outcomes)
            results = [
                by_job[id(job)] if id(job) in by_job else write_events_or_run_job(job, now) for job in group
            ]
            sizes: Counter[str] = Counter()
            for job in group:
                if job.written:
                    sizes[job.caller] += job.size
            self._quotas.add_stored_bytes(sizes, now)
            self._committing = True
        return results

    def quota_refusals_by_job_id(self, group: Sequence[WriteJob], now: datetime) -> dict[int, Any]:
        """Return the refusals of those whose keys may store nothing more today."""
        jobs = [job for job in group if job.work is None]
        self._quotas.cache_stored_byte_sums({job.caller for job in jobs}, now)
        return {
            id(job): refusal
            for job in jobs
            if (refusal := self._quotas.find_storage_quota_error(job.caller, now)) is not None
        }


def prepare_events_or_return_error(job: WriteJob, make: MakeEvents, now: datetime) -> Exception | None:
    """Have a job's events made; return what goes wrong with that, the database apart: it is its caller's alone."""
    try:
        with transaction.atomic():
            job.created, items = make()
    except DatabaseError:
        raise
    except Exception as problem:
        return problem
    job.prepared = prepare_event_rows(items, now)
    return None


def write_events_or_run_job(job: WriteJob, now: datetime) -> Any:
    """Write a batch, or do a job's work: what goes wrong with that, the database apart, is its caller's alone."""
    if job.work is None:
        return write_event_batch_idempotently(job, now)
    try:
        with transaction.atomic():
            return job.work()
    except DatabaseError:
        raise
    except Exception as problem:
        return problem


def set_read_values_after_commit(group: Sequence[WriteJob]) -> None:
    """Answer what jobs ask after the commit, each question once."""
    read_values_by_callback: dict[ReadBack, Any] = {}
    for job in group:
        if job.read_back is None:
            continue
        if job.read_back not in read_values_by_callback:
            try:
                read_values_by_callback[job.read_back] = job.read_back()
            except DatabaseError as problem:
                log.warning("What a caller asks after its events cannot be read: %s", str(problem).strip())
                read_values_by_callback[job.read_back] = None
        job.read_values = read_values_by_callback[job.read_back]


def write_event_batch_idempotently(job: WriteJob, now: datetime) -> Result:
    """Write one batch, or find that it was written before."""
    job.written = 0
    if job.once is not None:
        try:
            idempotent_answer = idempotency.find_idempotent_answer(job.once)
        except SignalboxError as refusal:
            return refusal
        if idempotent_answer is not None:
            return idempotent_answer
    outcomes = write_prepared_events(job.prepared, now)
    job.written = count_new_events(outcomes)
    result = job.make_answer(outcomes) if job.make_answer else outcomes
    if job.once is not None and isinstance(result, bytes):
        idempotency.save_idempotent_answer(job.once, result, now)
    return result


def count_new_events(outcomes: Sequence[Outcome]) -> int:
    """Count the events that are new: neither reported before nor refused."""
    return sum(isinstance(outcome, RecordedEvent) and outcome.event_id is not None for outcome in outcomes)


def count_and_build_not_written_error() -> ServiceBusy:
    """The refusal of events that were not written."""
    meters.BUSY.add()
    return ServiceBusy(
        "The database is busy or cannot be written. Nothing was written; try again.", retry_after=1
    )


def count_and_build_outcome_unknown_error() -> ServiceBusy:
    """The refusal of events that may have been written."""
    meters.BUSY.add()
    return ServiceBusy(
        "The database did not confirm in time whether this was written. Send it again with the same "
        "Idempotency-Key; without one it may be written twice.",
        retry_after=1,
    )


def log_and_build_database_refusal(problem: DatabaseError) -> SignalboxError:
    if isinstance(problem, DataError):
        return UnprocessableRequest(
            f"The database cannot hold this event: {str(problem).strip().splitlines()[0]}"
        )
    log.error("An event could not be written", exc_info=problem)
    return count_and_build_not_written_error()


def release_job_waiter_without_answer(job: WriteJob) -> None:
    """Release the caller that waits for the job; the next caller to ask gets the answer."""
    if not job.answer.done():
        job.answer, waited_for = job.loop.create_future(), job.answer
        waited_for.set_result(None)


def refuse_write_job(job: WriteJob, refusal: Callable[[], ServiceBusy]) -> None:
    if not job.answer.done():
        job.answer.set_result(refusal())


def deliver_write_results(results: Iterator[tuple[WriteJob, Any]] | zip[tuple[WriteJob, Any]]) -> None:
    """Hand results over to the event loop, all in one go."""
    pairs = list(results)
    if not pairs:
        return

    def set_results() -> None:
        for job, result in pairs:
            if not job.answer.done():
                job.answer.set_result(result)

    try:
        pairs[0][0].loop.call_soon_threadsafe(set_results)
    except RuntimeError:
        log.debug("the event loop has ended; nobody waits for an answer")
