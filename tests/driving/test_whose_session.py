"""Which session an agent's words belong to: a runner's while it drives it, and never another's by an id alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from coordinator.actions import runs
from coordinator.actions.sessions import reported_sessions
from coordinator.dialects.claude_code import DIALECT
from coordinator.dialects.hooks import AgentHook
from coordinator.edge.hooks.recorder import HookRecorder
from coordinator.edge.ingest.write_queue import MakeEvents, WriteResult
from coordinator.errors import BadRequest, Forbidden, NotFound
from coordinator.identity.keys import LOCAL_PROGRAM, KeyIdentity
from coordinator.models import Blueprint, DrivenSession, LivingExecutor, Session
from coordinator.sessions.events import NewEvent, RecordedEvent
from coordinator.sessions.reports import RecordedHookSession, SessionLocation
from tests.driving.recorded import OFFERS, PERSISTENT, numbered
from tests.driving.test_taking import driving, tell
from tests.runs.fleet import Fleet

OWN = "0b2f6c0e-1111-4222-8333-444455556666"
AGENT = {"sessionUpdate": "signalbox/agent", "agent": "claude", "agentSessionId": OWN}
SOMEBODY = KeyIdentity(id=7, name="somebody", scopes=frozenset({"agent"}))


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def heard(fleet: Fleet, by: KeyIdentity, driven: str | None = None) -> RecordedHookSession:
    where = SessionLocation("/home/dev", profile="claude-code", by=by, driven=driven)
    return reported_sessions.find_or_create_reported_session(OWN, where, fleet.tick())


@pytest.mark.django_db
def test_an_agent_that_is_taken_up_in_a_terminal_is_its_runners_no_more(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    tell(fleet, runner, run, [*numbered([AGENT])])
    assert heard(fleet, SOMEBODY).driven
    runs.record_run_completed(run.run_id, runner, fleet.tick(), session_status="idle")
    assert heard(fleet, SOMEBODY).driven  # its agent waits for the next prompt
    LivingExecutor.objects.all().delete()
    assert heard(fleet, SOMEBODY)[::2] == (run.session_id, False)
    assert heard(fleet, SOMEBODY, driven=run.session_id).driven


@pytest.mark.django_db
def test_a_session_that_the_runners_own_key_has_begun_is_joined(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    begun = heard(fleet, LOCAL_PROGRAM)
    tell(fleet, runner, run, [*numbered([AGENT])])
    assert not Session.objects.filter(pk=begun.session_id).exists()
    assert Session.objects.get(pk=run.session_id).executor_session_id == OWN


@pytest.mark.django_db
def test_no_agent_takes_a_session_by_saying_its_id(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    begun = heard(fleet, SOMEBODY)
    tell(fleet, runner, run, [*numbered([AGENT])])
    assert Session.objects.get(executor_session_id=OWN).pk == begun.session_id
    assert heard(fleet, SOMEBODY)[:3] == begun[:3]
    assert DrivenSession.objects.get(pk=run.session_id).agent_session_id is None


@pytest.mark.django_db
def test_no_agent_takes_the_id_of_another_driven_session(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    tell(fleet, runner, run, [*numbered([AGENT])])
    other = fleet.runner("other", executor=PERSISTENT, offers=OFFERS)
    second = fleet.running(other, fleet.start(parameters={"prompt": "hello", "agent": "claude"}))
    tell(fleet, other, second, [*numbered([AGENT])])
    assert DrivenSession.objects.get(agent_session_id=OWN).pk == run.session_id
    assert Session.objects.get(executor_session_id=OWN).pk == run.session_id


@pytest.mark.django_db
def test_no_schema_of_a_blueprint_lets_a_program_choose_what_people_choose(fleet: Fleet) -> None:
    now = fleet.tick()
    Blueprint.objects.create(
        name="builder", description="", parameters_schema={"type": "object"}, created_at=now, modified_at=now
    )
    for chosen in ("mode", "config"):
        with pytest.raises(Forbidden):
            fleet.start(agent_name="builder", parameters={"prompt": "hello", chosen: "yolo"})
    with pytest.raises(BadRequest, match="agent_session_id"):
        fleet.start(agent_name="builder", parameters={"prompt": "hello", "agent_session_id": OWN})


class Joined:
    """A writer whose session a runner's has just taken in: the first write finds it gone."""

    def __init__(self) -> None:
        self.locations: list[SessionLocation] = []
        self.written: list[str] = []

    def found(self, _executor_id: str, where: SessionLocation, _now: datetime) -> RecordedHookSession:
        self.locations.append(where)
        again = len(self.locations) > 1
        return RecordedHookSession("ses_driven" if again else "ses_begun", complete=True, driven=again)

    async def perform_in_transaction(self, work: Any, **_how: Any) -> Any:
        return work()

    async def write_and_read_back(
        self, items: Sequence[NewEvent] = (), *, make: MakeEvents | None = None, **_how: Any
    ) -> WriteResult:
        made, items = make() if make is not None else (None, items)
        if items and items[0].session_id == "ses_begun":
            return WriteResult([NotFound("Session not found") for _ in items], made)
        self.written += [one.event_type for one in items]
        return WriteResult([RecordedEvent(1) for _ in items], made)


def test_what_the_runner_tells_is_not_written_again_once_its_session_is_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> Joined:
        writer = Joined()
        monkeypatch.setattr(reported_sessions, "reopen_or_create_session", writer.found)
        recorder = HookRecorder(writer, DIALECT)  # type: ignore[arg-type]
        hook = AgentHook("PreToolUse", OWN, {"tool_name": "Bash", "tool_use_id": "x"}, "2026-11-21T10:00:00Z")
        await recorder.record_hook_events(hook, SessionLocation(by=SOMEBODY, driven="ses_driven"), 10)
        compact = AgentHook("PreCompact", OWN, {"trigger": "auto"}, "2026-11-21T10:00:01Z")
        await recorder.record_hook_events(compact, SessionLocation(by=SOMEBODY, driven="ses_driven"), 10)
        return writer

    writer = asyncio.run(work())
    assert writer.written == ["PreCompact"]
    assert [one.driven for one in writer.locations] == ["ses_driven"] * 3
