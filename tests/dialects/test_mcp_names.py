"""A server's or tool's name with a dot or a space is one name: in every agent's call, for rules, for grants."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.client import offline_block_list as held
from coordinator.client.hook_agents import HOOK_AGENTS
from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.mcp.servers.names import PREFIX, find_server_tools_meant_by_call, name_in_calls
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.tool_rules import DENY, DecisionRule

AT = "2026-11-22T01:09:22.000000+00:00"
NAMES = [
    ("tool.terminal", "run"),
    ("My Server", "do it"),
    ("größe", "lösche.alles"),
    ("a/b:c", "x@y"),
    ("plain", "get"),
]


def calls_of(server: str, tool: str) -> dict[str, dict[str, Any]]:
    """Return the hook in which each agent that names server and tool apart tells of a call."""
    named = f"{PREFIX}{name_in_calls(server)}__{name_in_calls(tool)}"
    of_claude = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": named, "tool_input": {}}
    return {
        "claude-code": of_claude,
        "codex": of_claude,
        "gemini": {
            "session_id": "s",
            "hook_event_name": "BeforeTool",
            "tool_name": tool,
            "tool_input": {},
            "mcp_context": {"server_name": server, "tool_name": tool},
        },
        "cursor": {
            "conversation_id": "s",
            "hook_event_name": "beforeMCPExecution",
            "tool_name": tool,
            "mcp_server_name": server,
            "tool_input": "{}",
        },
    }


@pytest.mark.parametrize(("server", "tool"), NAMES)
def test_one_rule_and_one_grant_hold_for_every_agent(server: str, tool: str) -> None:
    rule = DecisionRule(1, f"{PREFIX}{name_in_calls(server)}__*", DENY, deny_at_deadline=True)
    for name, payload in calls_of(server, tool).items():
        called = DIALECTS[name].read_hook(json.dumps(payload).encode(), AT).tool_name
        assert (
            tool_rules.tool_ruling_or_no_opinion([rule], called, "", None, name, servers=[server]).decision
            == DENY
        )
        assert find_server_tools_meant_by_call(called, [server]) == [(server, name_in_calls(tool))]
        assert HOOK_AGENTS[name].tool(payload) == called
        assert held.is_tool_blocked_offline([["hold", rule.tool]], called)
