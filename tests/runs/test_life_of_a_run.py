"""The state machine, move by move."""

from __future__ import annotations

import pytest

from coordinator.actions import runs
from coordinator.errors import BadRequest, Conflict, Forbidden, NotFound
from coordinator.models import AuditLog, Run, Session
from coordinator.runs.statuses import RESUME
from tests.runs.fleet import OPERATOR, Fleet


def test_a_start_makes_a_pending_session_and_run(fleet: Fleet) -> None:
    run = fleet.start("hello", project_dir="/p")
    assert (run.status, run.timeout_at, run.demands) == ("pending", None, None)
    assert Session.objects.get(pk=run.session_id).status == "pending"
    assert AuditLog.objects.get(event_type="RUN_CREATED").target_id == run.run_id


def test_a_run_is_claimed_started_and_completed(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    assert (run.status, run.runner_id, fleet.status(run.session_id)) == ("running", runner.pk, "running")
    fleet.complete(runner, run)
    assert fleet.fresh(run).status == "completed"
    assert fleet.status(run.session_id) == "finished"
    assert fleet.said(run.session_id) == ["session_start", "session_stop"]


def test_a_failed_run_leaves_its_session_in_error(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    fleet.fail(runner, run, "boom")
    assert (fleet.fresh(run).status, fleet.fresh(run).error) == ("failed", "boom")
    assert fleet.status(run.session_id) == "error"


def test_a_claimed_run_may_fail_before_it_starts(fleet: Fleet) -> None:
    runner, run = fleet.runner(), fleet.start(agent_name="unknown")
    fleet.poll(runner)
    fleet.fail(runner, run, "Blueprint not found: unknown")
    assert (fleet.fresh(run).status, fleet.fresh(run).started_at) == ("failed", None)


@pytest.mark.parametrize("end", ["complete", "fail", "stopped"])
@pytest.mark.parametrize("late", ["complete", "fail", "stopped"])
def test_an_end_is_final(fleet: Fleet, end: str, late: str) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    getattr(fleet, end)(runner, run)
    before, session = fleet.fresh(run), fleet.status(run.session_id)
    getattr(fleet, late)(runner, run)
    assert fleet.fresh(run).status == before.status
    assert fleet.fresh(run).completed_at == before.completed_at
    assert fleet.status(run.session_id) == session


def test_a_late_start_does_not_bring_an_ended_run_back_but_has_its_process_stopped(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    fleet.complete(runner, run)
    runs.record_start_or_order_stop(run.run_id, runner, fleet.tick())
    assert fleet.fresh(run).status == "completed"
    assert fleet.poll(runner) == {"stop_runs": [run.run_id], "stop_sessions": [run.session_id]}
    assert fleet.poll(runner) is None


def test_only_its_holder_reports_on_a_run(fleet: Fleet) -> None:
    holder, other = fleet.runner("a"), fleet.runner("b")
    run = fleet.running(holder, fleet.start())
    for report in (fleet.complete, fleet.fail, fleet.stopped):
        with pytest.raises(Forbidden):
            report(other, run)
    with pytest.raises(Forbidden):
        runs.record_start_or_order_stop(run.run_id, other, fleet.tick())
    assert fleet.fresh(run).status == "running"
    # Whatever the other has started for it is to end.
    assert fleet.poll(other) == {"stop_runs": [run.run_id], "stop_sessions": [run.session_id]}


def test_an_unknown_parent_is_refused_and_leaves_nothing_behind(fleet: Fleet) -> None:
    with pytest.raises(NotFound, match="Parent session not found"):
        fleet.start(parent_session_id="ses_none")
    assert not Session.objects.exists()
    assert not Run.objects.exists()
    fleet.start()


def test_an_unknown_session_cannot_be_resumed(fleet: Fleet) -> None:
    with pytest.raises(NotFound, match="Session not found"):
        fleet.resume("ses_none")
    with pytest.raises(BadRequest, match="session_id is required for resume_session"):
        runs.queue_start_or_resume_run(kind=RESUME, prompt="x", actor=OPERATOR, now=fleet.now)


def test_a_chosen_session_id_is_used_once(fleet: Fleet) -> None:
    assert fleet.start(session_id="mine").session_id == "mine"
    with pytest.raises(Conflict, match="Session 'mine' already exists"):
        fleet.start(session_id="mine")


def test_a_resume_returns_to_where_the_session_ran(fleet: Fleet) -> None:
    runner = fleet.runner()
    first = fleet.running(runner, fleet.start(agent_name="a", project_dir="/p"))
    Session.objects.filter(pk=first.session_id).update(hostname="vm", executor_profile="test-executor")
    fleet.complete(runner, first)
    run = fleet.resume(first.session_id)
    assert run.demands == {"hostname": "vm", "executor_profile": "test-executor", "tags": []}
    assert (run.agent_name, run.project_dir) == ("a", "/p")
    fleet.running(runner, run)
    assert Session.objects.get(pk=run.session_id).last_resumed_at == fleet.now


def test_a_session_runs_one_run_at_a_time(fleet: Fleet) -> None:
    runner = fleet.runner()
    first = fleet.running(runner, fleet.start())
    second, third = fleet.resume(first.session_id, "2"), fleet.resume(first.session_id, "3")
    assert fleet.poll(runner) is None
    assert fleet.status(first.session_id) == "running"
    fleet.complete(runner, first)
    assert fleet.status(first.session_id) == "pending"
    fleet.running(runner, second)
    assert fleet.poll(runner) is None
    fleet.complete(runner, second)
    fleet.running(runner, third)


def test_runs_are_taken_in_the_order_in_which_they_were_ordered(fleet: Fleet) -> None:
    ordered = [fleet.start(str(n)).run_id for n in range(5)]
    taken = []
    for n in range(5):
        answer = fleet.poll(fleet.runner(f"host-{n}"))
        assert answer is not None
        taken.append(answer["run"]["run_id"])
    assert taken == ordered
