"""Jobs: claimed, done, retried later; by any worker, each by one worker at a time.

- **A job is done at least once.** Its row is written in the transaction of what it is for, and it goes, or gets its
  next time, only after the work has succeeded. Work that must not happen twice compares and swaps its own state.
- **By one worker at a time.** `claim_jobs` takes a lease (`LEASE`) in one transaction; on PostgreSQL it skips rows that
  another claims at the moment, SQLite has one writer. `LEASE_RENEWER` renews it for as long as the work takes, so a
  lease need not be longer than the work. The leases of a process that dies end by themselves, and others go on.
- **A process that lost its lease writes nothing.** A process that was suspended for longer than its lease may find
  that another has claimed the job. `release_and_reschedule_done_jobs` and the others then change nothing: they name the
  holder and the attempt.
- **A clock that is set back makes nothing happen twice.** Waits that were chosen "in the future" are over: the work
  looks for itself whether there is something to do. A lease that seems too long is not taken, but shortened to `LEASE`
  from now: a living holder renews it, a dead one loses it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import DatabaseError, connections, transaction
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.utils import timezone

from coordinator.actions.audit import audit
from coordinator.engine import locks
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import Actor
from coordinator.models import Job
from coordinator.models.fields import MsField
from coordinator.models.jobs import LEASE
from coordinator.secrets.masking import mask_secrets_in_value

log = logging.getLogger(__name__)

# After each failed attempt the next is made so much later; after the last, each time as late as that.
RETRY_BACKOFF = tuple(timedelta(seconds=seconds) for seconds in (5, 30, 120, 600, 1800, 7200))
MAX_ERROR_CHARS = 500
RENEWAL_INTERVAL_SECONDS = 0.5
RENEWAL_LOCK_WAIT_MS = 400  # for SQLite's one writer; the next try comes in a moment


class JobAttemptFailed(Exception):
    """The work could not be done now; says why, in words for an administrator."""


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that this process holds the lease of."""

    id: int
    name: str
    subject: str
    attempts: int  # with this one
    error: str | None  # of the attempt before
    claimed_at: datetime
    chosen_at: object  # as the row has it: no other claim of the same number has the same


def enqueue_jobs(
    name: str, subjects: Iterable[str] = ("",), *, now: datetime, at: datetime | None = None
) -> None:
    """Have work done once for each subject, at `at` or now. Call it in the transaction of what the work is for.

    A job that is there already stays as it is.
    """
    rows = [Job(name=name, subject=subject, next_at=at or now, chosen_at=now) for subject in subjects]
    Job.objects.bulk_create(rows, ignore_conflicts=True)


def claim_jobs(
    names: Collection[str],
    *,
    now: datetime,
    subjects: Collection[str] | None = None,
    limit: int | None = None,
) -> list[ClaimedJob]:
    """Take the leases of due jobs of these names (and, where given, subjects), the longest due first.

    Where nothing is due this reads, and takes no lock.
    """
    waiting_jobs = Job.objects.filter(name__in=names).exclude(pk__in=LEASE_RENEWER.running_job_ids())
    if subjects is not None:
        waiting_jobs = waiting_jobs.filter(subject__in=subjects)
    overlong, due_jobs = waiting_jobs.with_overlong_lease(now), waiting_jobs.due_at(now)
    if overlong.exists():
        overlong.update(leased_until=now + LEASE)
    if not due_jobs.exists():
        return []
    with transaction.atomic():
        rows = list(due_jobs.select_for_update(skip_locked=True).order_by("next_at", "id")[:limit])
        Job.objects.filter(pk__in=[row.pk for row in rows]).update(
            leased_by=current_process_name(), leased_until=now + LEASE, attempts=F("attempts") + 1
        )
    return [
        ClaimedJob(row.pk, row.name, row.subject, row.attempts + 1, row.error, now, row.chosen_at)
        for row in rows
    ]


def release_and_reschedule_done_jobs(next_times: Mapping[ClaimedJob, datetime], *, now: datetime) -> int:
    """Free jobs that were done, each until its next time; return how many this process still held."""
    if not next_times:
        return 0
    at = Case(*(When(pk=job.id, then=Value(moment, MsField())) for job, moment in next_times.items()))
    return filter_jobs_with_current_lease(next_times).update(
        next_at=at, chosen_at=now, leased_by=None, leased_until=None, attempts=0, error=None
    )


def delete_completed_job(job: ClaimedJob) -> bool:
    """Delete a job that was to be done once. Call it in the transaction that records the outcome.

    False where another has claimed it meanwhile.
    """
    return bool(filter_jobs_with_current_lease([job]).delete()[0])


