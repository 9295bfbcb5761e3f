"""Copilot CLI 1.0.102 as it was recorded: heard as one session, held, answered in its own form.

The real program is in tests/agents/test_more_agents.py.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from coordinator.dialects.copilot import DIALECT, HOOK_TOOLS
from coordinator.policy.rules.tool_kinds import KINDS
from tests.claude_code.test_deciding import rules
from tests.dialects.agent import Agent, as_of, recorded
from tests.served import Served

pytestmark = pytest.mark.served
NOW = "2026-11-26T17:48:00.000000+00:00"
STORY = Counter(
    session_start=1, session_stop=1, turn_end=1, message=3, pre_tool=6, post_tool=6, SubagentStop=1
)


class Copilot(Agent):
    name = "copilot"

    def hooks(self) -> list[dict[str, Any]]:
        """Return the recorded session's hooks as of this session and of now."""
        found = recorded("copilot")
        first = found[0]["session_id"]
        named = [one for one in found if isinstance(one["timestamp"], str)]
        timed = iter(as_of(named, datetime.now(UTC)))
        hooks = [next(timed) if isinstance(one["timestamp"], str) else dict(one) for one in found]
        for hook in hooks:
            hook |= {name: self.session for name, value in hook.items() if value == first}
            if "transcript_path" in hook:
                hook["transcript_path"] = hook["transcript_path"].replace(first, self.session)
        return hooks

    def call(self, command: str) -> dict[str, Any]:
        """Return the hook of a command that is about to run."""
        found = next(one for one in self.hooks() if one.get("tool_input", {}).get("command") == "exit 3")
        return found | {"tool_input": {"command": command, "description": "As asked"}}


@pytest.fixture
def copilot(served: Served) -> Copilot:
    return Copilot(served)


@pytest.mark.parametrize("seed", range(2))
def test_a_session_with_a_sub_agent_is_one_in_any_order_and_posted_twice(copilot: Copilot, seed: int) -> None:
    hooks = copilot.hooks() * 2
    if seed:
        random.Random(seed).shuffle(hooks)
    assert [copilot.post(hook) for hook in hooks] == [{}] * len(hooks)
    assert Counter(kind for (kind,) in copilot.told("e.event_type")) == STORY
    below = {subagent for subagent, kind in copilot.told("c.subagent, e.event_type") if kind == "pre_tool"}
    assert below == {None, "task 743b0b8d-7c65-480d-be1c-1e7bcced754b"}
    sub = "743b0b8d-7c65-480d-be1c-1e7bcced754b"
    assert copilot.served.sql("SELECT 1 FROM sessions WHERE executor_session_id = ?", (sub,)) == []
    if not seed:
        assert copilot.calls() == (6, 1, 0), "a call that its result does not complete, or a failure"


def test_a_call_runs_as_it_was_edited_and_is_one_row(copilot: Copilot) -> None:
    rules(copilot.served, {"tool": "kind:command", "pattern": "git push", "verdict": "ask"})
    hook = copilot.call("git push")
    answer = copilot.held(hook, "approved", edited="git push --dry-run", edited_field="command")
    assert answer["permissionDecision"] == "allow"
    edited = {"command": "git push --dry-run", "description": "As asked"}
    assert answer["modifiedArgs"] == edited
    ended = {
        "hook_event_name": "PostToolUse",
        "tool_input": edited,
        "tool_result": {"result_type": "success"},
    }
    copilot.post(hook | ended)
    assert copilot.calls() == (1, 0, 0)


def test_a_call_is_denied_with_the_reason(copilot: Copilot) -> None:
    rules(copilot.served, {"tool": "kind:command", "pattern": "git push", "verdict": "ask"})
    answer = copilot.held(copilot.call("git push"), "denied", reason="Not from here.")
    assert answer["permissionDecision"] == "deny"
    assert answer["permissionDecisionReason"].endswith("in Signalbox: Not from here.")


def test_a_rule_for_paths_sees_the_file_that_it_writes(copilot: Copilot) -> None:
    rules(copilot.served, {"tool": "kind:write", "pattern": "/etc/*", "verdict": "deny", "reason": "Never."})
    written = {"path": "/etc/passwd", "file_text": "x"}
    answer = copilot.post(copilot.call("true") | {"tool_name": "Write", "tool_input": written})
    assert answer["permissionDecision"] == "deny"


def test_each_of_its_tools_is_of_a_kind_and_has_a_subject() -> None:
    of_kinds = {tool for kind in KINDS.values() for tool in kind.tools}
    assert {name for pair in HOOK_TOOLS.items() for name in pair} - of_kinds == {
        *("task", "Agent"),
        *("ask_user", "AskUserQuestion"),
    }
    assert {name for pair in HOOK_TOOLS.items() for name in pair} <= set(DIALECT.tools)
