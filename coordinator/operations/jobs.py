"""Recurring jobs, and the thread of each worker that runs those that are due.

A job is idempotent, and due again its interval after it was begun. `coordinator.actions.upkeep.jobs` says what claims
and leases guarantee. A job that fails is tried again after a while that grows, but never later than its interval.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
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
from coordinator.actions.sessions import events, guards, session_sums, titles, unawaited_calls
from coordinator.actions.upkeep import housekeeping, pruning
from coordinator.actions.upkeep.jobs import (
    LEASE_RENEWER,
    ClaimedJob,
    JobAttemptFailed,
    claim_jobs,
    enqueue_jobs,
    job_retry_delay,
    release_and_reschedule_done_jobs,
    retry_job_later,
)
from coordinator.actions.usage import activity, recording, usage_backfill
from coordinator.engine import locks
from coordinator.feed import reader as feed
from coordinator.models import Job

log = logging.getLogger(__name__)

TICK = 1.0  # seconds between looks at what is due
# Milliseconds for which a job waits for SQLite's one writer; it is due again a moment later. No longer: a cursor of
# this thread that is collected as garbage in the writer's thread keeps that thread waiting for as long.
PATIENCE_MS = 400
OUTCOME_WRITE_TRIES = 5
UNKNOWN_PROBLEM = "It failed unexpectedly ({}). The server's log says more."


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """`work(now)` about once in `pace`; it may be run at any time, and twice.

    Where a setting says how often, `pace` is asked for it each time. Long jobs are done `alone`, in a thread of their
    own: requests must expire on time meanwhile. After failures the next attempt is made `longest_retry` later at most.
    """

    name: str
    pace: timedelta | Callable[[], timedelta]
    work: Callable[[datetime], object]
    alone: bool = False
    longest_retry: timedelta | None = None  # the interval, where it is not given

    @property
    def run_interval(self) -> timedelta:
        """How often the job is due."""
        return self.pace() if callable(self.pace) else self.pace


def session_lifecycle_job_interval() -> timedelta:
    """Return how often sessions and runs are looked after."""
    return timedelta(seconds=settings.LIFECYCLE_INTERVAL)


JOBS: list[PeriodicJob] = [
    PeriodicJob("lifecycle", session_lifecycle_job_interval, housekeeping.run_housekeeping),
    PeriodicJob("approvals:expire", timedelta(seconds=2), approvals.expire_due_requests),
    PeriodicJob("approvals:unawaited", timedelta(seconds=2), unawaited_calls.close_abandoned_requests),
    PeriodicJob("brakes:stop", timedelta(seconds=2), brakes.stop_runs_under_active_brakes),
    PeriodicJob("deciders:clock", timedelta(seconds=5), deciders.announce_delegation_changes),
    PeriodicJob("notifications:escalate", timedelta(seconds=2), notifications.escalate_due_requests),
    PeriodicJob("notifications:deliver", timedelta(seconds=2), notifications.start_due_deliveries),
    PeriodicJob("notifications:reconcile", timedelta(minutes=1), notifications.reconcile_delivery_jobs),
    PeriodicJob("budgets:notice", timedelta(seconds=5), budgets.record_reached_budgets),
    PeriodicJob(
        "budgets:programs", timedelta(hours=1), recording.update_usage_day_agent_programs, alone=True
    ),
    PeriodicJob(
        "usage:fill", timedelta(seconds=5), usage_backfill.backfill_usage_within_time_limit, alone=True
    ),
    PeriodicJob("activity:count", timedelta(minutes=1), activity.refresh_due_activity_hours, alone=True),
    PeriodicJob("usage:price", timedelta(days=1), usage_backfill.price_unpriced_usage, alone=True),
    PeriodicJob("budgets:forget", timedelta(days=1), budgets.delete_old_budget_usage),
    PeriodicJob("prune", timedelta(minutes=10), pruning.prune_slice_and_drop_partitions),
    PeriodicJob("gateway", timedelta(minutes=1), gateway_upkeep.clean_gateway_tables),
    PeriodicJob("feed:prune", timedelta(minutes=1), feed.prune_changes),
    PeriodicJob("events:adopt", timedelta(hours=1), events.add_new_missing_event_contexts, alone=True),
    PeriodicJob("titles:keep", timedelta(seconds=2), titles.update_session_titles),
    PeriodicJob(
        "sessions:figures", timedelta(seconds=5), session_sums.update_due_session_figures, alone=True
    ),
    PeriodicJob(
        "sessions:guards", timedelta(seconds=30), guards.update_recent_unguarded_call_counts, alone=True
    ),
    PeriodicJob("search:index", timedelta(seconds=2), search.index_slice_and_count_events, alone=True),
    PeriodicJob("chat:index", timedelta(seconds=30), chat_search.index_unindexed_chat_messages),
    PeriodicJob("search:forget", timedelta(hours=1), search.unindex_deleted_events, alone=True),
    PeriodicJob(
        "decisions:send",
        timedelta(seconds=5),
        decision_events.export_new_decision_logs,
        alone=True,
        longest_retry=timedelta(minutes=10),
    ),
    PeriodicJob("audit:seal", timedelta(minutes=1), sealing.seal_and_send_audit_log, alone=True),
    PeriodicJob("checkpoints:deliver", timedelta(seconds=5), sealing.send_pending_checkpoints, alone=True),
]


Start = Callable[[Callable[[], None]], object]


def run_job_in_current_thread(work: Callable[[], None]) -> None:
    """Do a job that may be long, here and now."""
    work()


def run_and_list_due_jobs(
    now: datetime, jobs: list[PeriodicJob] | None = None, *, start: Start = run_job_in_current_thread
) -> list[str]:
    """Do every job that is due and return their names; one that fails is logged, and tried again later.

    Jobs that are done alone are handed to `start`.
    """
    jobs = JOBS if jobs is None else jobs
    try:
        add_missing_jobs(jobs, now)
        claims = {claim.name: claim for claim in claim_jobs([job.name for job in jobs], now=now)}
    except DatabaseError as problem:
        log.warning("Housekeeping cannot reach the database: %s", str(problem).strip())
        return []
    due_jobs = [(job, claims[job.name]) for job in jobs if job.name in claims]
    for job, claim in due_jobs:
        if job.alone:
            start(partial(run_claimed_jobs_and_release, [(job, claim)]))
    run_claimed_jobs_and_release([(job, claim) for job, claim in due_jobs if not job.alone])
    return [job.name for job, _claim in due_jobs]


def add_missing_jobs(jobs: Sequence[PeriodicJob], now: datetime) -> None:
    names = {job.name for job in jobs}
    if missing := names - set(Job.objects.filter(name__in=names, subject="").values_list("name", flat=True)):
        for name in missing:
            enqueue_jobs(name, now=now)


def run_claimed_jobs_and_release(due: Sequence[tuple[PeriodicJob, ClaimedJob]]) -> None:
    """Do claimed jobs one after the other; those that were done are freed together, by one write."""
    with LEASE_RENEWER.renew_leases_during_block([claim for _job, claim in due]):
        done = {
            claim: claim.claimed_at + job.run_interval
            for job, claim in due
            if run_job_and_check_success(job, claim)
        }
        if due:
            write_job_outcome_with_retries(
                lambda: release_and_reschedule_done_jobs(done, now=due[0][1].claimed_at)
            )


def run_job_and_check_success(job: PeriodicJob, claim: ClaimedJob) -> bool:
    """Do the work and return True; where it fails, have it tried again, and return False."""
    started_at = time.monotonic()
    try:
        job.work(claim.claimed_at)
    except (DatabaseError, JobAttemptFailed) as problem:
        error = str(problem).strip().partition("\n")[0]  # further lines of PostgreSQL quote the row
        log.warning("Housekeeping %s: %s", job.name, str(problem).strip())
    except Exception as problem:  # one job's fault must not keep the others from being done
        error = UNKNOWN_PROBLEM.format(type(problem).__name__)
        log.exception("Housekeeping %s failed", job.name)
    else:
        return True
    now = claim.claimed_at + timedelta(seconds=time.monotonic() - started_at)
    at = now + min(job.longest_retry or job.run_interval, job_retry_delay(claim.attempts))
    write_job_outcome_with_retries(lambda: retry_job_later(claim, error=error, at=at, now=now))
    return False


def write_job_outcome_with_retries(write: Callable[[], object]) -> None:
    """Write what became of a job; where the database does not take it, the lease ends by itself, later."""
    for _ in range(OUTCOME_WRITE_TRIES):
        try:
            write()
        except DatabaseError as problem:
            log.warning("The outcome of a job cannot be written: %s", str(problem).strip())
        else:
            return


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
            if run_and_list_due_jobs(timezone.now(), self._jobs, start=start_job_in_new_thread):
                self._wake()
        connections.close_all()


def start_job_in_new_thread(work: Callable[[], None]) -> threading.Thread:
    """Do a job that may be long in a thread with a connection of its own."""

    def run_and_close_connections() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run_and_close_connections, name="housekeeper-alone", daemon=True)
    thread.start()
    return thread
