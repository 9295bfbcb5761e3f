"""Claims and leases: by one worker at a time, none lost with a worker that dies, none twice by a clock set back."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from coordinator.actions.upkeep import jobs
from coordinator.actions.upkeep.jobs import LEASE_RENEWER, ClaimedJob
from coordinator.models import Job
from coordinator.models.jobs import CLOCK_SKEW, LEASE
from tests.jobs.processes import kill_worker, worker_process

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


def claim(now: datetime = NOW, name: str = "x") -> list[ClaimedJob]:
    return jobs.claim_jobs([name], now=now)


def claim_as_another(monkeypatch: pytest.MonkeyPatch, now: datetime) -> list[ClaimedJob]:
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "current_process_name", lambda: "elsewhere:1")
        return claim(now)


def test_a_job_of_each_name_and_subject_is_there_once() -> None:
    jobs.enqueue_jobs("x", ["1", "2"], now=NOW, at=NOW + DAY)
    jobs.enqueue_jobs("x", ["2", "3"], now=NOW)
    assert [(job.subject, job.next_at) for job in Job.objects.order_by("id")] == [
        ("1", NOW + DAY),
        ("2", NOW + DAY),
        ("3", NOW),
    ]


def test_a_job_is_claimed_when_it_is_due_and_once() -> None:
    jobs.enqueue_jobs("x", now=NOW, at=NOW + SECOND)
    assert claim() == []
    (held,) = claim(NOW + SECOND)
    assert (held.name, held.attempts, held.error) == ("x", 1, None)
    assert claim(NOW + 2 * SECOND) == []


def test_of_many_that_reach_for_the_same_jobs_each_is_claimed_by_one() -> None:
    jobs.enqueue_jobs("x", map(str, range(20)), now=NOW)

    def reach(_: int) -> list[str]:
        try:
            return [held.subject for held in jobs.claim_jobs(["x"], now=NOW, limit=3)]
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        claimed = [subject for found in pool.map(reach, range(12)) for subject in found]
    assert len(claimed) == len(set(claimed))
    claimed += [held.subject for held in claim()]
    assert sorted(claimed, key=int) == [str(number) for number in range(20)]


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer")
def test_a_claim_does_not_wait_for_rows_that_another_is_claiming() -> None:
    jobs.enqueue_jobs("x", ["1", "2"], now=NOW)
    claimed: list[ClaimedJob] = []

    def reach() -> None:
        try:
            claimed.extend(claim())
        finally:
            connections.close_all()

    with transaction.atomic():
        Job.objects.select_for_update().get(subject="1")
        thread = threading.Thread(target=reach)
        thread.start()
        thread.join(30)
        assert [held.subject for held in claimed] == ["2"]


def test_nothing_due_takes_no_lock() -> None:
    jobs.enqueue_jobs("x", now=NOW, at=NOW + DAY)
    with CaptureQueriesContext(connection) as queries:
        assert claim() == []
    assert {query["sql"].split()[0] for query in queries} == {"SELECT"}


def test_a_job_of_a_worker_that_was_killed_is_done_by_another_once_its_lease_is_over() -> None:
    jobs.enqueue_jobs("x", ["a", "b"], now=NOW)

    def work_until_killed(tell: object) -> None:
        with LEASE_RENEWER.renew_leases_during_block(jobs.claim_jobs(["x"], now=NOW, limit=1)):
            tell(b"begun")  # type: ignore[operator]
            signal.pause()

    with worker_process(work_until_killed) as (pid, told):
        assert os.read(told, 5) == b"begun"
        held = Job.objects.get(subject="a")
        assert held.leased_by == f"{jobs.current_process_name().rpartition(':')[0]}:{pid}"
        assert [other.subject for other in claim(NOW + SECOND)] == ["b"]
        kill_worker(pid)
    assert claim(NOW + LEASE - SECOND) == []
    (again,) = claim(NOW + LEASE)
    assert (again.subject, again.attempts) == ("a", 2)
    assert jobs.delete_completed_job(again)


def test_a_lease_is_renewed_for_as_long_as_the_work_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.enqueue_jobs("x", now=NOW)
    (held,) = claim()
    for minute in range(1, 10):
        now = NOW + minute * LEASE / 2
        LEASE_RENEWER.renew_leases([held], now)
        assert claim_as_another(monkeypatch, now + LEASE - SECOND) == []
    assert jobs.release_and_reschedule_done_jobs({held: NOW + DAY}, now=NOW) == 1


def test_who_lost_its_lease_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.enqueue_jobs("x", now=NOW)
    (held,) = claim()
    (others,) = claim_as_another(monkeypatch, NOW + LEASE)
    before = Job.objects.values().get()
    LEASE_RENEWER.renew_leases([held], NOW + 2 * LEASE)
    assert jobs.release_and_reschedule_done_jobs({held: NOW + DAY}, now=NOW) == 0
    assert not jobs.delete_completed_job(held)
    assert not jobs.retry_job_later(held, error="no", at=NOW, now=NOW)
    assert not jobs.postpone_job(held, at=NOW, now=NOW)
    assert Job.objects.values().get() == before
    assert others.attempts == 2


def test_a_claim_from_before_is_told_from_a_later_one_of_the_same_number() -> None:
    jobs.enqueue_jobs("x", now=NOW)
    (first,) = claim()
    (second,) = claim(NOW + LEASE)
    jobs.release_and_reschedule_done_jobs({second: NOW + 2 * LEASE}, now=NOW + LEASE)
    (third,) = claim(NOW + 2 * LEASE)
    assert (first.attempts, third.attempts) == (1, 1)
    assert not jobs.delete_completed_job(first)
    assert jobs.delete_completed_job(third)


def test_a_job_that_this_process_does_is_not_begun_a_second_time_however_late_it_is() -> None:
    jobs.enqueue_jobs("x", now=NOW)
    held = claim()
    with LEASE_RENEWER.renew_leases_during_block(held):
        assert claim(NOW + DAY) == []
    assert len(claim(NOW + DAY)) == 1


def test_a_failed_job_is_tried_again_later_and_says_why() -> None:
    jobs.enqueue_jobs("x", now=NOW)
    (held,) = claim()
    jobs.retry_job_later(
        held, error="answered 500 to Bearer sk-ant-api03-" + "a" * 90, at=NOW + 5 * SECOND, now=NOW
    )
    assert claim(NOW + 4 * SECOND) == []
    (again,) = claim(NOW + 5 * SECOND)
    assert again.attempts == 2
    assert "answered 500" in str(again.error)
    assert "aaaa" not in str(again.error)


def test_a_postponed_job_counts_no_attempt() -> None:
    jobs.enqueue_jobs("x", now=NOW)
    (held,) = claim()
    jobs.postpone_job(held, at=NOW + DAY, now=NOW)
    (again,) = claim(NOW + DAY)
    assert again.attempts == 1


@pytest.mark.parametrize("back", [timedelta(minutes=5), timedelta(hours=1), 2 * DAY])
def test_a_wait_that_was_chosen_before_the_clock_was_set_back_is_over(back: timedelta) -> None:
    jobs.enqueue_jobs("x", now=NOW, at=NOW + SECOND)
    assert len(claim(NOW - back)) == 1


def test_a_clock_that_is_a_little_behind_begins_nothing_early() -> None:
    jobs.enqueue_jobs("x", now=NOW, at=NOW + SECOND)
    assert claim(NOW - CLOCK_SKEW / 2) == []


@pytest.mark.parametrize("back", [timedelta(minutes=5), 2 * DAY])
def test_what_is_being_done_while_the_clock_is_set_back_is_not_begun_twice(
    monkeypatch: pytest.MonkeyPatch, back: timedelta
) -> None:
    jobs.enqueue_jobs("x", now=NOW)
    (held,) = claim()
    now = NOW - back
    assert claim_as_another(monkeypatch, now) == []
    assert claim_as_another(monkeypatch, now + LEASE - SECOND) == []
    LEASE_RENEWER.renew_leases([held], now + LEASE - SECOND)
    assert claim_as_another(monkeypatch, now + LEASE) == []
    # Its holder dies now: another goes on a lease later on the new clock, not days later.
    assert len(claim_as_another(monkeypatch, now + 2 * LEASE)) == 1
