"""Periodic jobs: idempotent, done by any worker, each by one worker at a time.

A job is due when its lease has run out; the worker that moves the lease forward does it. So a job runs about
once in `every`, whatever number of workers there is, and a worker that dies in the middle is made up for.

A job that takes longer than its lease keeps it: `LeaseKeeper` renews the leases of all jobs that this process has taken
and not finished, and gives each back as its job ends. A worker that dies holds a renewed lease for at most
`RENEWED_FOR` more. A worker that stood still for longer than its lease may find that another does the same job:
whatever must not be done twice then compares and swaps its own place (as actions.decision_events).
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.db import DatabaseError, connections
from django.utils import timezone

from coordinator.actions import approvals, deciders, notifications, search
from coordinator.actions.audit import decision_events, sealing
from coordinator.actions.chat import chat_search
from coordinator.actions.mcp import gateway_upkeep
from coordinator.actions.policy import brakes, budgets
from coordinator.actions.sessions import events, titles, unawaited_calls
from coordinator.actions.upkeep import housekeeping, leases, partitions, pruning
from coordinator.actions.usage import spending
from coordinator.engine import locks
from coordinator.feed import reader as feed

log = logging.getLogger(__name__)

TICK = 1.0  # seconds between looks at what is due
# Milliseconds for which a job waits for SQLite's one writer; it is due again a moment later. No longer: a cursor of
# this thread that is collected as garbage in the writer's thread keeps that thread waiting for as long.
PATIENCE_MS = 400
# Leases up to this long are taken together, by one write: should this worker die before it has done a job of theirs,
# another one does it in a moment. Longer ones are taken one by one, each when its job begins.
BRIEF = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """`work(now)` about once in `pace`; it may be run at any time, and twice.

    Where a setting says how often, `pace` is asked for it each time. Long jobs are done `alone`, in a thread of their
    own: requests must expire on time meanwhile.
    """

    name: str
    pace: timedelta | Callable[[], timedelta]
    work: Callable[[datetime], object]
    alone: bool = False

    @property
    def run_interval(self) -> timedelta:
        """How often the job is due."""
        return self.pace() if callable(self.pace) else self.pace

    @property
    def lease_name(self) -> str:
        """The name of the lease that says when the job is due."""
        return f"job:{self.name}"


def lifecycle_interval() -> timedelta:
    """Return how often sessions and runs are looked after."""
    return timedelta(seconds=settings.LIFECYCLE_INTERVAL)


JOBS: list[PeriodicJob] = [
    PeriodicJob("lifecycle", lifecycle_interval, housekeeping.run_housekeeping),
    PeriodicJob("approvals:expire", timedelta(seconds=2), approvals.expire_due_requests),
    PeriodicJob("approvals:unawaited", timedelta(seconds=2), unawaited_calls.close_abandoned_requests),
    PeriodicJob("brakes:stop", timedelta(seconds=2), brakes.stop_braked_runs),
    PeriodicJob("deciders:clock", timedelta(seconds=5), deciders.announce_delegation_changes),
    PeriodicJob("notifications:escalate", timedelta(seconds=2), notifications.escalate_due_requests),
    PeriodicJob("notifications:deliver", timedelta(seconds=2), notifications.start_due_deliveries),
    PeriodicJob("budgets:notice", timedelta(seconds=5), budgets.record_reached_budgets),
    PeriodicJob("budgets:programs", timedelta(hours=1), spending.correct_usage_programs, alone=True),
    PeriodicJob("budgets:forget", timedelta(days=1), budgets.delete_old_usage),
    PeriodicJob("prune", timedelta(minutes=10), pruning.run_pruning_slice),
    PeriodicJob("gateway", timedelta(minutes=1), gateway_upkeep.clean_gateway_tables),
    PeriodicJob("feed:prune", timedelta(minutes=1), feed.prune_changes),
    PeriodicJob("events:parts", timedelta(seconds=30), partitions.maintain_event_parts, alone=True),
    PeriodicJob("events:adopt", timedelta(hours=1), events.adopt_new_events, alone=True),
    PeriodicJob("titles:keep", timedelta(seconds=2), titles.update_session_titles),
    PeriodicJob("search:index", timedelta(seconds=2), search.run_indexing_slice),
    PeriodicJob("chat:index", timedelta(seconds=30), chat_search.index_new_chat_messages),
    PeriodicJob("search:forget", timedelta(hours=1), search.unindex_deleted_events, alone=True),
    PeriodicJob("decisions:send", timedelta(seconds=5), decision_events.send_due_decisions, alone=True),
    PeriodicJob("audit:seal", timedelta(minutes=1), sealing.seal_and_send_log, alone=True),
]


RENEWED_FOR = timedelta(seconds=30)  # for so long a dead worker's job is not done
RENEW_EVERY = 0.5  # seconds


class LeaseKeeper:
    """Renews the leases of the jobs that this process has taken and not finished.

    Its thread lives while there are such jobs. The database is asked only for those that take longer than a tick.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._ends: dict[str, datetime] = {}  # of each lease that is held, when it ends
        self._dues: dict[str, datetime] = {}  # … and when its job is due again
        self._thread: threading.Thread | None = None

    def keep_lease_renewed(self, name: str, due: datetime) -> None:
        """Renew a lease, which was just taken until its job is `due` again, until it is given back."""
        with self._lock:
            self._ends[name] = self._dues[name] = due
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self.run_renewal_loop, name="lease-keeper", daemon=True
                )
                self._thread.start()

    def is_holding_lease(self, name: str) -> bool:
        """Say whether a job of this process holds the lease."""
        return name in self._ends

    def stop_renewing_lease(self, name: str) -> None:
        """Renew a lease no more; one that was renewed ends when its job is due."""
        with self._lock:
            ends, due = self._ends.pop(name), self._dues.pop(name)
            if ends != due:
                with suppress(DatabaseError):  # then it ends by itself
                    leases.give_back_lease(name, due=due)

    def renew_ending_leases(self, now: datetime) -> None:
        """Renew the leases that end soon. Raises DatabaseError."""
        with self._lock:
            for name in [name for name, ends in self._ends.items() if ends - now < RENEWED_FOR / 2]:
                if leases.renew_lease(name, length=RENEWED_FOR, now=now):
                    self._ends[name] = now + RENEWED_FOR

    def run_renewal_loop(self) -> None:
        while True:
            time.sleep(RENEW_EVERY)
            with self._lock:
                if not self._ends:
                    self._thread = None
                    return
                try:
                    locks.set_sqlite_busy_timeout(PATIENCE_MS)
                    self.renew_ending_leases(timezone.now())
                except DatabaseError as problem:
                    log.warning("Leases cannot be renewed: %s", str(problem).strip())
                finally:
                    connections.close_all()


