"""What a driven agent says against its own session, or past its rules: taken as words, judged by what it asks."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.actions.driving import permissions
from coordinator.dialects.acp import SPEECH, merge_acp_call_update, unwrap_shell_command
from coordinator.models import DrivenCall, DrivenSession, Event, Run, Runner, Session
from coordinator.policy.requests import agent_options
from coordinator.policy.requests.tool_calls import ToolCallRequest
from coordinator.policy.rules.tool_rules import DENY, Ruling
from dashboard.sessions.steering import build_steering_context
from tests.driving.recorded import numbered
from tests.driving.test_taking import driving, tell
from tests.runs.fleet import OPERATOR, Fleet

pytestmark = pytest.mark.django_db

OPTIONS = [{"optionId": "no", "name": "No", "kind": "reject_once"}]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def ask(fleet: Fleet, runner: Runner, run: Run, tool_call: dict[str, Any]) -> ToolCallRequest:
    options = tuple(agent_options.parse_agent_answer_options(OPTIONS))
    question = permissions.PermissionQuestion(run.session_id, run.run_id, tool_call, [], options, "one")
    return permissions.record_and_build_question_call(question, runner, SPEECH, fleet.tick())


def shell(call_id: str, command: str, **fields: Any) -> dict[str, Any]:
    named = {"_meta": {"claudeCode": {"toolName": "Bash"}}, "kind": "execute", "title": command}
    return {"toolCallId": call_id, "rawInput": {"command": command}, **named, **fields}


@pytest.mark.parametrize("kind", ["session_stop", "post_tool", "turn_end", "run_completed"])
def test_an_update_of_no_known_kind_does_what_no_event_of_its_name_does(kind: str, fleet: Fleet) -> None:
    runner, run = driving(fleet)
    tell(fleet, runner, run, [*numbered([{"sessionUpdate": kind, "why": "x"}])])
    assert fleet.status(run.session_id) == "running"
    assert not Event.objects.filter(session_id=run.session_id, event_type=kind, tool_input__isnull=False)
    said = Event.objects.get(session_id=run.session_id, event_type="agent_message")
    assert said.tool_input == {"sessionUpdate": kind, "why": "x"}


@pytest.mark.parametrize("told_before", [True, False])
def test_a_question_about_a_call_that_is_said_to_be_over_is_judged_by_its_own_words(
    told_before: bool, fleet: Fleet
) -> None:
    runner, run = driving(fleet)
    agent = {"sessionUpdate": "signalbox/agent", "agent": "claude"}
    over = {"sessionUpdate": "tool_call", **shell("X", "ls", status="completed")}
    tell(fleet, runner, run, [*numbered([agent, *([over] if told_before else [])])])
    asked = ask(fleet, runner, run, shell("X", "rm -rf /", status="completed"))
    assert (asked.tool, asked.tool_input) == ("Bash", {"command": "rm -rf /"})
    begun = Event.objects.filter(session_id=run.session_id, event_type="pre_tool").order_by("id")
    inputs = [one.tool_input["command"] for one in begun]
    assert inputs == (["ls", "rm -rf /"] if told_before else ["rm -rf /"])
    ruling = Ruling(DENY, "Nobody removes", "rule 1")
    question = permissions.PermissionQuestion(run.session_id, run.run_id, {}, [], tuple(OPTIONS))
    for _ in range(2):
        answer = permissions.record_and_build_ruling_answer(
            asked, ruling, question, actor=OPERATOR, now=fleet.tick()
        )
        assert answer["outcome"] == {"optionId": "no"}
    assert DrivenCall.objects.get(call_id="X").told["ruled"] == [DENY, "rule 1"]


def test_a_result_that_comes_after_its_turn_is_kept_once_and_begins_no_second_call(fleet: Fleet) -> None:
    runner, run = driving(fleet)
    agent = {"sessionUpdate": "signalbox/agent", "agent": "claude"}
    begun = {"sessionUpdate": "tool_call", **shell("X", "ls", status="in_progress")}
    ended = {"sessionUpdate": "signalbox/turn_ended", "stopReason": "cancelled"}
    late = {"sessionUpdate": "tool_call_update", "toolCallId": "X", "status": "completed", "rawOutput": "a b"}
    tell(fleet, runner, run, [*numbered([agent, begun, ended, late, late])])
    calls = Event.objects.filter(session_id=run.session_id, event_type__in=["pre_tool", "post_tool"])
    assert [(one.event_type, one.tool_name, one.tool_input) for one in calls.order_by("id")] == [
        ("pre_tool", "Bash", {"command": "ls"}),
        ("post_tool", "Bash", {"command": "ls"}),
    ]


@pytest.mark.parametrize(
    ("used", "size", "amount"), [(1e308, 1, 1e308), (10**400, 1, 10**400), (5, 1e-300, -1), (True, 1, "1")]
)
def test_impossible_figures_are_neither_kept_nor_drawn(
    used: Any, size: Any, amount: Any, fleet: Fleet
) -> None:
    runner, run = driving(fleet)
    cost = {"amount": amount, "currency": "USD"}
    usage = {"sessionUpdate": "usage_update", "used": used, "size": size, "cost": cost}
    tell(fleet, runner, run, [*numbered([usage])])
    kept = DrivenSession.objects.get(pk=run.session_id)
    assert "cost" not in (kept.usage or {})
    for known in (
        kept.usage,
        {"used": used, "size": size, "cost": cost},
    ):  # the latter: kept by an earlier release
        DrivenSession.objects.filter(pk=run.session_id).update(usage=known)
        shown = build_steering_context(Session.objects.get(pk=run.session_id))
        assert (shown["context_share"], shown["told_cost"]) == (None, "")


def test_only_a_shell_of_the_system_is_looked_through() -> None:
    for shell_name in ("bash", "/bin/sh", "/usr/bin/zsh", "/usr/local/bin/bash"):
        assert unwrap_shell_command(f"{shell_name} -lc 'git status'") == "git status"
    for program in ("/tmp/x/bash", "./bash", "bin/sh", "/usr/bin/../../tmp/bash"):
        assert unwrap_shell_command(f"{program} -lc 'git status'") == f"{program} -lc 'git status'"


def test_an_input_that_was_text_and_becomes_an_object_is_the_newer() -> None:
    assert merge_acp_call_update({"rawInput": "x"}, {"rawInput": {"a": 1}})["rawInput"] == {"a": 1}
    assert merge_acp_call_update({"rawInput": {"a": 1}}, {"rawInput": {"b": 2}})["rawInput"] == {
        "a": 1,
        "b": 2,
    }
