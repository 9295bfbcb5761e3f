from __future__ import annotations

import pytest

from coordinator.actions import runs
from coordinator.models import Callback, Event, EventContext, Run, Runner, Session
from coordinator.runs.statuses import RESUME
from tests.runs.fleet import Fleet


@pytest.fixture
def runner(fleet: Fleet) -> Runner:
    return fleet.runner()


@pytest.fixture
def parent(fleet: Fleet, runner: Runner) -> str:
    """The id of a finished session that ran on host vm."""
    run = fleet.running(runner, fleet.start("parent"))
    Session.objects.filter(pk=run.session_id).update(hostname="vm", executor_profile="test-executor")
    fleet.complete(runner, run)
    return run.session_id


def child(fleet: Fleet, runner: Runner, parent: str) -> Run:
    run = fleet.start("child", parent_session_id=parent, execution_mode="async_callback")
    return fleet.running(runner, run)


def say(fleet: Fleet, session_id: str, text: str) -> None:
    event = Event.objects.create(
        session_id=session_id,
        event_type="message",
        timestamp="t",
        role="assistant",
        content=[{"type": "text", "text": text}],
    )
    EventContext.objects.create(
        event=event, session_id=session_id, instant_us=event.pk, received_at=fleet.now
    )


def resumed(parent: str) -> list[Run]:
    return list(Run.objects.filter(session_id=parent, type=RESUME).order_by("created_at"))


def test_a_finished_child_resumes_its_parent_with_its_result(
    fleet: Fleet, runner: Runner, parent: str
) -> None:
    run = child(fleet, runner, parent)
    say(fleet, run.session_id, "done")
    fleet.complete(runner, run)
    (back,) = resumed(parent)
    assert back.prompt == (
        f'The child agent session "{run.session_id}" has completed.\n\n## Child Result\n\ndone\n\n'
        "Please continue with the orchestration based on this result."
    )
    # It goes where the parent's executor keeps its state.
    assert back.demands == {"hostname": "vm", "executor_profile": "test-executor", "tags": []}
    assert fleet.status(parent) == "pending"


def test_a_failed_child_says_why(fleet: Fleet, runner: Runner, parent: str) -> None:
    run = child(fleet, runner, parent)
    fleet.fail(runner, run, "boom")
    (back,) = resumed(parent)
    assert back.prompt == (
        f'The child agent session "{run.session_id}" has failed.\n\n## Error\n\nboom\n\n'
        "Please handle this failure and continue with the orchestration."
    )


def test_a_stopped_child_says_so(fleet: Fleet, runner: Runner, parent: str) -> None:
    run = child(fleet, runner, parent)
    fleet.stop(run)
    fleet.stopped(runner, run)
    assert "Session was manually stopped" in resumed(parent)[0].prompt


def test_a_child_that_nobody_ran_says_so(fleet: Fleet, parent: str) -> None:
    fleet.start(
        parent_session_id=parent, execution_mode="async_callback", additional_demands={"tags": ["nobody"]}
    )
    fleet.pass_time(301)
    assert runs.NOBODY_CAME in resumed(parent)[0].prompt


def test_a_report_that_comes_twice_calls_back_once(fleet: Fleet, runner: Runner, parent: str) -> None:
    run = child(fleet, runner, parent)
    fleet.complete(runner, run)
    fleet.complete(runner, run)
    fleet.fail(runner, run)
    assert len(resumed(parent)) == 1
    assert Callback.objects.count() == 1


def test_children_of_a_busy_parent_wait_and_are_told_as_one(
    fleet: Fleet, runner: Runner, parent: str
) -> None:
    at_work = fleet.running(runner, fleet.resume(parent, "work"))
    children = [child(fleet, runner, parent) for _ in range(3)]
    for n, run in enumerate(children[:2]):
        say(fleet, run.session_id, f"result {n}")
        fleet.complete(runner, run)
    fleet.fail(runner, children[2], "boom")
    assert resumed(parent) == [at_work]
    fleet.complete(runner, at_work)
    (_, back) = resumed(parent)
    ids = [run.session_id for run in children]
    assert back.prompt == (
        "Multiple child agent sessions have completed.\n\n"
        f"### Child: {ids[0]} (completed)\n\nresult 0\n\n---\n\n"
        f"### Child: {ids[1]} (completed)\n\nresult 1\n\n---\n\n"
        f"### Child: {ids[2]} (FAILED)\n\nboom\n\n"
        "Please continue with the orchestration based on these results."
    )


@pytest.mark.parametrize("end", ["fail", "stopped"])
def test_a_parent_that_failed_or_was_stopped_is_still_told(
    fleet: Fleet, runner: Runner, parent: str, end: str
) -> None:
    run = child(fleet, runner, parent)
    getattr(fleet, end)(runner, fleet.running(runner, fleet.resume(parent)))
    fleet.complete(runner, run)
    assert len(resumed(parent)) == 2


def test_stopping_a_parent_does_not_resume_it_at_once(fleet: Fleet, runner: Runner, parent: str) -> None:
    at_work = fleet.running(runner, fleet.resume(parent))
    fleet.complete(runner, child(fleet, runner, parent))
    fleet.stop(at_work)
    fleet.stopped(runner, at_work)
    assert resumed(parent) == [at_work]
    again = fleet.running(runner, fleet.resume(parent))
    fleet.complete(runner, again)
    assert "has completed" in resumed(parent)[-1].prompt


@pytest.mark.parametrize("mode", ["sync", "async_poll"])
def test_other_modes_do_not_call_back(fleet: Fleet, runner: Runner, parent: str, mode: str) -> None:
    run = fleet.running(runner, fleet.start(parent_session_id=parent, execution_mode=mode))
    fleet.complete(runner, run)
    assert resumed(parent) == []


def test_a_parent_that_is_gone_hears_nothing(fleet: Fleet, runner: Runner, parent: str) -> None:
    run = child(fleet, runner, parent)
    Run.objects.filter(session_id=parent).delete()
    Session.objects.filter(pk=parent).delete()
    fleet.complete(runner, run)
    assert fleet.fresh(run).status == "completed"
