"""Qwen Code 0.24.4 as it was recorded: heard as one session, held, answered in its own form.

The real program is in tests/agents/test_more_agents.py.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.claude_code.test_deciding import rules
from tests.dialects.agent import Agent, as_of, recorded
from tests.served import Served

pytestmark = pytest.mark.served
STORY = Counter(session_start=1, turn_end=1, message=3, pre_tool=6, post_tool=6, SubagentStop=1)


class QwenCode(Agent):
    name = "qwen-code"

    def hooks(self) -> list[dict[str, Any]]:
        """Return the recorded session's hooks as of this session and of now."""
        return [
            hook | {"session_id": self.session} for hook in as_of(recorded("qwen_code"), datetime.now(UTC))
        ]

    def call(self, command: str) -> dict[str, Any]:
        """Return the hook of a command that is about to run."""
        found = next(one for one in self.hooks() if one.get("tool_input", {}).get("command") == "exit 3")
        return found | {"tool_input": {"command": command, "is_background": False}}


@pytest.fixture
def qwen(served: Served) -> QwenCode:
    return QwenCode(served)


@pytest.mark.parametrize("seed", range(2))
def test_a_session_with_a_sub_agent_is_one_in_any_order_and_posted_twice(qwen: QwenCode, seed: int) -> None:
    hooks = qwen.hooks() * 2
    if seed:
        random.Random(seed).shuffle(hooks)
    assert [qwen.post(hook) for hook in hooks] == [{}] * len(hooks)
    assert Counter(kind for (kind,) in qwen.told("e.event_type")) == STORY
    words = {text for text in map(str, qwen.told("e.content")) if "text" in text}
    assert [any(said in text for text in words) for said in ("Do as the script", "Two files.", "Done.")] == [
        True
    ] * 3
    assert {subagent for (subagent,) in qwen.told("c.subagent")} == {None, "general-purpose-call_4"}
    assert ("mcp__every__echo",) in qwen.told("e.tool_name")
    if not seed:
        assert qwen.calls() == (6, 1, 0), "a call that its result does not complete, or a failure"


def test_a_call_is_approved_and_denied_with_the_reason(qwen: QwenCode) -> None:
    rules(qwen.served, {"tool": "kind:command", "pattern": "git push", "verdict": "ask"})
    said = qwen.held(qwen.call("git push"), "approved")["hookSpecificOutput"]
    assert (said["hookEventName"], said["permissionDecision"]) == ("PreToolUse", "allow")
    other = QwenCode(qwen.served)
    said = other.held(other.call("git push"), "denied", reason="Not from here.")["hookSpecificOutput"]
    assert said["permissionDecision"] == "deny"
    assert said["permissionDecisionReason"].endswith("in Signalbox: Not from here.")
