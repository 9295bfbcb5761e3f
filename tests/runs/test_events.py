"""What executors' own start and end events do, beside what runners report."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from coordinator.actions import runs
from coordinator.actions.sessions import sessions
from coordinator.models import Session
from tests.runs.fleet import NOON, Fleet


@dataclass(frozen=True)
class Said:
    event_type: str


def note(fleet: Fleet, session_id: str, event_type: str) -> bool:
    return sessions.advance_session_and_decide_storage(session_id, Said(event_type), fleet.tick())


@pytest.mark.parametrize("event_type", ["session_start", "run_start"])
def test_a_start_that_the_coordinator_has_written_is_not_stored_again(fleet: Fleet, event_type: str) -> None:
    run = fleet.running(fleet.runner(), fleet.start())
    assert fleet.said(run.session_id) == ["session_start"]
    assert note(fleet, run.session_id, event_type) is False


def test_an_executor_that_is_faster_than_its_runner_is_believed(fleet: Fleet) -> None:
    runner, run = fleet.runner(), fleet.start()
    fleet.poll(runner)
    assert note(fleet, run.session_id, "session_start") is True
    runs.add_run_event(run, "session_start", fleet.now)
    runs.record_start_or_order_stop(run.run_id, runner, fleet.tick())
    assert fleet.said(run.session_id) == ["session_start"]


@pytest.mark.parametrize("event_type", ["session_stop", "run_completed"])
def test_an_end_finishes_the_session_and_the_report_adds_no_second(fleet: Fleet, event_type: str) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    assert note(fleet, run.session_id, event_type) is True
    runs.add_run_event(run, event_type, fleet.now)
    assert fleet.status(run.session_id) == "finished"
    fleet.complete(runner, run)
    assert fleet.said(run.session_id) == ["session_start", event_type]


def test_last_words_do_not_finish_a_session_that_is_stopped(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    fleet.stop(run)
    note(fleet, run.session_id, "session_stop")
    assert fleet.status(run.session_id) == "stopping"
    fleet.stopped(runner, run)
    note(fleet, run.session_id, "session_stop")
    assert fleet.status(run.session_id) == "stopped"


def test_a_session_that_no_runner_started_follows_its_events(fleet: Fleet) -> None:
    Session.objects.create(session_id="own", status="pending", created_at=NOON)
    for event_type, status in [("session_start", "running"), ("session_stop", "finished")] * 2:
        assert note(fleet, "own", event_type) is True
        assert fleet.status("own") == status
    assert Session.objects.get(pk="own").last_resumed_at is not None


def test_binding_makes_a_session_run_unless_it_is_being_stopped(fleet: Fleet) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    fleet.stop(run)
    session = sessions.bind_session_executor(
        run.session_id, executor_session_id="e", hostname="vm", executor_profile="p", project_dir="/w"
    )
    assert (session.status, session.project_dir) == ("stopping", "/w")


@pytest.mark.parametrize("end", ["complete", "fail", "stopped"])
def test_late_words_of_an_ended_process_do_not_make_its_session_run_again(fleet: Fleet, end: str) -> None:
    runner = fleet.runner()
    run = fleet.running(runner, fleet.start())
    getattr(fleet, end)(runner, run)
    before = fleet.status(run.session_id)
    sessions.bind_session_executor(
        run.session_id, executor_session_id="e", hostname="vm", executor_profile="p"
    )
    assert fleet.status(run.session_id) == before
    assert note(fleet, run.session_id, "session_start") is True
    assert fleet.status(run.session_id) == before
