"""Claiming while others write, and while runs are deleted under it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections

from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.actions.runs import claiming
from coordinator.models import Run, Session
from tests.runs.fleet import Fleet

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fleet(transactional_db: None) -> Fleet:
    return Fleet()


def somebody_else_writes() -> None:
    """Commit one row on a connection of its own."""
    other = connections["default"].copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("INSERT INTO leases (name, holder, until) VALUES ('other', 'other', 0)")
            cursor.execute("DELETE FROM leases WHERE name = 'other'")
    finally:
        other.close()


def test_a_run_is_claimed_though_many_wait_and_another_program_writes(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite refuses to write on a connection whose open cursor has read an older state."""
    ordered = [fleet.start(str(n)).run_id for n in range(250)]
    runner, meets = fleet.runner(), claiming.demands.runner_meets_demands

    def meets_beside_a_writer(*asked: Any) -> bool:
        somebody_else_writes()
        return meets(*asked)

    monkeypatch.setattr(claiming.demands, "runner_meets_demands", meets_beside_a_writer)
    claimed = [runs.claim_next_run(runner, fleet.tick()) for _ in range(3)]
    assert [run.run_id for run in claimed if run] == ordered[:3]


def test_a_run_far_behind_is_found(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "PAGE", 3)
    elsewhere = [fleet.start(additional_demands={"hostname": "other"}) for _ in range(10)]
    Run.objects.filter(pk__in=[run.pk for run in elsewhere]).update(created_at=fleet.now)  # all at one moment
    mine = fleet.start()
    found = runs.claim_next_run(fleet.runner(), fleet.tick())
    assert found is not None
    assert found.run_id == mine.run_id


def deleted_just_before(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Have the run's session deleted in the moment between finding it and locking it."""
    locked = claiming.lock_session_and_load_run

    def deleting(run_id: str) -> Any:
        if run_id == run.run_id:
            Session.objects.filter(pk=run.session_id).delete()
        return locked(run_id)

    monkeypatch.setattr(claiming, "lock_session_and_load_run", deleting)


def test_a_run_deleted_while_it_is_claimed_does_not_hide_the_next(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, waiting, runner = fleet.start("a"), fleet.start("b"), fleet.runner()
    deleted_just_before(monkeypatch, gone)
    answer = fleet.poll(runner)
    assert answer is not None
    assert answer["run"]["run_id"] == waiting.run_id


def test_a_run_deleted_while_its_runner_is_recovered_does_not_keep_the_others(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = fleet.runner()
    gone, other = fleet.running(runner, fleet.start("a")), fleet.running(runner, fleet.start("b"))
    deleted_just_before(monkeypatch, gone)
    runners.delete_runner_and_recover_runs(runner.runner_id, "Runner vanished", fleet.tick())
    assert fleet.fresh(other).status == "failed"


def test_a_broken_poll_whose_run_was_deleted_is_only_a_broken_poll(fleet: Fleet) -> None:
    run, runner = fleet.start(), fleet.runner()
    answer = fleet.poll(runner)
    Session.objects.filter(pk=run.session_id).delete()
    runners.requeue_undelivered_poll_answer(runner.runner_id, answer, fleet.tick())
    assert fleet.poll(runner) is None
