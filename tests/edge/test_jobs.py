from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from coordinator.actions.upkeep import leases
from coordinator.models import Lease
from coordinator.operations.jobs import JOBS, KEEPER, PeriodicJob, run_due_jobs, run_in_own_thread
from tests.patience import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_a_lease_is_had_once_until_it_runs_out() -> None:
    assert leases.take_lease("x", length=MINUTE, now=NOW)
    assert not leases.take_lease("x", length=MINUTE, now=NOW + MINUTE / 2)
    assert leases.find_free_leases({"x": MINUTE, "y": MINUTE}, now=NOW + MINUTE / 2) == {"y"}
    assert leases.take_lease("x", length=MINUTE, now=NOW + MINUTE)


def test_of_many_that_reach_for_a_lease_one_has_it() -> None:
    def reach(_: int) -> bool:
        try:
            return leases.take_lease("x", length=MINUTE, now=NOW)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(reach, range(12))) == 1


def test_of_many_leases_those_are_taken_that_nobody_holds() -> None:
    assert leases.take_lease("held", length=MINUTE, now=NOW)
    assert leases.take_lease("over", length=MINUTE / 4, now=NOW)
    now, lengths = NOW + MINUTE / 2, {"held": MINUTE, "over": MINUTE, "new": MINUTE * 2}
    assert leases.take_free_leases(lengths, now=now) == {"over", "new"}
    assert leases.take_free_leases(lengths, now=now) == set()
    ends = dict(Lease.objects.values_list("name", "until"))
    assert ends == {"held": NOW + MINUTE, "over": now + MINUTE, "new": now + MINUTE * 2}


def test_of_many_that_reach_for_the_same_leases_each_is_had_by_one() -> None:
    names = [f"{number}" for number in range(5)]

    def reach(_: int) -> set[str]:
        try:
            return leases.take_free_leases(dict.fromkeys(names, MINUTE), now=NOW)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        had = [name for taken in pool.map(reach, range(12)) for name in taken]
    assert sorted(had) == names


def test_jobs_whose_leases_are_brief_are_leased_by_one_write() -> None:
    jobs = [PeriodicJob(name, timedelta(seconds=2), lambda now: None) for name in ("a", "b", "c")]
    assert run_due_jobs(NOW, jobs) == ["a", "b", "c"]
    with CaptureQueriesContext(connection) as queries:
        assert run_due_jobs(NOW + MINUTE, jobs) == ["a", "b", "c"]
    assert sum(query["sql"].startswith("UPDATE") for query in queries) == 1


def test_a_job_is_done_when_it_is_due() -> None:
    times: list[datetime] = []
    jobs = [PeriodicJob("x", MINUTE, times.append)]
    assert run_due_jobs(NOW, jobs) == ["x"]
    assert run_due_jobs(NOW + MINUTE / 2, jobs) == []
    assert run_due_jobs(NOW + MINUTE, jobs) == ["x"]
    assert times == [NOW, NOW + MINUTE]


def test_a_job_that_fails_keeps_no_other_from_being_done() -> None:
    def fail(now: datetime) -> None:
        raise RuntimeError("no")

    times: list[datetime] = []
    run_due_jobs(NOW, [PeriodicJob("bad", MINUTE, fail), PeriodicJob("good", MINUTE, times.append)])
    assert times == [NOW]


def test_every_job_can_be_done_on_an_empty_database() -> None:
    assert run_due_jobs(NOW) == [job.name for job in JOBS]


def test_a_job_keeps_its_lease_while_it_works_and_is_due_again_as_if_it_had_been_quick() -> None:
    begun, go_on, now = threading.Event(), threading.Event(), timezone.now()
    seconds = timedelta(seconds=1)

    def work(_now: datetime) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    slow, threads = PeriodicJob("slow", 2 * seconds, work, alone=True), []
    assert run_due_jobs(now, [slow], start=lambda do: threads.append(run_in_own_thread(do))) == ["slow"]
    assert begun.wait(PATIENCE)
    KEEPER.renew_ending_leases(now + seconds)
    assert not leases.take_lease(
        slow.lease_name, length=slow.run_interval, now=now + 10 * seconds
    )  # another worker
    assert run_due_jobs(now + 60 * seconds, [slow]) == []  # this one, too, however late it is
    go_on.set()
    threads[0].join(PATIENCE)
    assert run_due_jobs(now + seconds, [PeriodicJob("slow", 2 * seconds, work)]) == []
    assert run_due_jobs(now + 2 * seconds, [PeriodicJob("slow", 2 * seconds, lambda _now: None)]) == ["slow"]


def test_the_leases_of_jobs_that_wait_for_one_before_them_are_kept() -> None:
    now, later = timezone.now(), timedelta(seconds=5)
    taken: list[bool] = []

    def work(_now: datetime) -> None:
        KEEPER.renew_ending_leases(now + later)
        taken.append(leases.take_lease("job:next", length=later, now=now + later))

    jobs = [
        PeriodicJob("first", timedelta(seconds=2), work),
        PeriodicJob("next", timedelta(seconds=2), lambda _now: None),
    ]
    assert run_due_jobs(now, jobs) == ["first", "next"]
    assert taken == [False]


def test_a_lease_that_another_worker_took_is_neither_renewed_nor_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert leases.take_lease("x", length=MINUTE, now=NOW)
    monkeypatch.setattr(leases, "current_process_name", lambda: "elsewhere:1")
    assert leases.take_lease("x", length=MINUTE, now=NOW + MINUTE)
    monkeypatch.undo()
    assert not leases.renew_lease("x", length=5 * MINUTE, now=NOW + MINUTE)
    leases.give_back_lease("x", due=NOW)
    assert Lease.objects.get(pk="x").until == NOW + 2 * MINUTE
