"""Calls that cannot be read and that rules know by another name than the hook's, or by their shell lines."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from coordinator.dialects.dialect_base import COULD_NOT_READ
from tests.claude_code.test_deciding import rules
from tests.dialects.test_unreadable import body_of, post
from tests.served import Served

CALLS: dict[str, dict[str, Any]] = {
    "gemini": {
        "hook_event_name": "BeforeTool",
        "tool_name": "mcp_shop_drop",
        "tool_input": {"table": "orders"},
        "mcp_context": {"server_name": "shop", "tool_name": "drop"},
    },
    "cursor": {
        "hook_event_name": "beforeMCPExecution",
        "tool_name": "drop",
        "tool_input": "{}",
        "mcp_server_name": "shop",
    },
}


@pytest.mark.served
@pytest.mark.parametrize("name", CALLS)
def test_a_cut_call_of_an_mcp_tool_is_denied_where_a_rule_is_about_its_server(
    one_server: Served, name: str
) -> None:
    rules(one_server, {"tool": "mcp__shop__*", "verdict": "deny", "reason": "Never."})
    session = str(uuid.uuid4())
    whole = body_of({"session_id": session, "conversation_id": session, **CALLS[name]})
    assert "Never." in json.dumps(post(one_server, name, whole)[1])
    cut = whole[: whole.index(b'"mcp_')] if name == "cursor" else whole[: whole.index(b', "mcp_context"')]
    assert COULD_NOT_READ in json.dumps(post(one_server, name, cut)[1])


@pytest.mark.served
def test_a_cut_call_of_a_skill_is_denied_where_a_rule_is_about_shell_lines(one_server: Served) -> None:
    rules(one_server, {"tool": "Bash", "verdict": "deny", "reason": "No shell."})
    call = {"session_id": str(uuid.uuid4()), "hook_event_name": "PreToolUse", "tool_name": "Skill"}
    whole = body_of({**call, "tool_use_id": "toolu_1", "tool_input": {"skill": "deploy"}})
    assert COULD_NOT_READ in json.dumps(post(one_server, "claude-code", whole[:-2])[1])
