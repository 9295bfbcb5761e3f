"""What has to be done now and then: idempotent jobs that any worker may do, each by one worker at a time.

A job is due when its lease has run out; the worker that moves the lease forward does it. So a job runs about
once in `every`, whatever number of workers there is, and a worker that dies in the middle is made up for.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, connections
from django.utils import timezone

from coordinator import feed
from coordinator.actions import (
    approvals,
    chat_search,
    events,
    housekeeping,
    leases,
    notifications,
    pruning,
    search,
)

log = logging.getLogger(__name__)

TICK = 1.0  # seconds between looks at what is due


@dataclass(frozen=True, slots=True)
class Job:
    """`work(now)` about once in `every`; it may be run at any time, and twice."""

    name: str
    every: timedelta
    work: Callable[[datetime], object]

    @property
    def lease(self) -> str:
        """The name of the lease that says when the job is due."""
        return f"job:{self.name}"


JOBS: list[Job] = [
    Job("lifecycle", timedelta(seconds=settings.LIFECYCLE_INTERVAL), housekeeping.run),
    Job("approvals:lapse", timedelta(seconds=2), approvals.lapse_due),
    Job("notifications:deliver", timedelta(seconds=2), notifications.deliver_due),
    Job("prune", timedelta(minutes=10), pruning.prune_gently),
    Job("feed:prune", timedelta(minutes=1), feed.prune),
    Job("events:adopt", timedelta(hours=1), events.adopt_all_events),
    Job("search:index", timedelta(seconds=2), search.index_gently),
    Job("chat:index", timedelta(seconds=30), chat_search.index_new),
    Job("search:forget", timedelta(hours=1), search.forget_deleted),
]


def run_due(now: datetime, jobs: list[Job] | None = None) -> list[str]:
    """Do every job whose lease has run out and return their names; a job that fails is logged and left."""
    jobs = JOBS if jobs is None else jobs
    try:
        due = leases.free([job.lease for job in jobs], now=now)
        return [job.name for job in jobs if job.lease in due and _do(job, now)]
    except DatabaseError as problem:
        log.warning("Housekeeping cannot reach the database: %s", str(problem).strip())
        return []


def _do(job: Job, now: datetime) -> bool:
    try:
        if not leases.take(job.lease, length=job.every, now=now):
            return False
        job.work(now)
    except DatabaseError as problem:
        log.warning("Housekeeping %s: %s", job.name, str(problem).strip())
    except Exception:  # one job's fault must not keep the others from being done
        log.exception("Housekeeping %s failed", job.name)
    return True


class Housekeeper:
    """The thread that looks every second what is due."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the job at hand."""
        self._stop.set()
        self._thread.join(2)

    def _run(self) -> None:
        while not self._stop.wait(TICK * random.uniform(0.8, 1.2)):  # noqa: S311 - only to spread the workers
            for connection in connections.all(initialized_only=True):
                connection.close_if_unusable_or_obsolete()
            if run_due(timezone.now()):
                self._wake()
        connections.close_all()
