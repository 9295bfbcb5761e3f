"""An event of a type that is nobody's here is named in words; its details say what it was sent as."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.looks.milestones import identifier_to_words
from tests.people import signed_in
from tests.timelines import add_events, make_session

pytestmark = pytest.mark.django_db
AUTH = {"method": "_auth/status_update", "params": {"authStatus": {"kind": "gateway"}}}


@pytest.mark.parametrize(
    ("event", "words", "detail"),
    [
        ({"event_type": "managed_settings_resolved"}, "The agent read its managed settings", ""),
        ({"event_type": "SubagentStop", "tool_input": {"agent_id": "a"}}, "Sub-agent ended", "agent_id"),
        ({"event_type": "agent_message", "tool_input": AUTH}, "Message of the agent: auth status update", "gateway"),
        (
            {"event_type": "agent_message", "tool_input": {"message": '{"method": "craft/drainMidTurnQueue", "par'}},
            "Message of the agent: craft drain mid turn queue",
            "drainMidTurnQueue",
        ),
        ({"event_type": "agent_message", "tool_input": {"message": 7}}, "Message of the agent", "7"),
        ({"event_type": "InstructionsLoaded"}, "Instructions loaded", ""),
        ({"event_type": "ConfigChange", "tool_input": {"source": "skills"}}, "Settings changed: skills", "source"),
        (
            {"event_type": "Elicitation", "tool_input": {"mcp_server_name": "s", "message": "Which\none?"}},
            "An MCP server asks: Which one?",
            "mcp_server_name",
        ),
        ({"event_type": "TaskCreated", "tool_input": {"task_subject": 7}}, "Task created", "7"),
        ({"event_type": "compaction"}, "Conversation compacted", ""),
        (
            {"event_type": "compaction", "tool_input": {"trigger": "auto", "preTokens": 155_000}},
            "Conversation compacted · automatically · 155,000 tokens before",
            "",
        ),
        (
            {"event_type": "compaction", "tool_input": {"trigger": ["x"], "preTokens": "<b>"}},
            "Conversation compacted",
            "",
        ),
        ({"event_type": "api_retries_exhausted"}, "Api retries exhausted", "api_retries_exhausted"),
        ({"event_type": "note_delivered", "source": "executor"}, "note_delivered", ""),
    ],
)  # fmt: skip
def test_it_has_words(event: dict[str, Any], words: str, detail: str) -> None:
    session = make_session("ses_a", status="running")
    add_events(session, [event])
    body = signed_in("viewer").get("/ui/sessions/ses_a/").content.decode()
    assert f">{words}</a>" in body
    assert detail in body.partition(f">{words}</a>")[2]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MCPServerAdded", "MCP server added"),
        ("_auth/status_update", "Auth status update"),
        ("PreToolUse", "Pre tool use"),
        ("größe", "Größe"),
        ("!?", "!?"),
        ("", ""),
        ("x" * 5_000, "X" + "x" * 99),
    ],
)
def test_identifiers_become_words(name: str, words: str) -> None:
    assert identifier_to_words(name) == words
