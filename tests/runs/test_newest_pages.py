"""What pages show of the newest runners: idle sessions with their process, procedural agents and their results."""

from __future__ import annotations

import pytest
from django.urls import reverse
from django.utils import timezone

from coordinator.actions import runs
from coordinator.actions.sessions import events
from coordinator.models import Run, Runner, Session
from coordinator.sessions.events import NewEvent
from tests.people import signed_in
from tests.runs.fleet import Fleet
from tests.runs.test_procedural_agents import ECHO, brings

pytestmark = pytest.mark.django_db

NEW = "runs:new"


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.now = timezone.now()  # pages tell who is alive by the clock
    return fleet


@pytest.fixture
def idle(fleet: Fleet) -> tuple[Runner, Run]:
    """A session whose process waits."""
    runner = fleet.runner(
        "build-7", executor={"type": "autonomous", "command": "c", "lifecycle": "persistent"}
    )
    run = fleet.running(runner, fleet.start())
    runs.record_run_completed(run.run_id, runner, fleet.tick(), session_status="idle")
    return runner, run


def test_an_idle_session_says_where_its_process_waits_and_can_be_stopped(idle: tuple[Runner, Run]) -> None:
    runner, run = idle
    approver = signed_in("approver")
    page = approver.get(reverse("sessions:detail", args=[run.session_id])).content.decode()
    assert "Idle" in page
    assert "waiting for the next prompt" in page
    assert "Waiting for the agent" not in page
    assert f'{reverse("runners:list")}#{runner.runner_id}">build-7</a>' in page
    assert reverse("sessions:stop", args=[run.session_id]) in page
    answer = approver.post(reverse("sessions:stop", args=[run.session_id]), follow=True)
    assert "Stop command queued for idle session" in answer.content.decode()
    assert Session.objects.get(pk=run.session_id).status == "stopping"


def test_idle_sessions_are_counted_and_found(idle: tuple[Runner, Run]) -> None:
    _, run = idle
    viewer = signed_in("viewer")
    assert run.session_id in viewer.get(reverse("sessions:list") + "?status=idle").content.decode()
    assert run.session_id not in viewer.get(reverse("sessions:list") + "?status=running").content.decode()
    assert viewer.get(reverse("overview")).status_code == 200


def test_a_procedural_agents_arguments_and_result_are_shown(fleet: Fleet) -> None:
    runner = fleet.runner("scripts", **brings(ECHO))
    arguments = {"stdout": "Hello there"}
    run = fleet.start(prompt="", parameters=arguments, agent_name="echo")
    fleet.running(runner, run)
    data = {"return_code": 0, "stdout": "forty-two"}
    said = NewEvent(
        event_type="result", session_id=run.session_id, timestamp=fleet.tick().isoformat(), result_data=data
    )
    events.record_events([said], fleet.tick())
    runs.record_run_completed(run.run_id, runner, fleet.tick(), session_status="finished")
    viewer = signed_in("viewer")
    assert "Hello there" in viewer.get(reverse("runs:list")).content.decode()
    page = viewer.get(reverse("sessions:detail", args=[run.session_id])).content.decode()
    assert "forty-two" in page
    assert "result_data" not in page
    runners = viewer.get(reverse("runners:list")).content.decode()
    assert "procedural" in runners
    assert ">echo</span>" in runners


def test_a_person_starts_a_procedural_agent_with_arguments(fleet: Fleet) -> None:
    fleet.runner("scripts", **brings(ECHO))
    approver = signed_in("approver")
    assert 'value="echo"' in approver.get(reverse(NEW)).content.decode()
    refused = approver.post(reverse(NEW), {"agent_name": "echo", "parameters": '{"bogus": 1}'})
    assert (refused.status_code, "&#x27;bogus&#x27; was unexpected" in refused.content.decode()) == (
        422,
        True,
    )
    approver.post(reverse(NEW), {"agent_name": "echo", "parameters": '{"stdout": "x"}'})
    assert Run.objects.get().ordered_with.parameters == {"stdout": "x"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"agent_name": ""}, "Say what the agent should do"),
        ({"parameters": "[1]"}, "Arguments have names"),
        ({"parameters": "{"}, "Enter a valid JSON"),
    ],
)
def test_an_order_without_what_the_agent_needs_is_sent_back(given: dict[str, str], says: str) -> None:
    answer = signed_in("approver").post(reverse(NEW), given)
    assert (answer.status_code, says in answer.content.decode()) == (422, True)
    assert not Run.objects.exists()
