"""The state machine with many hands at once: threads with connections of their own, on either engine."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import OperationalError, connections

from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.errors import Conflict, SignalboxError
from coordinator.models import Callback, Run, Runner, Session
from coordinator.runs.statuses import RESUME
from tests.runs.fleet import Fleet

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fleet(transactional_db: None) -> Fleet:
    return Fleet()


def at_once(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run every task in a thread of its own, all let go together; return results, refusals as values."""
    barrier = threading.Barrier(len(tasks))

    def run(task: Callable[[], Any]) -> Any:
        barrier.wait()
        try:
            return persistently(task)
        except SignalboxError as refusal:
            return refusal
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(run, tasks))


def persistently(task: Callable[[], Any], attempts: int = 5) -> Any:
    """Run a task as the doors do: again if the database was busy."""
    for attempt in range(attempts):
        try:
            return task()
        except OperationalError:
            if attempt == attempts - 1:
                raise
    raise AssertionError("unreachable")


def test_every_run_is_claimed_exactly_once(fleet: Fleet) -> None:
    fleet_of = [fleet.runner(f"host-{n}") for n in range(8)]
    ordered = {fleet.start(str(n)).run_id for n in range(40)}
    now = fleet.tick()

    def take_all(runner: Runner) -> list[str]:
        taken = []
        while (
            answer := persistently(lambda: runners.claim_next_runner_work(runner.runner_id, now))
        ) is not None:
            taken.append(answer["run"]["run_id"])
        return taken

    taken = at_once([lambda runner=runner: take_all(runner) for runner in fleet_of])  # type: ignore[misc]
    counted = Counter(run_id for one in taken for run_id in one)
    assert set(counted) == ordered
    assert set(counted.values()) == {1}
    for runner, one in zip(fleet_of, taken, strict=True):
        assert set(Run.objects.filter(runner_id=runner.pk).values_list("run_id", flat=True)) == set(one)


def test_runs_of_one_session_are_never_claimed_together(fleet: Fleet) -> None:
    fleet_of = [fleet.runner(f"host-{n}") for n in range(6)]
    first = fleet.start()
    for n in range(5):
        fleet.resume(first.session_id, str(n))
    now = fleet.tick()
    answers = at_once([lambda r=r: runners.claim_next_runner_work(r.runner_id, now) for r in fleet_of])  # type: ignore[misc]
    assert [a["run"]["run_id"] for a in answers if a is not None] == [first.run_id]
    assert Run.objects.filter(status="claimed").count() == 1


@pytest.mark.parametrize("round_", range(3))
def test_of_many_reports_one_ends_the_run(fleet: Fleet, round_: int) -> None:
    runner = fleet.runner()
    parent = fleet.running(runner, fleet.start())
    fleet.complete(runner, parent)
    order = {"parent_session_id": parent.session_id, "execution_mode": "async_callback"}
    run = fleet.running(runner, fleet.start(**order))
    now = fleet.tick()
    at_once(
        [
            lambda: runs.record_run_completed(run.run_id, runner, now),
            lambda: runs.record_run_failed(run.run_id, runner, "boom", now),
            lambda: runs.record_run_stopped(run.run_id, runner, now),
        ]
        * 2
    )
    ended = fleet.fresh(run)
    assert (
        fleet.status(run.session_id)
        == {"completed": "finished", "failed": "error", "stopped": "stopped"}[ended.status]
    )
    assert fleet.said(run.session_id).count("session_stop") == (ended.status == "completed")
    assert Callback.objects.count() == 1
    assert Run.objects.filter(session_id=parent.session_id, type=RESUME).count() == 1


def test_a_stop_and_a_claim_agree_on_what_happened(fleet: Fleet) -> None:
    runner = fleet.runner()
    for _ in range(5):
        run = fleet.start()
        now = fleet.tick()
        answer, stop = at_once(
            [lambda: runners.claim_next_runner_work(runner.runner_id, now), lambda: fleet.stop(run)]  # noqa: B023 - at once
        )
        if fleet.fresh(run).runner_id is None:
            assert (answer, stop.status, fleet.fresh(run).status) == (None, "stopped", "stopped")
        else:
            assert (stop.status, fleet.fresh(run).status) == ("stopping", "stopping")
            fleet.poll(runner)
            fleet.stopped(runner, run)


def test_children_that_end_together_tell_their_parent_once_each(fleet: Fleet) -> None:
    runner = fleet.runner()
    parent = fleet.running(runner, fleet.start())
    order = {"parent_session_id": parent.session_id, "execution_mode": "async_callback"}
    children = [fleet.running(runner, fleet.start(str(n), **order)) for n in range(6)]
    now = fleet.tick()
    at_once(
        [lambda run=run: runs.record_run_completed(run.run_id, runner, now) for run in [parent, *children]]
    )  # type: ignore[misc]
    while (answer := fleet.poll(runner)) is not None:
        runs.record_start_or_order_stop(answer["run"]["run_id"], runner, fleet.tick())
        runs.record_run_completed(answer["run"]["run_id"], runner, fleet.tick())
    prompts = "".join(
        Run.objects.filter(session_id=parent.session_id, type=RESUME).values_list("prompt", flat=True)
    )
    assert [prompts.count(run.session_id) for run in children] == [1] * 6
    assert not Callback.objects.filter(delivered_run_id__isnull=True).exists()


def test_one_of_many_registers_an_identity(fleet: Fleet) -> None:
    outcomes = at_once([fleet.runner] * 6)
    assert len([one for one in outcomes if isinstance(one, Runner)]) == 1
    assert len([one for one in outcomes if isinstance(one, Conflict)]) == 5


def test_one_of_many_gets_a_session_id(fleet: Fleet) -> None:
    outcomes = at_once([lambda: fleet.start(session_id="mine")] * 6)
    assert len([one for one in outcomes if isinstance(one, Run)]) == 1
    assert (Session.objects.count(), Run.objects.count()) == (1, 1)
