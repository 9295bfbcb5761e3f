"""A call that cannot be read while Signalbox is away, and that rules know by another name than the hook's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.client.programs import Home
from tests.client.test_away import NOWHERE, remember

CUT: dict[str, tuple[dict[str, Any], str]] = {
    "gemini": ({"hook_event_name": "BeforeTool", "tool_name": "mcp_shop_drop"}, "mcp__shop__*"),
    "cursor": ({"hook_event_name": "beforeMCPExecution", "tool_name": "drop"}, "mcp__shop__*"),
    "claude-code": ({"hook_event_name": "PreToolUse", "tool_name": "Skill"}, "Bash"),
}


@pytest.mark.parametrize("agent", CUT)
def test_a_cut_call_that_may_be_held_is_denied(tmp_path: Path, agent: str) -> None:
    home, (named, held) = Home(tmp_path, NOWHERE), CUT[agent]
    remember(home, ("hold", held), agent=agent)
    whole = json.dumps({"session_id": "s", "conversation_id": "s", **named, "tool_input": {"skill": "x"}})
    said = home.hook(agent, whole[:-2].encode(), "--timeout", "3")
    assert "could not read this call" in said.out
