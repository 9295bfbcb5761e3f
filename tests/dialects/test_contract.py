"""What every agent's dialect must keep, or a call that policy stops would run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.dialects.dialect_base import TURN_ENDS, Dialect
from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.dialects.hooks import AgentHook
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, Ruling

AT = "2026-11-22T01:09:22.000000+00:00"
every_agent = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


def hook(dialect: Dialect, name: str, **fields: Any) -> AgentHook:
    call = {"session_id": "s", "hook_event_name": name, "tool_name": "Bash", "tool_input": {"command": "ls"}}
    return dialect.read_hook(json.dumps(call | fields).encode(), AT)


@every_agent
def test_it_says_a_denial_of_each_call_and_why(dialect: Dialect) -> None:
    for name in dialect.calls:
        reply = dialect.build_decision_reply(name, DENY, "Never.", {})
        assert reply is not None
        assert reply.denial == "Never."
        assert "Never." in json.dumps(reply.answer)


@every_agent
def test_a_call_that_its_agent_does_not_prompt_for_is_never_let_go_where_policy_asks(
    dialect: Dialect,
) -> None:
    for name in dialect.calls - dialect.prompts:
        reply = dialect.build_undecided_call_reply(name, Ruling(ASK, "Careful.", "rule 1"), "")
        assert reply is not None
        assert reply.denial is not None or '"ask"' in json.dumps(reply.answer)


@every_agent
def test_a_prompt_that_stands_is_left_alone_where_policy_asks(dialect: Dialect) -> None:
    assert [dialect.build_decision_reply(name, ASK, "Careful.", {}) for name in dialect.prompts] == [
        None
    ] * len(dialect.prompts)


@every_agent
def test_an_approval_denies_nothing(dialect: Dialect) -> None:
    for name in dialect.calls:
        reply = dialect.build_decision_reply(name, ALLOW, "Approved.", {})
        assert reply is not None
        assert reply.denial is None
        assert '"deny"' not in json.dumps(reply.answer)


@every_agent
def test_an_edited_input_is_answered_or_the_call_denied(dialect: Dialect) -> None:
    settled = {"allowed": True, "answer": {"updated_input": {"command": "ls -a"}}}
    for name in dialect.calls:
        asked = hook(dialect, name)
        reply = dialect.build_person_verdict_reply(
            asked, dialect.build_tool_call_request(asked, "ses_1", None), settled
        )
        assert reply is not None
        assert (reply.denial is None) == ("ls -a" in json.dumps(reply.answer)) == (name in dialect.edits)


@every_agent
def test_a_call_of_which_nothing_is_known_is_denied(dialect: Dialect) -> None:
    reply = dialect.build_unknown_call_denial()
    assert reply is not None
    assert reply.denial
    assert reply.answer
    assert dialect.guess_call_hook_name(b"\xff{") in dialect.calls - dialect.prompts


@every_agent
def test_a_hook_that_nobody_knows_yet_is_a_milestone_of_its_name(dialect: Dialect) -> None:
    [event] = dialect.build_hook_and_transcript_events(
        hook(dialect, "NewInTheNextVersion", extra="x"), "ses_1"
    )
    assert (event.event_type, event.source) == ("NewInTheNextVersion", dialect.name)


@every_agent
def test_it_says_whether_it_can_be_told_to_ask(dialect: Dialect) -> None:
    replies = [
        dialect.build_decision_reply(name, ASK, "Careful.", {}) for name in dialect.calls - dialect.prompts
    ]
    assert dialect.can_ask == any('"ask"' in json.dumps(one.answer) for one in replies if one is not None)


@every_agent
def test_a_person_ends_the_turn_of_an_agent_that_can_be_stopped_and_others_are_asked_to_stop(
    dialect: Dialect,
) -> None:
    settled = {"allowed": False, "approved_by": "ann", "reason": "Loops.", "answer": {"stops_turn": True}}
    for name in dialect.calls:
        call_hook = hook(dialect, name)
        call = dialect.build_tool_call_request(call_hook, "ses_1", None)
        assert call.can_stop_turn == (name in dialect.stops)
        reply = dialect.build_person_verdict_reply(call_hook, call, settled)
        assert reply is not None
        assert reply.denial is not None
        assert "Denied by ann in Signalbox, turn ended: Loops." in reply.denial
        assert TURN_ENDS in reply.denial
        assert ((reply.answer or {}).get("continue") is False) == call.can_stop_turn
        denial = dialect.build_person_verdict_reply(call_hook, call, settled | {"answer": None})
        assert denial is not None
        assert "continue" not in (denial.answer or {})
