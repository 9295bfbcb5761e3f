"""Tests of what ends a turn or a session that people end, of who chooses a mode, and of the audit of rulings."""

from __future__ import annotations

from contextlib import suppress

import pytest

from coordinator.actions import runs
from coordinator.actions.driving import permissions
from coordinator.actions.driving.permissions import PermissionQuestion
from coordinator.actions.sessions import notes
from coordinator.dialects.acp import SPEECH
from coordinator.errors import Forbidden
from coordinator.identity.actors import Actor
from coordinator.models import AuditLog, Blueprint, Run
from coordinator.policy.rules.tool_rules import DENY, Ruling
from tests.driving.recorded import OFFERS, PERSISTENT, numbered
from tests.driving.test_taking import driving, tell
from tests.runs.fleet import OPERATOR, Fleet
from tests.runs.test_procedural_agents import brings

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def test_a_program_does_not_choose_a_mode_by_way_of_a_script_that_a_runner_brings(fleet: Fleet) -> None:
    fleet.runner("scripts", **brings({"name": "echo"}))
    driver = fleet.runner("scripts", executor=PERSISTENT, offers=OFFERS)
    wanted = {"executor_type": "autonomous"}
    parameters = {"prompt": "go", "agent": "gemini", "mode": "yolo"}
    with suppress(Forbidden):
        fleet.start(agent_name="echo", parameters=parameters, additional_demands=wanted)
    assert fleet.poll(driver) is None


def test_a_program_does_not_choose_a_mode_by_way_of_a_blueprint_of_a_script(fleet: Fleet) -> None:
    Blueprint.objects.create(
        name="job",
        description="",
        type="procedural",
        demands={"executor_type": "autonomous"},
        created_at=fleet.now,
        modified_at=fleet.now,
    )
    driver = fleet.runner("laptop", executor=PERSISTENT, offers=OFFERS)
    with suppress(Forbidden):
        fleet.start(agent_name="job", parameters={"prompt": "go", "agent": "gemini", "mode": "yolo"})
    assert fleet.poll(driver) is None


def test_each_ruling_of_a_call_that_changed_is_in_the_audit_log(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    ruling = Ruling(DENY, "rule", "No pushes.")
    no = ({"optionId": "n", "name": "No", "kind": "reject_once"},)
    for command in ("git push origin main", "git push origin main", "git push --force origin production"):
        call = {"toolCallId": "c1", "kind": "execute", "title": "x", "rawInput": {"command": command}}
        question = PermissionQuestion(run.session_id, run.run_id, call, [], no)
        request = permissions.record_and_build_question_call(question, runner, SPEECH, fleet.tick())
        permissions.record_and_build_ruling_answer(
            request, ruling, question, actor=OPERATOR, now=fleet.tick()
        )
    assert AuditLog.objects.filter(event_type="TOOL_CALL_DENIED").count() == 2


def test_a_note_does_not_restart_a_session_that_was_ended(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    tell(
        fleet,
        runner,
        run,
        [*numbered([{"sessionUpdate": "signalbox/turn_started", "runId": run.run_id, "prompt": []}])],
    )
    notes.write_note(run.session_id, "Use tabs.", actor=Actor("user", "anna"), now=fleet.tick())
    fleet.stop_session(run.session_id)
    assert fleet.poll(runner) == {"stop_runs": [run.run_id], "stop_sessions": [run.session_id]}
    tell(
        fleet,
        runner,
        run,
        [*numbered([{"sessionUpdate": "signalbox/turn_ended", "stopReason": "cancelled"}], 2)],
    )
    fleet.stopped(runner, run)
    assert not Run.objects.filter(status="pending").exists()
    assert fleet.status(run.session_id) == "stopped"
    assert fleet.poll(runner) is None


def test_a_process_is_ended_though_its_turn_ended_as_its_session_was(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    fleet.stop_session(run.session_id)
    runs.record_run_completed(run.run_id, runner, fleet.tick(), session_status="idle")
    answer = fleet.poll(runner)
    assert answer is not None
    assert answer["stop_sessions"] == [run.session_id]


def test_a_turn_that_is_stopped_before_it_has_started_leaves_the_agent(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    runs.record_run_completed(run.run_id, runner, fleet.tick(), session_status="idle")
    later = fleet.resume(run.session_id)
    assert (fleet.poll(runner) or {})["run"]["run_id"] == later.run_id
    fleet.stop(later)
    assert fleet.poll(runner) == {"cancel_runs": [later.run_id]}
    runs.record_start_or_order_stop(later.run_id, runner, fleet.tick())
    assert fleet.poll(runner) == {"cancel_runs": [later.run_id]}
    runs.record_run_completed(later.run_id, runner, fleet.tick(), session_status="idle")
    assert (fleet.fresh(later).status, fleet.status(run.session_id)) == ("stopped", "idle")