def retry_job_later(job: ClaimedJob, *, error: str, at: datetime, now: datetime) -> bool:
    """Free a job that failed, for another attempt; False where another has claimed it meanwhile."""
    error_text = (mask_secrets_in_value(error) or "")[:MAX_ERROR_CHARS]
    return bool(
        filter_jobs_with_current_lease([job]).update(
            next_at=at, chosen_at=now, leased_by=None, leased_until=None, error=error_text
        )
    )


def postpone_job(job: ClaimedJob, *, at: datetime, now: datetime) -> bool:
    """Free a job that was not tried, as it is not its time yet; False where another has claimed it meanwhile."""
    return bool(
        filter_jobs_with_current_lease([job]).update(
            next_at=at, chosen_at=now, leased_by=None, leased_until=None, attempts=F("attempts") - 1
        )
    )


def reschedule_waiting_jobs(name: str, subjects: Iterable[str], *, at: datetime, now: datetime) -> None:
    """Give those of the jobs that nobody does another time."""
    free = Q(leased_until__isnull=True) | Q(leased_until__lte=now)
    Job.objects.filter(free, name=name, subject__in=list(subjects)).update(next_at=at, chosen_at=now)


def job_retry_delay(attempts: int) -> timedelta:
    """Return how long after the failed attempt of this number the next is made."""
    return RETRY_BACKOFF[min(max(attempts, 1), len(RETRY_BACKOFF)) - 1]


def filter_jobs_with_current_lease(jobs: Iterable[ClaimedJob]) -> QuerySet[Job]:
    """Return those of the claimed jobs that nobody has claimed since."""
    same = Q(pk__in=())
    for job in jobs:
        same |= Q(pk=job.id, attempts=job.attempts, chosen_at=job.chosen_at)
    return Job.objects.filter(same, leased_by=current_process_name())


def schedule_job_immediately(job_id: int, *, actor: Actor, now: datetime) -> None:
    """Have a waiting job done at once. Raises NotFound, and Conflict for one that is being done."""
    with transaction.atomic():
        job = lock_and_require_waiting_job(job_id, now)
        Job.objects.filter(pk=job.pk).update(next_at=now, chosen_at=now)
        audit.record_audit_entry(
            "JOB_RUN_NOW",
            actor=actor,
            target=f"job:{job}",
            result="success",
            metadata={"attempts": job.attempts, "error": job.error},
            now=now,
        )


def lock_and_require_waiting_job(job_id: int, now: datetime) -> Job:
    """Return a job that nobody does, locked. Raises NotFound, and Conflict for one that is being done."""
    job = Job.objects.select_for_update().filter(pk=job_id).first()
    if job is None:
        raise NotFound("This job is done.")
    if isinstance(job.leased_until, datetime) and job.leased_until > now:
        raise Conflict(f"This job is being done by {job.leased_by}.")
    return job


def current_process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


class LeaseRenewer:
    """Renews the leases of the jobs that this process does. Its thread lives while there are such jobs.

    The database is asked only for jobs that take longer than a third of a lease.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._renewed: dict[
            ClaimedJob, float
        ] = {}  # when each lease was last renewed, on the monotonic clock
        self._thread: threading.Thread | None = None

    def running_job_ids(self) -> list[int]:
        """Return this process's jobs, including those whose lease it lost while it was suspended."""
        with self._lock:
            return [job.id for job in self._renewed]

    @contextlib.contextmanager
    def renew_leases_during_block(self, jobs: Collection[ClaimedJob]) -> Iterator[None]:
        """Renew the leases of these jobs within the block."""
        with self._lock:
            self._renewed.update(dict.fromkeys(jobs, time.monotonic()))
            if self._renewed and self._thread is None:
                self._thread = threading.Thread(
                    target=self.run_renewal_loop, name="lease-renewer", daemon=True
                )
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                for job in jobs:
                    self._renewed.pop(job, None)

    def run_renewal_loop(self) -> None:
        while True:
            time.sleep(RENEWAL_INTERVAL_SECONDS)
            with self._lock:
                if not self._renewed:
                    self._thread = None
                    return
                before = time.monotonic() - LEASE.total_seconds() / 3
                ending = [job for job, renewed in self._renewed.items() if renewed < before]
            if not ending:
                continue
            try:
                locks.set_sqlite_busy_timeout(RENEWAL_LOCK_WAIT_MS)
                self.renew_leases(ending, timezone.now())
            except DatabaseError as problem:
                log.warning("Leases cannot be renewed: %s", str(problem).strip())
            finally:
                connections.close_all()

    def renew_leases(self, jobs: Collection[ClaimedJob], now: datetime) -> None:
        """Renew the leases of those of the jobs that nobody has claimed since. Raises DatabaseError."""
        filter_jobs_with_current_lease(jobs).update(leased_until=now + LEASE)
        with self._lock:
            self._renewed.update({job: time.monotonic() for job in jobs if job in self._renewed})


LEASE_RENEWER = LeaseRenewer()
