"""JSON that nests deeper than a hundred levels is refused with a reason at every door, and is nowhere a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.lib import json_bounds
from tests.live.connections import connect, make_session, message, post
from tests.served import Served

pytestmark = pytest.mark.served

DEPTHS = {"just too deep": 101, "for Python": 1_500, "for anybody": 100_000}


@pytest.fixture(scope="module")
def server(one_server: Served) -> Served:
    make_session(one_server, "ses_1")
    return one_server


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


def event(text: str) -> str:
    whole = json.dumps(message("ses_1", "x") | {"tool_input": {"a": "HERE"}})
    return whole.replace('"HERE"', text)


@pytest.mark.parametrize("levels", DEPTHS.values(), ids=DEPTHS)
@pytest.mark.parametrize("form", ["array", "lines"])
def test_of_a_batch_the_deep_event_is_refused_alone(server: Served, levels: int, form: str) -> None:
    events = [event("1"), event(deep(levels)), event('"[[[,\\""')]
    body = f"[{','.join(events)}]" if form == "array" else "\n".join(events)
    kind = "application/json" if form == "array" else "application/x-ndjson"
    status, answer = post(connect(server), "/api/events", body.encode(), Content_Type=kind)
    assert (status, answer["accepted"]) == (200, 2)
    refused = answer["results"][1]
    assert (refused["status"], [one["status"] for one in answer["results"]]) == (422, [201, 422, 201])
    assert "deeper than 100 levels" in json.dumps(refused["detail"])


HOOK = '{"session_id": "c", "hook_event_name": "PostToolUse", "tool_name": "x", "cwd": "/", "tool_input": {"a": %s}}'
LOGS = '{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": %s}]}]}]}'
ASK = '{"plugin_id": "p", "permission_type": "t", "justification": "j", "tool_input": {"a": %s}}'
DOORS = {
    "event": ("/sessions/ses_1/events", None, 422),
    "telemetry": ("/v1/logs", LOGS, 400),
    "ask": ("/api/permission-requests", ASK, 422),
    "chat": ("/api/chat/agent.alpha/messages", '{"content": [{"type": "x", "v": %s}]}', 400),
    "run": ("/runs", '{"type": "start_session", "prompt": "x", "demands": %s}', 422),
    "runner": ("/runner/register", '{"hostname": "h", "project_dir": "/", "executor": {"a": %s}}', 422),
    "blueprint": ("/agents", '{"name": "n", "mcp_servers": {"a": %s}}', 422),
    "capability": ("/capabilities", '{"name": "n", "mcp_servers": {"a": %s}}', 422),
}


@pytest.mark.parametrize("levels", DEPTHS.values(), ids=DEPTHS)
@pytest.mark.parametrize(("path", "body", "status"), DOORS.values(), ids=DOORS)
def test_every_json_door_says_why(
    server: Served, path: str, body: str | None, status: int, levels: int
) -> None:
    text = event(deep(levels)) if body is None else body % deep(levels)
    told, answer = post(connect(server), path, text.encode(), Content_Type="application/json")
    assert told == status, answer
    assert "deeper than 100 levels" in json.dumps(answer)


@pytest.mark.parametrize("levels", DEPTHS.values(), ids=DEPTHS)
def test_a_hook_that_is_too_deep_is_an_event_that_says_why(server: Served, levels: int) -> None:
    body = (HOOK % deep(levels)).replace('"c"', f'"deep-{levels}"')
    assert (
        post(connect(server), "/hooks/claude-code", body.encode(), Content_Type="application/json")[0] == 200
    )
    rows = server.sql("SELECT tool_input FROM events WHERE event_type = 'unreadable_hook' ORDER BY id DESC")
    assert "deeper than 100 levels" in rows[0][0]


def test_a_question_about_access_is_not_hurt_by_what_it_does_not_read(server: Served) -> None:
    body = f'{{"agent_id": "a", "server_id": "s", "tool_name": "t", "more": {deep(1_500)}}}'
    assert post(connect(server), "/api/access/check", body.encode())[0] == 422


TEXTS = ['[[1],{"a":[2]}]', '["[[[", "]]]", "\\"["]', "[]", " [ ] ", '{"a":"\\\\"}', "1"]


@pytest.mark.parametrize("text", TEXTS)
def test_depth_is_counted_outside_of_texts(text: str) -> None:
    def depth(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    found = next(most for most in range(10) if not json_bounds.is_json_too_deep(text.encode(), most))
    assert found == depth(json.loads(text))


@pytest.mark.parametrize("text", ['[1, [2, 3], {"a": ",]"}]', "[]", " [ [] ] ", '["]","\\"]"]'])
def test_items_of_an_array_are_found_without_decoding(text: str) -> None:
    assert [json.loads(item) for item in json_bounds.split_json_array(text.encode())] == json.loads(text)


@pytest.mark.parametrize("text", ["[1", "[[", "{}", "", "[1] 2", "1", "[1]]"])
def test_what_is_no_whole_array_has_no_items(text: str) -> None:
    with pytest.raises(ValueError, match="array"):
        json_bounds.split_json_array(text.encode())
