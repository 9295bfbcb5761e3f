"""A clock that is set back by a day stops nothing for a day."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coordinator.actions.agents import runners
from coordinator.actions.upkeep import housekeeping
from coordinator.models import Runner
from coordinator.operations.jobs import PeriodicJob, run_and_list_due_jobs
from tests.runs.fleet import NOON, Fleet

pytestmark = pytest.mark.django_db
DAY, LENGTH = timedelta(days=1), timedelta(seconds=2)


def set_back(fleet: Fleet) -> None:
    fleet.now -= DAY


def test_housekeeping_goes_on() -> None:
    done: list[object] = []
    job = PeriodicJob("x", LENGTH, done.append)
    for now in (NOON, NOON - DAY, NOON - DAY + timedelta(seconds=3)):
        run_and_list_due_jobs(now, [job])
    assert len(done) == 3


def test_a_runner_that_vanished_is_not_taken_for_alive_all_day(fleet: Fleet) -> None:
    runner = fleet.runner()
    set_back(fleet)
    fleet.pass_time(1)
    fleet.pass_time(700)
    assert not Runner.objects.filter(pk=runner.pk).exists()


def test_a_runner_at_work_stays(fleet: Fleet) -> None:
    runner = fleet.runner()
    set_back(fleet)
    for _ in range(30):
        runners.record_runner_heartbeat(runner.runner_id, fleet.tick())
        fleet.pass_time(60)
    assert Runner.objects.get(pk=runner.pk).last_heartbeat <= fleet.now


def test_a_claim_and_a_wait_for_a_runner_end_in_their_time(fleet: Fleet) -> None:
    claimed, runner = fleet.start(), fleet.runner()
    fleet.poll(runner)
    nobody = fleet.start(additional_demands={"hostname": "nowhere"})
    set_back(fleet)
    fleet.pass_time(1)
    fleet.pass_time(61)
    assert fleet.fresh(claimed).status == "pending"
    fleet.pass_time(300)
    assert fleet.fresh(nobody).status == "failed"


def test_a_stop_that_nobody_confirms_ends_in_its_time(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    fleet.stop(run)
    set_back(fleet)
    housekeeping.run_housekeeping(fleet.now)
    fleet.pass_time(61)
    assert fleet.fresh(run).status == "stopped"