KEEPER = LeaseKeeper()
Start = Callable[[Callable[[], None]], object]


def run_immediately(work: Callable[[], None]) -> None:
    """Do a job that may be long, here and now."""
    work()


def run_due_jobs(
    now: datetime, jobs: list[PeriodicJob] | None = None, *, start: Start = run_immediately
) -> list[str]:
    """Do every job whose lease has run out and return their names; a job that fails is logged and left.

    Jobs that are done alone are handed to `start`.
    """
    jobs = JOBS if jobs is None else jobs
    try:
        idle = [job for job in jobs if not KEEPER.is_holding_lease(job.lease_name)]
        free = leases.find_free_leases({job.lease_name: job.run_interval for job in idle}, now=now)
        brief = {
            job.lease_name: job.run_interval
            for job in jobs
            if job.lease_name in free and job.run_interval <= BRIEF
        }
        due = free - brief.keys() | leases.take_free_leases(brief, now=now)
    except DatabaseError as problem:
        log.warning("Housekeeping cannot reach the database: %s", str(problem).strip())
        return []
    for name in due & brief.keys():  # while those before them are done, too
        KEEPER.keep_lease_renewed(name, now + brief[name])
    return [job.name for job in jobs if job.lease_name in due and start_due_job(job, now, start)]


def start_due_job(job: PeriodicJob, now: datetime, start: Start) -> bool:
    try:
        if job.run_interval > BRIEF and not leases.take_lease(
            job.lease_name, length=job.run_interval, now=now
        ):
            return False
    except DatabaseError as problem:
        log.warning("Housekeeping %s: %s", job.name, str(problem).strip())
        return True
    if job.run_interval > BRIEF:
        KEEPER.keep_lease_renewed(job.lease_name, now + job.run_interval)
    (start if job.alone else run_immediately)(partial(run_job_and_log, job, now))
    return True


def run_job_and_log(job: PeriodicJob, now: datetime) -> None:
    try:
        job.work(now)
    except DatabaseError as problem:
        log.warning("Housekeeping %s: %s", job.name, str(problem).strip())
    except Exception:  # one job's fault must not keep the others from being done
        log.exception("Housekeeping %s failed", job.name)
    finally:
        KEEPER.stop_renewing_lease(job.lease_name)


class Housekeeper:
    """The thread that checks every second which jobs are due."""

    def __init__(self, wake: Callable[[], None], jobs: list[PeriodicJob] | None = None) -> None:
        self._wake = wake
        self._jobs = jobs
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.run_housekeeping_loop, name="housekeeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2)

    def run_housekeeping_loop(self) -> None:
        while not self._stop.wait(TICK * random.uniform(0.8, 1.2)):  # noqa: S311 - only to spread the workers
            for connection in connections.all(initialized_only=True):
                connection.close_if_unusable_or_obsolete()
            with suppress(DatabaseError):  # run_due says so
                locks.set_sqlite_busy_timeout(PATIENCE_MS)
            if run_due_jobs(timezone.now(), self._jobs, start=run_in_own_thread):
                self._wake()
        connections.close_all()


def run_in_own_thread(work: Callable[[], None]) -> threading.Thread:
    """Do a job that may be long in a thread with a connection of its own."""

    def run_and_close_connections() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run_and_close_connections, name="housekeeper-alone", daemon=True)
    thread.start()
    return thread
