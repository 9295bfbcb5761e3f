"""Executors that outlive their runs: a session is idle while its process waits for the next."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.actions.sessions import sessions
from coordinator.actions.upkeep import housekeeping
from coordinator.errors import Conflict, Forbidden, NotFound
from coordinator.models import Event, LivingExecutor, Run, Runner, Session, StopCommand
from coordinator.runs.waits import RunQueueState
from tests.runs.fleet import OPERATOR, Fleet

pytestmark = pytest.mark.django_db

PERSISTENT = {"type": "autonomous", "command": "echo", "lifecycle": "persistent"}


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def keeper(fleet: Fleet, hostname: str = "vm", **executor: Any) -> Runner:
    """A runner of the newest version, whose processes live on."""
    return fleet.runner(hostname, executor={**PERSISTENT, **executor})


def turn(fleet: Fleet, runner: Runner, run: Run) -> Run:
    """Have a run taken, started and completed, its process waiting."""
    fleet.running(runner, run)
    runs.record_run_completed(run.run_id, runner, fleet.tick(), session_status="idle")
    return fleet.fresh(run)


def status_of(run: Run) -> str:
    return Session.objects.get(pk=run.session_id).status


def types_of(run: Run) -> list[str]:
    return list(
        Event.objects.filter(session_id=run.session_id).order_by("id").values_list("event_type", flat=True)
    )


def test_a_completed_turn_leaves_its_session_idle(fleet: Fleet) -> None:
    runner = keeper(fleet)
    run = turn(fleet, runner, fleet.start())
    assert (run.status, status_of(run)) == ("completed", "idle")
    assert types_of(run) == ["run_start", "run_completed"]
    living = LivingExecutor.objects.get(pk=run.session_id)
    assert (living.runner_id, living.run_id) == (runner.runner_id, run.run_id)


def test_a_runner_of_an_older_version_has_the_older_words_and_finishes(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    fleet.complete(runner, run)
    assert status_of(run) == "finished"
    assert types_of(run) == ["session_start", "session_stop"]


def test_only_the_runner_that_keeps_the_process_resumes_the_session(fleet: Fleet) -> None:
    runner, other = keeper(fleet), keeper(fleet, command="another")
    assert runner.runner_id != other.runner_id
    first = turn(fleet, runner, fleet.start())
    second = fleet.resume(first.session_id)
    assert fleet.poll(other) is None
    assert runner.runner_id in RunQueueState.load_queue_state(fleet.now).explain_waiting_run(second)
    assert turn(fleet, runner, second).status == "completed"
    assert status_of(first) == "idle"


def test_a_completion_that_overtakes_its_start_orders_no_stop(fleet: Fleet) -> None:
    runner = keeper(fleet)
    run = fleet.start()
    assert fleet.poll(runner) is not None
    runs.record_run_completed(run.run_id, runner, fleet.tick(), session_status="idle")
    runs.record_start_or_order_stop(run.run_id, runner, fleet.tick())
    assert (fleet.fresh(run).status, status_of(run)) == ("completed", "idle")
    assert fleet.fresh(run).started_at is not None
    assert types_of(run) == ["run_start", "run_completed"]
    assert not StopCommand.objects.exists()
    assert fleet.poll(runner) is None


def test_a_stop_during_a_turn_ends_as_stopped(fleet: Fleet) -> None:
    runner = keeper(fleet)
    run = fleet.running(runner, fleet.start())
    runs.request_session_stop(run.session_id, actor=OPERATOR, now=fleet.tick())
    assert fleet.poll(runner) == {"stop_runs": [run.run_id], "stop_sessions": [run.session_id]}
    runs.record_run_completed(run.run_id, runner, fleet.tick(), session_status="idle")
    runs.record_run_stopped(run.run_id, runner, fleet.tick())
    assert (fleet.fresh(run).status, status_of(run)) == ("stopped", "stopped")
    assert not LivingExecutor.objects.exists()
    assert list(Event.objects.filter(event_type="run_completed").values_list("reason", flat=True)) == [
        "stopped"
    ]


def test_an_idle_session_is_stopped_by_its_runner(fleet: Fleet) -> None:
    runner = keeper(fleet)
    run = turn(fleet, runner, fleet.start())
    stop = runs.request_session_stop(run.session_id, actor=OPERATOR, now=fleet.tick())
    assert (stop.status, stop.message) == ("stopping", "Stop command queued for idle session")
    answer = fleet.poll(runner)
    assert answer is not None
    assert answer["stop_sessions"] == [run.session_id]
    runs.executors.record_idle_executor_end(run.session_id, runner, "finished", fleet.tick())
    assert status_of(run) == "finished"
    assert not StopCommand.objects.exists()
    fleet.pass_time(20)
    assert fleet.poll(runner) is None


def test_a_stop_that_is_not_confirmed_is_told_again_and_taken_for_done(fleet: Fleet) -> None:
    runner = keeper(fleet)
    run = turn(fleet, runner, fleet.start())
    runs.request_session_stop(run.session_id, actor=OPERATOR, now=fleet.tick())
    assert fleet.poll(runner) is not None
    assert fleet.poll(runner) is None
    fleet.pass_time(16)
    assert fleet.poll(runner) is not None
    fleet.pass_time(61)
    assert status_of(run) == "stopped"
    assert not LivingExecutor.objects.exists()


def test_a_queued_resume_is_stopped_with_the_process(fleet: Fleet) -> None:
    runner = keeper(fleet)
    first = turn(fleet, runner, fleet.start())
    queued = fleet.resume(first.session_id)
    assert runs.request_session_stop(first.session_id, actor=OPERATOR, now=fleet.tick()).status == "stopping"
    assert fleet.fresh(queued).status == "stopped"
    runs.executors.record_idle_executor_end(first.session_id, runner, "finished", fleet.tick())
    assert status_of(first) == "finished"


def test_a_cancelled_resume_leaves_the_session_idle(fleet: Fleet) -> None:
    first = turn(fleet, keeper(fleet), fleet.start())
    queued = fleet.resume(first.session_id)
    runs.request_run_stop(queued.run_id, actor=OPERATOR, now=fleet.tick())
    assert status_of(first) == "idle"


def test_an_idle_session_is_not_deleted_under_its_process(fleet: Fleet) -> None:
    runner = keeper(fleet)
    run = turn(fleet, runner, fleet.start())
    with pytest.raises(Conflict, match="Stop session first"):
        sessions.remove_session(run.session_id, actor=OPERATOR, now=fleet.tick())
    runs.executors.record_idle_executor_end(run.session_id, runner, "finished", fleet.tick())
    sessions.remove_session(run.session_id, actor=OPERATOR, now=fleet.tick())


def test_the_end_of_a_process_is_its_own_runners_word(fleet: Fleet) -> None:
    runner, other = keeper(fleet), keeper(fleet, "other")
    run = turn(fleet, runner, fleet.start())
    with pytest.raises(Forbidden):
        runs.executors.record_idle_executor_end(run.session_id, other, "finished", fleet.tick())
    with pytest.raises(NotFound):
        runs.executors.record_idle_executor_end("ses_none", runner, "finished", fleet.tick())
    runs.executors.record_idle_executor_end(run.session_id, runner, "failed", fleet.tick())
    runs.executors.record_idle_executor_end(run.session_id, runner, "finished", fleet.tick())
    assert status_of(run) == "error"


def test_what_a_runner_kept_goes_with_it(fleet: Fleet) -> None:
    runner = keeper(fleet)
    idle, stopping = turn(fleet, runner, fleet.start()), turn(fleet, runner, fleet.start())
    runs.request_session_stop(stopping.session_id, actor=OPERATOR, now=fleet.tick())
    runners.delete_runner_and_recover_runs(runner.runner_id, "gone", fleet.tick())
    assert [status_of(idle), status_of(stopping)] == ["finished", "stopped"]
    resumed = fleet.resume(idle.session_id)
    assert fleet.running(keeper(fleet), resumed).status == "running"


def test_processes_of_a_runner_that_nobody_knows_are_given_up(fleet: Fleet) -> None:
    run = turn(fleet, keeper(fleet), fleet.start())
    Runner.objects.all().delete()  # as another program would
    housekeeping.run_housekeeping(fleet.tick())
    assert status_of(run) == "finished"


def test_a_runner_that_restarts_has_none_of_its_processes(fleet: Fleet) -> None:
    runner = keeper(fleet)
    run = turn(fleet, runner, fleet.start())
    runners.requeue_undelivered_poll_answer(runner.runner_id, None, fleet.tick())
    assert keeper(fleet).runner_id == runner.runner_id
    assert status_of(run) == "finished"


def test_a_failed_resume_ends_the_process(fleet: Fleet) -> None:
    runner = keeper(fleet)
    first = turn(fleet, runner, fleet.start())
    second = fleet.resume(first.session_id)
    assert fleet.poll(runner) is not None
    runs.record_run_failed(second.run_id, runner, "No live executor process", fleet.tick())
    assert status_of(first) == "error"
    assert not LivingExecutor.objects.exists()


def test_a_late_word_of_an_idle_sessions_process_does_not_make_it_run(fleet: Fleet) -> None:
    run = turn(fleet, keeper(fleet), fleet.start())
    sessions.bind_session_executor(
        run.session_id, executor_session_id="e", hostname="vm", executor_profile="p"
    )
    assert status_of(run) == "idle"


def test_a_parent_that_is_idle_hears_of_its_child_at_once(fleet: Fleet) -> None:
    runner = keeper(fleet)
    parent = turn(fleet, runner, fleet.start())
    child = fleet.start(parent_session_id=parent.session_id, execution_mode="async_callback")
    turn(fleet, runner, child)
    answer = fleet.poll(runner)
    assert answer is not None
    assert (answer["run"]["type"], answer["run"]["session_id"]) == ("resume_session", parent.session_id)


def test_a_second_runner_with_another_command_has_an_id_of_its_own_and_keeps_it(fleet: Fleet) -> None:
    first, second = keeper(fleet), keeper(fleet, command="other")
    assert first.runner_id != second.runner_id
    with pytest.raises(Conflict):
        keeper(fleet, command="other")
    runners.requeue_undelivered_poll_answer(second.runner_id, None, fleet.tick())
    assert keeper(fleet, command="other").runner_id == second.runner_id


def test_a_runner_whose_command_changed_while_it_was_away_is_the_same(fleet: Fleet) -> None:
    runner = keeper(fleet)
    runners.requeue_undelivered_poll_answer(runner.runner_id, None, fleet.tick())
    assert keeper(fleet, command="moved").runner_id == runner.runner_id
