"""Periodic jobs: done when they are due, each by itself, and tried again where they fail."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from coordinator.actions.upkeep.jobs import JobAttemptFailed
from coordinator.models import Job
from coordinator.operations import jobs as running
from coordinator.operations.jobs import JOBS, PeriodicJob, run_and_list_due_jobs, start_job_in_new_thread
from tests.patience import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_jobs_are_claimed_by_one_write_and_freed_by_one() -> None:
    jobs = [PeriodicJob(name, timedelta(seconds=2), lambda now: None) for name in ("a", "b", "c")]
    assert run_and_list_due_jobs(NOW, jobs) == ["a", "b", "c"]
    with CaptureQueriesContext(connection) as queries:
        assert run_and_list_due_jobs(NOW + MINUTE, jobs) == ["a", "b", "c"]
    assert sum(query["sql"].startswith("UPDATE") for query in queries) == 2


def test_a_job_is_done_when_it_is_due() -> None:
    times: list[datetime] = []
    jobs = [PeriodicJob("x", MINUTE, times.append)]
    assert run_and_list_due_jobs(NOW, jobs) == ["x"]
    assert run_and_list_due_jobs(NOW + MINUTE / 2, jobs) == []
    assert run_and_list_due_jobs(NOW + MINUTE, jobs) == ["x"]
    assert times == [NOW, NOW + MINUTE]


def test_a_job_that_fails_keeps_no_other_from_being_done() -> None:
    def fail(now: datetime) -> None:
        raise RuntimeError("no")

    times: list[datetime] = []
    run_and_list_due_jobs(NOW, [PeriodicJob("bad", MINUTE, fail), PeriodicJob("good", MINUTE, times.append)])
    assert times == [NOW]


def test_every_job_can_be_done_on_an_empty_database() -> None:
    assert run_and_list_due_jobs(NOW) == [job.name for job in JOBS]


def test_a_job_keeps_its_lease_while_it_works_and_is_due_again_as_if_it_had_been_quick() -> None:
    begun, go_on, now = threading.Event(), threading.Event(), timezone.now()
    seconds = timedelta(seconds=1)

    def work(_now: datetime) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    slow, threads = PeriodicJob("slow", 2 * seconds, work, alone=True), []
    assert run_and_list_due_jobs(
        now, [slow], start=lambda do: threads.append(start_job_in_new_thread(do))
    ) == ["slow"]
    assert begun.wait(PATIENCE)
    assert Job.objects.get().leased_until is not None
    assert run_and_list_due_jobs(now + 60 * seconds, [slow]) == []
    go_on.set()
    threads[0].join(PATIENCE)
    assert Job.objects.get().leased_until is None
    assert run_and_list_due_jobs(now + seconds, [slow]) == []
    assert run_and_list_due_jobs(now + 2 * seconds, [slow]) == ["slow"]


def test_the_leases_of_jobs_that_wait_for_one_before_them_are_held() -> None:
    held: list[object] = []

    def work(_now: datetime) -> None:
        held.extend(Job.objects.filter(leased_until__gt=NOW).order_by("name").values_list("name", flat=True))

    jobs = [PeriodicJob("first", MINUTE, work), PeriodicJob("next", MINUTE, lambda _now: None)]
    assert run_and_list_due_jobs(NOW, jobs) == ["first", "next"]
    assert held == ["first", "next"]
    assert not Job.objects.filter(leased_by__isnull=False).exists()


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (
            ZeroDivisionError("secret"),
            "It failed unexpectedly (ZeroDivisionError). The server's log says more.",
        ),
        (JobAttemptFailed("The receiver answered 500."), "The receiver answered 500."),
        (OperationalError("database is locked\nDETAIL: Key (x)=(secret)"), "database is locked"),
    ],
)
def test_a_job_that_fails_says_why_and_is_tried_again_sooner_than_its_interval(
    problem: Exception, words: str
) -> None:
    works: list[Exception] = [problem, problem]

    def work(_now: datetime) -> None:
        if works:
            raise works.pop()

    daily = [PeriodicJob("daily", timedelta(days=1), work)]
    run_and_list_due_jobs(NOW, daily)
    row = Job.objects.get()
    assert (row.error, row.attempts, row.leased_by) == (words, 1, None)
    assert timedelta(seconds=5) <= row.next_at - NOW < timedelta(seconds=20)
    run_and_list_due_jobs(NOW + MINUTE, daily)
    assert Job.objects.get().next_at - NOW >= timedelta(seconds=90)
    run_and_list_due_jobs(NOW + 2 * MINUTE, daily)
    row = Job.objects.get()
    assert (row.error, row.attempts, row.next_at) == (None, 0, NOW + 2 * MINUTE + timedelta(days=1))


def test_an_outcome_that_the_database_does_not_take_at_once_is_written_a_moment_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problems = [OperationalError("database is locked")] * 2
    complete = running.release_and_reschedule_done_jobs

    def complete_when_free(*args: Any, **named: Any) -> int:
        if problems:
            raise problems.pop()
        return complete(*args, **named)

    monkeypatch.setattr(running, "release_and_reschedule_done_jobs", complete_when_free)
    run_and_list_due_jobs(NOW, [PeriodicJob("x", MINUTE, lambda _now: None)])
    assert Job.objects.get().leased_by is None


def test_an_interval_that_was_shortened_holds_after_the_next_run() -> None:
    run_and_list_due_jobs(NOW, [PeriodicJob("x", MINUTE, lambda _now: None)])
    shorter = [PeriodicJob("x", MINUTE / 6, lambda _now: None)]
    assert run_and_list_due_jobs(NOW + MINUTE, shorter) == ["x"]
    assert run_and_list_due_jobs(NOW + MINUTE * 7 / 6, shorter) == ["x"]
