"""The edge's own doors, at the served program: each key at each door, and what agents' keys find behind them."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from coordinator.actions.people.keys import hash_api_key
from coordinator.identity.scopes import SCOPES
from tests.guards.callers import AGENT
from tests.guards.table import EDGE
from tests.served import KEYS, Served

pytestmark = pytest.mark.served

MADE = {
    "expired": ("expires_at", "2026-01-01T00:00:00+00:00"),
    "revoked": ("revoked_at", "2026-01-01T00:00:00+00:00"),
    "bound": ("agent_id", AGENT),
    "reader of its own": ("agent_id", "agent.other"),
}
SCOPE_LISTS = {"bound": '["agent"]', "reader of its own": '["agent"]'}


@pytest.fixture(scope="module")
def keys(box: Served) -> dict[str, tuple[str, frozenset[str]]]:
    """Keys by what they are, with the scopes that count."""
    for name, (column, value) in MADE.items():
        scopes = SCOPE_LISTS.get(name, json.dumps(SCOPES))
        box.sql(
            f"INSERT INTO api_keys (name, prefix, key_hash, scopes, created_at, {column}) VALUES (?, ?, ?, ?, ?, ?)",
            (name, "sbx_", hash_api_key(f"sbx_{name}"), scopes, "2026-01-01T00:00:00+00:00", value),
        )
    found = {scope: (KEYS[scope], frozenset({scope})) for scope in SCOPES}
    found |= {name: (f"sbx_{name}", frozenset()) for name in ("expired", "revoked")}
    return found | {name: (f"sbx_{name}", frozenset({"agent"})) for name in SCOPE_LISTS}


def knock(box: Served, method: str, path: str, raw: str | None, body: Any = None) -> httpx.Response:
    headers = {} if raw is None else {"Authorization": f"Bearer {raw}"}
    with box.client(key=None).stream(method, path, headers=headers, json=body or {}) as answer:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            answer.read()
        return answer


@pytest.mark.parametrize(("door", "who"), EDGE.items(), ids=[" ".join(door) for door in EDGE])
def test_a_door_lets_in_whom_the_table_says(
    box: Served, keys: dict[str, tuple[str, frozenset[str]]], door: tuple[str, str], who: str
) -> None:
    method, pattern = door
    path = re.sub(r"\([^)]+\)", "nothing-there", pattern)
    wrong = []
    for name, (raw, scopes) in {**keys, "nobody": (None, frozenset())}.items():
        answer = knock(box, method, path, raw)
        if who == "anyone" or (path, name) == ("/metrics", "nobody"):
            right = answer.status_code == 200
        elif who != "viewer" and scopes & set(who.split()):
            refused = answer.status_code in {401, 403}
            right = not refused or re.search("not registered|is bound to", answer.text) is not None
        else:
            right = answer.status_code == (401 if who == "viewer" or not scopes else 403)
        if not right or answer.status_code >= 500:
            wrong.append(f"{name}: {answer.status_code}")
    assert wrong == []


def test_a_page_s_stream_is_for_people_with_a_role(box: Served) -> None:
    for name in ("viewer", "approver", "admin"):
        assert box.sign_in(name).get("/ui/live/?topics=nothing").status_code == 400
    statuses = [
        box.sign_in(name).get("/ui/live/?topics=api_keys nothing").status_code for name in ("viewer", "admin")
    ]
    assert statuses == [400, 400]
    assert box.sign_in("approver").get("/ui/live/?topics=users").status_code == 403


@pytest.fixture(scope="module")
def session(box: Served) -> str:
    """A session of the agent that the key `bound` speaks as."""
    hook = {"session_id": "claude-bound", "hook_event_name": "SessionStart", "cwd": "/x"}
    return next(iter(post_hook(box, "sbx_bound", hook)))


def post_hook(box: Served, raw: str, hook: dict[str, str]) -> set[str]:
    """Send a hook; return the sessions with its id, ours first."""
    assert knock(box, "POST", "/hooks/claude-code", raw, hook).status_code == 200
    rows = box.sql("SELECT session_id FROM sessions WHERE executor_session_id = ?", (hook["session_id"],))
    return {row[0] for row in rows}


@pytest.mark.usefixtures("keys")
def test_another_agents_key_writes_nothing_and_learns_nothing(box: Served, session: str) -> None:
    event = {"event_type": "message", "timestamp": "2026-11-21T12:00:00Z", "role": "user", "content": []}
    told = {}
    for name in (session, "ses_none"):
        answer = knock(
            box, "POST", f"/sessions/{name}/events", "sbx_reader of its own", event | {"session_id": name}
        )
        told[name] = (answer.status_code, answer.text)
    assert set(told.values()) == {(404, '{"detail":"Session not found"}')}
    both = [event | {"session_id": name} for name in (session, "ses_none")]
    results = knock(box, "POST", "/api/events", "sbx_reader of its own", both).json()["results"]
    assert [(one["status"], one["detail"]) for one in results] == [(404, "Session not found")] * 2
    assert knock(box, "POST", "/api/events", "sbx_bound", both[:1]).json()["accepted"] == 1
    assert knock(box, "POST", f"/sessions/{session}/events", "sbx_bound", both[0]).status_code == 201


@pytest.mark.usefixtures("keys")
def test_a_stolen_session_id_in_a_hook_leads_into_a_session_of_ones_own(box: Served, session: str) -> None:
    before = box.sql("SELECT count(*) FROM events WHERE session_id = ?", (session,))
    hook = {
        "session_id": "claude-bound",
        "hook_event_name": "UserPromptSubmit",
        "prompt": "forged",
        "cwd": "/x",
    }
    assert len(post_hook(box, "sbx_reader of its own", hook)) == 2
    assert box.sql("SELECT count(*) FROM events WHERE session_id = ?", (session,)) == before


@pytest.mark.usefixtures("keys")
def test_an_agents_stream_is_of_one_session_of_its_own(box: Served, session: str) -> None:
    place = f"/sse/sessions?session_id={session}"
    assert knock(box, "GET", place, "sbx_bound").status_code == 200
    assert knock(box, "GET", "/sse/sessions", "sbx_bound").status_code == 403
    for other in (place, "/sse/sessions?session_id=ses_none"):
        answer = knock(box, "GET", other, "sbx_reader of its own")
        assert (answer.status_code, answer.text) == (404, '{"detail":"Session not found"}')


def test_a_key_of_several_agents_speaks_for_the_one_that_a_request_names(box: Served) -> None:
    raw, agents = "sbx_of-several", ["claude-code", "agent.x"]
    box.sql(
        "INSERT INTO api_keys (name, prefix, key_hash, scopes, created_at, agent_ids) VALUES (?, ?, ?, ?, ?, ?)",
        (
            "of several",
            "sbx_",
            hash_api_key(raw),
            '["agent"]',
            "2026-01-01T00:00:00+00:00",
            json.dumps(agents),
        ),
    )
    http = box.client(key=None)
    http.headers["Authorization"] = f"Bearer {raw}"

    def hook(agent: str) -> httpx.Response:
        body = {"session_id": f"of-several-{agent}", "hook_event_name": "SessionStart", "cwd": "/x"}
        return http.post(f"/hooks/{agent}", json=body)

    assert hook("claude-code").status_code == 200
    refused = hook("codex")
    assert (refused.status_code, "is bound to agent.x, claude-code" in refused.text) == (403, True)
    made = box.sql("SELECT agent_name FROM sessions WHERE executor_session_id LIKE 'of-several-%'")
    assert made == [("claude-code",)]

    def call(**headers: str) -> httpx.Response:
        about = {"name": "t", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
        return http.post(
            "/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
            headers={"Accept": "application/json, text/event-stream", **headers},
        )

    assert call(**{"X-Signalbox-Agent": "agent.x"}).status_code == 200
    assert call(**{"X-Signalbox-Agent": "agent.y"}).status_code == 403
    assert call().status_code == 403

    question = {"server_id": "s", "tool_name": "t"}
    asked = [http.post("/api/access/check", json=question | {"agent_id": f"agent.{name}"}) for name in "xy"]
    assert [answer.status_code for answer in asked] == [200, 403]
