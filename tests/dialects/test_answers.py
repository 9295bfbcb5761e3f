"""A person's answer to a question, in each agent's JSON: no agent runs the tool without it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.dialects.hooks import AgentHook
from coordinator.policy.requests import questions
from coordinator.policy.requests.questions import AgentQuestions, SubmittedAnswer
from coordinator.policy.requests.tool_calls import ToolCallRequest

TOOL_INPUT = {"questions": [{"question": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}]}


def call_of(program: str, hook: str, tool: str, tool_input: dict[str, Any]) -> ToolCallRequest:
    return ToolCallRequest(
        hook_name=hook,
        session_id="ses_1",
        agent_id=None,
        since_us=0,
        tool=tool,
        tool_input=tool_input,
        about="",
        program=program,
    )


def settled(answer: dict[str, Any]) -> dict[str, Any]:
    return {"status": "approved", "allowed": True, "approved_by": "ann", "answer": answer}


@pytest.mark.parametrize("program", sorted(DIALECTS))
def test_the_model_reads_the_answer_of_a_person(program: str) -> None:
    dialect = DIALECTS[program]
    hook = AgentHook(dialect.worst_call, "s", {"tool_name": "ask_user"}, "2026-01-01T00:00:00Z")
    asked = questions.parse_call_question_or_none("ask_user", TOOL_INPUT)
    assert isinstance(asked, AgentQuestions)
    stored = questions.convert_answers_to_stored_list(asked, [SubmittedAnswer((1,), "not too dark")])
    reply = dialect.build_person_verdict_reply(
        hook, call_of(program, hook.name, "ask_user", TOOL_INPUT), settled({"answers": stored})
    )
    assert reply is not None
    said = json.dumps(reply.answer, ensure_ascii=False)
    assert "Blue" in said
    assert "not too dark" in said
    assert "Red" not in said.replace('{"label": "Red"}', "")


@pytest.mark.parametrize("program", sorted(set(DIALECTS) - {"claude-code"}))
def test_an_answer_that_does_not_fit_is_sent_to_nobody(program: str) -> None:
    dialect = DIALECTS[program]
    hook = AgentHook(dialect.worst_call, "s", {"tool_name": "ask_user"}, "2026-01-01T00:00:00Z")
    call = call_of(program, hook.name, "ask_user", TOOL_INPUT)
    reply = dialect.build_person_verdict_reply(
        hook, call, settled({"answers": [{"chosen": [7], "text": ""}]})
    )
    assert reply is not None
    assert reply.denial is not None
    assert "does not fit" in json.dumps(reply.answer)
