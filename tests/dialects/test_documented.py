"""Agents of which only the documentation was read: a session as it tells them, heard, held and answered.

The payloads (tests/data/AGENT/documented.jsonl) have the fields that the documentation names; none was recorded.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.claude_code.test_deciding import rules
from tests.dialects.agent import Agent, as_of, recorded
from tests.dialects.test_unreadable import body_of
from tests.served import Served

pytestmark = pytest.mark.served

COMMON = Counter(session_start=1, session_stop=1, turn_end=1)
STORIES = {
    "cursor": COMMON + Counter(message=2, pre_tool=2, post_tool=3),
    "goose": COMMON + Counter(message=2, pre_tool=2, post_tool=2),
}
# Of each agent, the hook of a call that is held, and the answers in its own form.
HELD = {
    "cursor": ("beforeShellExecution", {"permission": "allow"}, {"permission": "deny"}),
    "goose": ("PreToolUse", {"decision": "allow"}, {"decision": "block"}),
}
SHELLS = {"cursor": "Shell", "goose": "developer__shell"}
every_agent = pytest.mark.parametrize("name", STORIES)


class Documented(Agent):
    def __init__(self, served: Served, name: str) -> None:
        super().__init__(served)
        self.name = name

    def hooks(self, name: str = "") -> Any:
        """Return the documented session's hooks as of this session and of now, or the first of a name."""
        found = recorded(self.name, "documented.jsonl")
        if "timestamp" in found[0]:
            found = as_of(found, datetime.now(UTC))
        for hook in found:
            hook |= {field: self.session for field in ("session_id", "conversation_id") if field in hook}
        return next(hook for hook in found if name in hook.values()) if name else found


@every_agent
@pytest.mark.parametrize("seed", range(2))
def test_a_session_is_one_in_any_order_and_posted_twice(served: Served, name: str, seed: int) -> None:
    agent = Documented(served, name)
    hooks = agent.hooks() * 2
    if seed:
        random.Random(seed).shuffle(hooks)
    assert [agent.post(hook) for hook in hooks] == [{}] * len(hooks)
    assert Counter(kind for (kind,) in agent.told("e.event_type")) == STORIES[name]
    assert set(agent.told("c.source")) == {(name,)}
    if not seed:
        assert agent.calls()[2] == 0, "a call that its result does not complete"
        assert agent.served.sql(
            "SELECT project_dir FROM sessions WHERE executor_session_id = ?", (agent.session,)
        ) == [("/home/dev/project",)]


@every_agent
def test_a_call_that_a_rule_wants_asked_is_approved_and_denied_in_its_form(served: Served, name: str) -> None:
    agent = Documented(served, name)
    rules(served, {"tool": SHELLS[name], "pattern": "ls -la", "verdict": "ask", "deny_at_deadline": True})
    before, approved, denied = HELD[name]
    answer = agent.held(agent.hooks(before), "approved")
    assert answer.items() >= approved.items()
    other = Documented(served, name)
    answer = other.held(other.hooks(before), "denied", reason="Not from here.")
    assert answer.items() >= denied.items()
    assert any(str(said).endswith("in Signalbox: Not from here.") for said in answer.values())
    silent = Documented(served, name)
    assert silent.post(silent.hooks(before), wait=0.2).items() >= denied.items()


def test_cursor_tells_which_server_s_tool_it_is(served: Served) -> None:
    rules(served, {"tool": "mcp__github__*", "verdict": "deny", "reason": "Never."})
    agent = Documented(served, "cursor")
    answer = agent.post(agent.hooks("beforeMCPExecution"))
    assert (answer["permission"], "Never." in answer["agent_message"]) == ("deny", True)


def test_cursor_runs_an_edited_input_where_its_generic_hook_asks(served: Served) -> None:
    rules(served, {"tool": "Shell", "pattern": "git push", "verdict": "ask"})
    agent = Documented(served, "cursor")
    generic = agent.hooks("beforeShellExecution") | {
        "hook_event_name": "preToolUse",
        "tool_name": "Shell",
        "tool_input": {"command": "git push", "working_directory": ""},
        "tool_use_id": "call_1",
    }
    answer = agent.held(generic, "approved", edited="git push --dry-run", edited_field="command")
    assert answer["updated_input"]["command"] == "git push --dry-run"
    silent = agent.post(generic | {"tool_use_id": "call_2"}, wait=0.2)
    assert silent["permission"] == "deny"


def test_the_same_words_at_the_end_of_two_turns_are_two_messages(served: Served) -> None:
    session = str(uuid.uuid4())
    client = served.client("agent")
    for number in range(2):
        for event, more in (
            ("UserPromptSubmit", {"message": f"Do step {number}."}),
            ("Stop", {"last_assistant_message": "All done."}),
        ):
            body = body_of({"event": event, "session_id": session, **more})
            headers = {"X-Signalbox-Hook-Id": uuid.uuid4().hex}
            assert client.post("/hooks/goose", content=body, headers=headers).status_code == 200
    roles = served.sql(
        "SELECT e.role FROM events e JOIN sessions s ON s.session_id = e.session_id"
        " WHERE s.executor_session_id = ? AND e.event_type = 'message' ORDER BY e.id",
        (session,),
    )
    assert [role for (role,) in roles] == ["user", "assistant", "user", "assistant"]
