from __future__ import annotations

import pytest

from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.errors import BadRequest
from coordinator.models import StopCommand
from tests.runs.fleet import Fleet
from tests.timelines import add_events, make_session


def test_a_pending_run_is_cancelled_at_once(fleet: Fleet) -> None:
    run = fleet.start()
    stop = fleet.stop(run)
    assert (stop.status, stop.message) == ("stopped", "Run cancelled before execution")
    assert fleet.status(run.session_id) == "stopped"


def test_a_running_run_is_stopped_by_its_runner(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    assert fleet.stop(run).status == "stopping"
    assert fleet.status(run.session_id) == "stopping"
    assert fleet.poll(runner) == {"stop_runs": [run.run_id], "stop_sessions": [run.session_id]}
    assert fleet.poll(runner) is None
    fleet.stopped(runner, run)
    assert (fleet.fresh(run).status, fleet.status(run.session_id)) == ("stopped", "stopped")
    assert not StopCommand.objects.exists()


def test_what_has_ended_or_is_ending_cannot_be_stopped(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    fleet.stop(run)
    with pytest.raises(BadRequest, match=r"RunStatus\.STOPPING"):
        fleet.stop(run)
    fleet.stopped(runner, run)
    with pytest.raises(BadRequest, match=r"Run cannot be stopped \(status: RunStatus.STOPPED\)"):
        fleet.stop(run)


def test_the_stop_of_a_claimed_run_is_told_again_once_it_has_a_process(fleet: Fleet) -> None:
    runner, run = fleet.runner(), fleet.start()
    fleet.poll(runner)
    fleet.stop(run)
    assert fleet.poll(runner) is not None  # the runner knows no such process yet, and drops it
    runs.record_start_or_order_stop(run.run_id, runner, fleet.tick())
    assert fleet.fresh(run).status == "stopping"
    assert fleet.poll(runner) == {"stop_runs": [run.run_id], "stop_sessions": [run.session_id]}


def test_a_stop_that_nobody_confirms_ends_anyway(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    fleet.stop(run)
    fleet.poll(runner)
    fleet.pass_time(20)
    assert fleet.poll(runner) is not None  # told again
    fleet.pass_time(61)
    assert (fleet.fresh(run).status, fleet.fresh(run).error) == ("stopped", runs.UNCONFIRMED_STOP)
    assert fleet.status(run.session_id) == "stopped"


def test_a_resumed_session_stops_its_latest_run(fleet: Fleet) -> None:
    runner = fleet.runner()
    first = fleet.running(runner, fleet.start())
    fleet.complete(runner, first)
    second = fleet.running(runner, fleet.resume(first.session_id))
    stop = fleet.stop_session(first.session_id)
    assert (stop.run_id, stop.status) == (second.run_id, "stopping")
    assert fleet.poll(runner) == {"stop_runs": [second.run_id], "stop_sessions": [first.session_id]}


def test_stopping_a_session_cancels_what_is_queued_behind(fleet: Fleet) -> None:
    runner = fleet.runner()
    first = fleet.running(runner, fleet.start())
    queued = fleet.resume(first.session_id)
    assert fleet.stop_session(first.session_id).run_id == first.run_id
    assert fleet.fresh(queued).status == "stopped"
    fleet.stopped(runner, first)
    assert fleet.status(first.session_id) == "stopped"
    assert fleet.poll(runner) is None


def test_stopping_a_session_twice_or_after_its_end_says_so(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    fleet.stop_session(run.session_id)
    assert fleet.stop_session(run.session_id).message == "Session is already being stopped"
    fleet.stopped(runner, run)
    assert fleet.stop_session(run.session_id).message == "Session already stopped"


def test_a_run_that_failed_while_it_was_stopped_counts_as_stopped(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    fleet.stop(run)
    fleet.fail(runner, run, "terminated")
    assert (fleet.fresh(run).status, fleet.status(run.session_id)) == ("stopped", "stopped")


def test_a_stop_that_could_not_be_sent_is_told_on_the_next_poll(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    fleet.stop(run)
    lost = fleet.poll(runner)
    runners.requeue_undelivered_poll_answer(runner.runner_id, lost, fleet.tick())
    assert fleet.poll(runner) == lost


def test_a_run_without_a_runner_to_stop_it_is_stopped_at_once(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    runner.delete()
    assert fleet.stop(run).status == "stopped"


@pytest.mark.parametrize(
    ("end", "status"), [("complete", "finished"), ("fail", "error"), ("stopped", "stopped")]
)
def test_a_cancelled_resume_leaves_the_session_as_its_latest_run_did(
    fleet: Fleet, end: str, status: str
) -> None:
    runner = fleet.runner()
    first = fleet.running(runner, fleet.start())
    getattr(fleet, end)(runner, first)
    for _ in range(2):
        queued = fleet.resume(first.session_id)
        assert fleet.status(first.session_id) == "pending"
        fleet.stop(queued)
        assert (fleet.fresh(queued).status, fleet.status(first.session_id)) == ("stopped", status)


def test_a_session_waits_until_its_last_queued_resume_is_cancelled(fleet: Fleet) -> None:
    runner = fleet.runner()
    first = fleet.running(runner, fleet.start())
    fleet.complete(runner, first)
    one, other = fleet.resume(first.session_id), fleet.resume(first.session_id)
    fleet.stop(one)
    assert fleet.status(first.session_id) == "pending"
    fleet.stop(other)
    assert fleet.status(first.session_id) == "finished"


def test_a_resume_that_was_claimed_and_never_began_leaves_the_session_as_it_was(fleet: Fleet) -> None:
    runner = fleet.runner()
    first = fleet.running(runner, fleet.start())
    fleet.complete(runner, first)
    claimed = fleet.resume(first.session_id)
    assert fleet.poll(runner) is not None
    fleet.stop(claimed)
    assert fleet.status(first.session_id) == "stopping"
    fleet.stopped(runner, claimed)
    assert fleet.status(first.session_id) == "finished"


def test_a_resume_that_nobody_took_leaves_the_session_in_error_also_after_a_cancelled_one(
    fleet: Fleet,
) -> None:
    runner = fleet.runner()
    first = fleet.running(runner, fleet.start())
    fleet.complete(runner, first)
    fleet.resume(first.session_id, additional_demands={"tags": ["nobody"]})
    fleet.pass_time(301)
    assert fleet.status(first.session_id) == "error"
    fleet.stop(fleet.resume(first.session_id))
    assert fleet.status(first.session_id) == "error"


@pytest.mark.parametrize(
    ("event_types", "status"),
    [
        (["session_start", "session_stop"], "finished"),
        (["session_start", "session_stop", "session_start"], "stopped"),
        ([], "stopped"),
    ],
)
def test_a_cancelled_resume_of_a_session_without_runs_goes_by_its_events(
    fleet: Fleet, event_types: list[str], status: str
) -> None:
    session = make_session(status=status)
    add_events(session, [{"event_type": event_type} for event_type in event_types])
    fleet.stop(fleet.resume(session.pk))
    assert fleet.status(session.pk) == status


def test_resumes_that_wait_leave_a_session_running_whose_agent_is_at_work_without_a_run(fleet: Fleet) -> None:
    session = make_session(status="running", executor_session_id="x", hostname="vm")
    one, other = fleet.resume(session.pk), fleet.resume(session.pk)
    for queued in (one, other):
        assert fleet.status(session.pk) == "running"
        fleet.stop(queued)
    assert fleet.status(session.pk) == "running"
    failed = fleet.resume(session.pk)
    fleet.pass_time(301)
    assert (fleet.fresh(failed).status, fleet.status(session.pk)) == ("failed", "running")


def test_stopping_a_session_whose_agent_is_at_work_without_a_run_stops_it_and_what_is_queued(
    fleet: Fleet,
) -> None:
    session = make_session(status="running", executor_session_id="x")
    queued = fleet.resume(session.pk)
    fleet.stop_session(session.pk)
    assert (fleet.fresh(queued).status, fleet.status(session.pk)) == ("stopped", "stopped")
