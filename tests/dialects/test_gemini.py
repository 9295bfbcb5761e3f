"""Gemini CLI's own hooks, as recorded from version 0.61.0, posted to the served program: heard, held and answered."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.claude_code.test_deciding import rules
from tests.dialects.agent import Agent, as_of, later, recorded
from tests.served import Served

pytestmark = pytest.mark.served

# What the recorded session comes to, however its hooks arrive.
STORY = [
    ("message", None, "assistant"),
    ("message", None, "user"),
    ("post_tool", "run_shell_command", None),
    ("post_tool", "run_shell_command", None),
    ("post_tool", "write_file", None),
    ("pre_tool", "run_shell_command", None),
    ("pre_tool", "run_shell_command", None),
    ("pre_tool", "write_file", None),
    ("session_start", None, None),
    ("session_stop", None, None),
    ("turn_end", None, None),
]


class Gemini(Agent):
    name = "gemini"

    def recorded(self, name: str = "", number: int = 0) -> Any:
        """Return the hooks of the session that was recorded whole, as of this one and of now, or one of them."""
        whole = [hook for hook in recorded("gemini") if hook["session_id"].startswith("a09b3b99")]
        found = [hook | {"session_id": self.session} for hook in as_of(whole, datetime.now(UTC))]
        return [hook for hook in found if hook["hook_event_name"] == name][number] if name else found


@pytest.fixture
def gemini(served: Served) -> Gemini:
    return Gemini(served)


@pytest.mark.parametrize("seed", range(4))
def test_its_hooks_make_one_session_in_any_order_and_posted_twice(gemini: Gemini, seed: int) -> None:
    hooks = gemini.recorded() * 2
    if seed:
        random.Random(seed).shuffle(hooks)
    assert [gemini.post(hook) for hook in hooks] == [{}] * len(hooks)
    assert sorted(gemini.told("e.event_type, e.tool_name, e.role"), key=str) == STORY
    timeline = gemini.page().partition('id="timeline-bar"')[
        2
    ]  # the summary before it names the last words first
    assert gemini.calls() == (3, 0, 0)
    assert timeline.index("g.txt") < timeline.index("git push") < timeline.index("All done.")


def test_an_end_that_it_tells_three_times_is_one_and_a_later_one_another(gemini: Gemini) -> None:
    gemini.post(gemini.recorded("SessionStart"))
    ended = gemini.recorded("SessionEnd")
    for milliseconds in (700, 950, 1_081, 9_000):
        at = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(milliseconds=milliseconds)
        gemini.post(ended | {"timestamp": at.isoformat()})
    assert [kind for (kind,) in gemini.told("e.event_type")].count("session_stop") == 2


def test_every_recorded_hook_is_taken_also_of_the_sessions_that_broke_off(gemini: Gemini) -> None:
    assert [gemini.post(hook) for hook in recorded("gemini")] == [{}] * 28


def test_a_call_that_a_rule_wants_asked_waits_and_runs_when_approved(gemini: Gemini) -> None:
    rules(gemini.served, {"tool": "run_shell_command", "pattern": "git push", "verdict": "ask"})
    hook = gemini.recorded("BeforeTool", 2)
    assert gemini.held(hook, "approved") == {"decision": "allow"}
    gemini.post(gemini.recorded("AfterTool", 2))
    assert gemini.calls() == (1, 0, 0)


def test_a_call_that_a_person_denies_has_the_denial_as_its_result(gemini: Gemini) -> None:
    rules(gemini.served, {"tool": "run_shell_command", "pattern": "git push", "verdict": "ask"})
    answer = gemini.held(gemini.recorded("BeforeTool", 2), "denied", reason="Not from here.")
    assert answer["decision"] == "deny"
    assert answer["reason"].endswith("in Signalbox: Not from here.")
    ((error,),) = gemini.told("e.error")[1:]
    assert error == answer["reason"]
    again = later(gemini.recorded("BeforeTool", 2), 1)
    assert gemini.held(again, "approved") == {"decision": "allow"}
    gemini.post(later(gemini.recorded("AfterTool", 2), 2))
    assert gemini.calls() == (2, 1, 0)


def test_a_call_runs_as_it_was_edited_and_is_one_row(gemini: Gemini) -> None:
    rules(gemini.served, {"tool": "run_shell_command", "pattern": "git push", "verdict": "ask"})
    hook = gemini.recorded("BeforeTool", 2)
    answer = gemini.held(hook, "approved", edited="git push --dry-run", edited_field="command")
    ran = {"command": "git push --dry-run"}
    assert answer == {
        "decision": "allow",
        "hookSpecificOutput": {"hookEventName": "BeforeTool", "tool_input": ran},
    }
    gemini.post(gemini.recorded("AfterTool", 2) | {"tool_input": ran})
    assert len({call_id for (call_id,) in gemini.told("c.tool_use_id")}) == 1
    assert gemini.calls() == (1, 0, 0)


def test_a_call_of_which_nobody_says_anything_is_denied_since_asking_hangs_without_a_terminal(
    gemini: Gemini,
) -> None:
    asks = {"tool": "run_shell_command", "pattern": "git push", "verdict": "ask"}
    rules(gemini.served, asks)
    answer = gemini.post(gemini.recorded("BeforeTool", 2), wait=0.2)
    assert answer["decision"] == "deny"
    assert "A person can still approve it" in answer["reason"]
    rules(gemini.served, asks | {"deny_at_deadline": True})
    assert gemini.post(later(gemini.recorded("BeforeTool", 2), 1), wait=0.2)["decision"] == "deny"


def test_an_mcp_tool_is_named_as_everywhere_else(gemini: Gemini) -> None:
    rules(gemini.served, {"tool": "mcp__git_hub__*", "verdict": "deny", "reason": "Never."})
    place = {"server_name": "git_hub", "tool_name": "create_issue"}
    hook = gemini.recorded("BeforeTool") | {"tool_name": "mcp_git_hub_create_issue", "mcp_context": place}
    assert gemini.post(hook)["decision"] == "deny"
    assert "mcp__git_hub__create_issue" in str(gemini.told("e.tool_name"))


def test_a_rule_for_another_program_lets_its_calls_go(gemini: Gemini) -> None:
    rules(gemini.served, {"tool": "*", "verdict": "deny", "program": "codex"})
    assert gemini.post(gemini.recorded("BeforeTool", 2)) == {}
    rules(gemini.served, {"tool": "*", "verdict": "deny", "program": "gemini"})
    assert gemini.post(later(gemini.recorded("BeforeTool", 2), 1))["decision"] == "deny"


def chat_line(number: int) -> str:
    """Return a line of its chat, as the hook command sends it: what it said, and what the request took."""
    tokens = {"input": 10, "output": 2, "cached": 4, "thoughts": 1}
    said = {"type": "gemini", "content": f"Step {number}.", "tokens": tokens}
    return json.dumps({"id": f"message-{number}", "timestamp": datetime.now(UTC).isoformat(), **said})


def test_tokens_of_its_chat_are_told_once_and_not_beside_those_of_telemetry(gemini: Gemini) -> None:
    ended = gemini.recorded("AfterAgent")
    spent = "c.input_tokens, c.output_tokens, c.cache_read_tokens"
    for lines in ([chat_line(1)], [chat_line(1), chat_line(2)]):
        gemini.post(ended | {"signalbox_transcript": lines})
    requests = [row for row in gemini.told(spent) if row[0] is not None]
    assert requests == [(6, 3, 4)] * 2
    gemini.served.sql("UPDATE event_context SET source = 'telemetry' WHERE input_tokens IS NOT NULL")
    gemini.post(ended | {"signalbox_transcript": [chat_line(3)]})
    assert [row for row in gemini.told(spent) if row[0] is not None] == requests
    said = {text for (text,) in gemini.told("e.content") if text}
    assert all(any(f"Step {number}." in text for text in said) for number in (1, 2, 3))


def test_odd_lines_of_a_chat_leave_the_hook_as_it_is(gemini: Gemini) -> None:
    ended = gemini.recorded("AfterAgent")
    odd = [7, None, "{", "[]", "[" * 100_000, chat_line(1).replace("2026", "9999999"), {"a": [1]}]
    for lines in (odd, "text", 7, {"a": 1}, None, [chat_line(1)] * 5_000):
        assert gemini.post(ended | {"signalbox_transcript": lines}) == {}
    kinds = [kind for (kind,) in gemini.told("e.event_type")]
    assert kinds.count("turn_end") == 1
    assert kinds.count("model_request") <= 2
