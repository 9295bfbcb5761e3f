"""What a runner tells of a driven session makes its timeline: recordings of the real agents, told once and twice."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.actions.driving import permissions
from coordinator.actions.driving.applying import apply_updates_return_next_number
from coordinator.dialects.acp import SPEECH, build_acp_call, unwrap_shell_command
from coordinator.errors import Forbidden
from coordinator.models import Draft, DrivenCall, DrivenSession, Event, EventContext, Run, Runner, Session
from coordinator.policy.requests import agent_options
from coordinator.policy.rules.tool_rules import NO_OPINION
from coordinator.sessions.driven_agent_updates import DrivenAgentUpdate
from coordinator.sessions.timeline import CallRow, SessionTimeline, load_window_rows
from tests.driving.recorded import AGENTS, OFFERS, PERSISTENT, numbered, recording
from tests.runs.fleet import OPERATOR, Fleet

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def driving(fleet: Fleet, agent: str = "claude") -> tuple[Runner, Run]:
    """A runner that drives agents, and a run that it has started."""
    runner = fleet.runner(executor=PERSISTENT, offers=OFFERS)
    order = fleet.start("please work", parameters={"prompt": "please work", "agent": agent})
    return runner, fleet.running(runner, order)


def updates_of(posted: list[dict[str, Any]]) -> list[DrivenAgentUpdate]:
    told = []
    for one in posted:
        fields = dict(one["update"])
        told.append(DrivenAgentUpdate(one["n"], one["at"], fields.pop("sessionUpdate"), fields))
    return told


def tell(fleet: Fleet, runner: Runner, run: Run, posted: list[dict[str, Any]]) -> int:
    return apply_updates_return_next_number(
        run.session_id, runner, updates_of(posted), run_id=run.run_id, speech=SPEECH, now=fleet.tick()
    )


def calls_of(session_id: str) -> list[CallRow]:
    timeline = SessionTimeline(session_id)
    rows = load_window_rows(timeline, timeline.read_first_events(200), Session.objects.get(pk=session_id))
    return [row for row in rows if isinstance(row, CallRow)]


# By recording: each call's tool, what rules look at in its input, and how it ended.
CALLS = {
    "claude": [
        ("Bash", "ls -la && echo hello-from-bash", "done"),
        ("Write", "/home/dev/project/out.txt", "done"),
        ("Bash", "git push origin main", "failed"),
        ("Read", "/home/dev/project/out.txt", "done"),
    ],
    "codex": [
        ("Bash", "List files", "done"),
        ("Bash", "git push", "failed"),
        ("Think", None, "failed"),
    ],
    "codex-workspace-write": [("Bash", "List files", "done"), ("Bash", "git push", "failed")],
    "gemini": [
        ("run_shell_command", "ls -la", "done"),
        ("write_file", "/home/dev/project/g.txt", "done"),
        ("run_shell_command", "git push", "done"),
    ],
    "opencode": [("bash", "ls -la", "done"), ("bash", "git push", "done")],
}


@pytest.mark.parametrize("name", AGENTS)
def test_a_recorded_turn_makes_its_timeline_and_told_twice_adds_nothing(name: str, fleet: Fleet) -> None:
    told = recording(name)
    runner, run = driving(fleet, told.agent)
    assert tell(fleet, runner, run, told.updates) == len(told.updates) + 1
    shown = calls_of(run.session_id)
    about = [
        next(
            (str(value) for value in (one.event_with_tool_name_and_input.tool_input.value or {}).values()),
            None,
        )
        if one.event_with_tool_name_and_input.tool_input
        and one.event_with_tool_name_and_input.tool_name != "Think"
        else None
        for one in shown
    ]
    assert [
        (one.event_with_tool_name_and_input.tool_name, said, one.call_state)
        for one, said in zip(shown, about, strict=True)
    ] == CALLS[name]
    says = Event.objects.filter(session_id=run.session_id, event_type="message").order_by("id")
    words = [(one.role, "".join(block.get("text", "") for block in one.content)) for one in says]
    assert words[0] == ("user", "please work")
    assert words[-1] == ("assistant", "All done.")
    assert ("assistant", "Step 1.") in words
    spent = EventContext.objects.filter(session_id=run.session_id, event__event_type="model_request")
    assert sum(one.output_tokens or 0 for one in spent) in {40, 120, 160, 200}
    before = list(Event.objects.values())
    assert tell(fleet, runner, run, told.updates) == len(told.updates) + 1
    assert list(Event.objects.values()) == before
    assert not Draft.objects.exists()
    assert not DrivenCall.objects.exists()


def test_what_an_agent_says_of_itself_is_kept(fleet: Fleet) -> None:
    told = recording("claude")
    runner, run = driving(fleet)
    tell(fleet, runner, run, told.updates)
    known = DrivenSession.objects.get(pk=run.session_id)
    assert (known.agent, known.mode, known.model) == ("claude", "default", "default")
    assert known.agent_session_id == "5284c8ed-d7fa-40d2-abb1-dbb5d05fa62e"
    assert [one["name"] for one in known.commands][:2] == ["deep-research", "update-config"]
    assert known.usage["cost"]["amount"] == pytest.approx(0.038875)
    assert Session.objects.get(pk=run.session_id).executor_session_id == known.agent_session_id


def test_words_grow_as_one_draft_and_end_as_one_message(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    piece = {"sessionUpdate": "agent_message_chunk", "messageId": "m1"}
    said = [
        {**piece, "content": {"type": "text", "text": "Hello, "}},
        {**piece, "content": {"type": "text", "text": "you."}},
    ]
    thought = {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "Hm."}}
    tell(fleet, runner, run, [*numbered(said)])
    assert Draft.objects.get(pk=run.session_id).text == "Hello, you."
    messages = Event.objects.filter(session_id=run.session_id, event_type="message")
    assert not messages.exists()
    tell(fleet, runner, run, [*numbered([thought], 3)])
    assert messages.get().content == [{"type": "text", "text": "Hello, you."}]
    assert Draft.objects.get(pk=run.session_id).kind == "thought"
    runs.record_run_failed(run.run_id, runner, "The agent is gone", fleet.tick())
    assert messages.latest("id").content == [{"type": "thinking", "thinking": "Hm."}]
    assert not Draft.objects.exists()


def test_after_a_gap_nothing_is_taken_and_the_answer_says_from_where_to_send_again(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    posted = recording("gemini").updates
    assert tell(fleet, runner, run, [posted[0], *posted[2:]]) == 2
    assert tell(fleet, runner, run, posted) == len(posted) + 1


def test_what_nobody_knows_is_kept_as_it_was_said(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    tell(fleet, runner, run, [*numbered([{"sessionUpdate": "weather_update", "sky": "blue"}])])
    event = Event.objects.get(session_id=run.session_id, event_type="agent_message")
    assert event.tool_input == {"sessionUpdate": "weather_update", "sky": "blue"}


def test_a_plan_is_kept_as_it_stands_last(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    entry = {"content": "Read the code", "priority": "high", "status": "pending"}
    plans = [[entry], [{**entry, "status": "completed"}]]
    tell(fleet, runner, run, [*numbered([{"sessionUpdate": "plan", "entries": one} for one in plans])])
    assert DrivenSession.objects.get(pk=run.session_id).plan == plans[1]


def test_another_runner_cannot_tell_of_the_session(fleet: Fleet) -> None:
    _, run = driving(fleet)
    other = fleet.runner("elsewhere", executor=PERSISTENT, offers=OFFERS)
    with pytest.raises(Forbidden):
        tell(fleet, other, run, recording("gemini").updates)


def test_a_polled_run_says_where_its_session_stands(fleet: Fleet) -> None:
    runner, run = driving(fleet, "gemini")
    posted = recording("gemini").updates
    tell(fleet, runner, run, posted)
    runs.record_run_completed(run.run_id, runner, fleet.tick(), session_status="idle")
    fleet.resume(run.session_id)
    polled = fleet.poll(runner)
    assert polled is not None
    assert polled["run"]["driven"] == {
        "agent": "gemini",
        "agent_session_id": "efc42e9d-eae7-460c-8be0-24e836196445",
        "mode": "default",
        "model": "auto",
        "worktree": None,
        "next": len(posted) + 1,
    }


def test_a_run_for_an_agent_waits_for_a_runner_that_has_it_and_its_directory(fleet: Fleet) -> None:
    few = {"agents": [{"name": "gemini"}], "directories": ["/srv"]}
    elsewhere = fleet.runner("elsewhere", executor=PERSISTENT, offers=few)
    old = fleet.runner("old")
    parameters = {"prompt": "hello", "agent": "codex"}
    run = fleet.start(parameters=parameters, project_dir="/home/dev/project")
    assert fleet.poll(elsewhere) is None
    assert fleet.poll(old) is None
    able = fleet.runner("able", executor=PERSISTENT, offers=OFFERS)
    polled = fleet.poll(able)
    assert polled is not None
    assert polled["run"]["run_id"] == run.run_id
    assert polled["run"]["parameters"] == parameters


def test_a_runner_without_a_free_place_gets_no_run(fleet: Fleet) -> None:
    runner = fleet.runner(executor=PERSISTENT, offers=OFFERS)
    run = fleet.start(parameters={"prompt": "hello", "agent": "codex"})
    assert runners.claim_next_runner_work(runner.runner_id, fleet.tick(), takes_runs=False) is None
    assert fleet.fresh(run).status == "pending"


def test_a_question_ends_with_its_run(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    asked = recording("claude").questions[-1]
    options = tuple(agent_options.parse_agent_answer_options(asked["options"]))
    question = permissions.PermissionQuestion(
        run.session_id, run.run_id, asked["toolCall"], [], options, "one"
    )
    call = permissions.record_and_build_question_call(question, runner, SPEECH, fleet.tick())
    row = permissions.submit_permission_question(
        call, NO_OPINION, ask="one", actor=OPERATOR, now=fleet.tick()
    )
    assert permissions.load_question_outcome(row.request_id, question, fleet.tick()) is None
    runs.record_run_failed(run.run_id, runner, "The agent is gone", fleet.tick())
    answer = permissions.load_question_outcome(row.request_id, question, fleet.tick())
    assert answer is not None
    assert answer["outcome"] == {"cancelled": True}
    assert answer["reason"] == "The run has failed, and its agent is gone."


def test_only_a_person_chooses_how_far_an_agent_may_go(fleet: Fleet) -> None:
    with pytest.raises(Forbidden):
        fleet.start(parameters={"prompt": "hello", "agent": "gemini", "mode": "yolo"})


def test_a_stopped_turn_leaves_the_agent_waiting_for_the_next(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    fleet.stop(run)
    assert fleet.poll(runner) == {"cancel_runs": [run.run_id]}
    runs.record_run_completed(run.run_id, runner, fleet.tick(), session_status="idle")
    assert (fleet.fresh(run).status, fleet.status(run.session_id)) == ("stopped", "idle")
    fleet.stop_session(run.session_id)
    assert fleet.poll(runner) == {"stop_runs": [run.run_id], "stop_sessions": [run.session_id]}


def test_a_shell_is_looked_through() -> None:
    assert unwrap_shell_command("/bin/bash -lc 'git push'") == "git push"
    assert unwrap_shell_command(["bash", "-lc", "ls | wc"]) == "ls | wc"
    assert unwrap_shell_command("git commit -m 'a b'") == "git commit -m 'a b'"


def test_a_call_without_an_input_of_its_own_shows_its_diff() -> None:
    diff = {"type": "diff", "path": "/a", "oldText": "x", "newText": "y"}
    told = build_acp_call({"kind": "edit", "title": "Edit a", "content": [diff], "status": "pending"}, "acp")
    assert (told.tool, told.tool_input) == (
        "Edit",
        {"file_path": "/a", "old_string": "x", "new_string": "y"},
    )
