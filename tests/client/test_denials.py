"""What the command knows of agents by itself is what the server's dialects say of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.client.hook_agents import HOOK_AGENTS, WORDS
from coordinator.dialects.dialect_base import AgentReply
from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.policy.rules.tool_rules import ASK, DENY
from tests.dialects import opencode
from tests.served import ROOT

CALLED = sorted(DIALECTS)
CALLS = [(agent, event) for agent in CALLED for event in sorted(DIALECTS[agent].calls)]
WHY = "Not today: „no“."


def answer_of(reply: AgentReply | None) -> Any:
    return reply.answer if reply is not None else None


def test_every_agent_is_known() -> None:
    assert sorted(HOOK_AGENTS) == CALLED
    assert all(agent.name == name for name, agent in HOOK_AGENTS.items())


@pytest.mark.parametrize("agent", CALLED)
def test_the_same_hooks_are_calls(agent: str) -> None:
    assert set(HOOK_AGENTS[agent].calls) == set(DIALECTS[agent].calls)
    assert HOOK_AGENTS[agent].strictest_hook_event == DIALECTS[agent].guess_call_hook_name(None)


@pytest.mark.parametrize(("agent", "event"), CALLS)
def test_a_denial_and_a_question_read_the_same(agent: str, event: str) -> None:
    say = DIALECTS[agent].build_decision_reply
    assert HOOK_AGENTS[agent].build_call_denial_answer(event, WHY) == answer_of(say(event, DENY, WHY, {}))
    assert HOOK_AGENTS[agent].build_ask_in_terminal_answer(event, WHY) == answer_of(say(event, ASK, WHY, {}))
    assert WORDS not in json.dumps(
        HOOK_AGENTS[agent].build_call_denial_answer(event, WHY), ensure_ascii=False
    )


def recorded(agent: str) -> list[dict[str, Any]]:
    """Return the hooks of an agent that the tests have, as they came."""
    if agent in {"opencode", "kilo"}:  # recorded as its plugin was handed them
        return opencode.posted()
    files = sorted(Path(ROOT, "tests/data", agent.replace("-", "_")).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines() if line.strip()]


@pytest.mark.parametrize("agent", CALLED)
def test_recorded_calls_are_of_the_same_tool(agent: str) -> None:
    dialect, compared = DIALECTS[agent], 0
    for payload in recorded(agent):
        hook = dialect.read_hook(json.dumps(payload).encode(), "2026-03-01T00:00:00.000000+00:00")
        if hook.name in dialect.calls:
            assert HOOK_AGENTS[agent].tool(payload) == hook.tool_name
            compared += 1
    assert compared or agent == "claude-code"


def test_a_tool_of_an_mcp_server_is_known_by_the_name_that_rules_use() -> None:
    named = {"tool_name": "shop_drop", "mcp_context": {"server_name": "shop", "tool_name": "drop"}}
    payload = {"session_id": "s", "hook_event_name": "BeforeTool", **named}
    hook = DIALECTS["gemini"].read_hook(json.dumps(payload).encode(), "2026-03-01T00:00:00.000000+00:00")
    assert HOOK_AGENTS["gemini"].tool(payload) == hook.tool_name == "mcp__shop__drop"
