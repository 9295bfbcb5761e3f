"""Every endpoint that a session can be named at, with every scope, on a session of another agent: one table.

A row says how the session is named there (in the path, the body, a header, or by the executor's own id). Who may not
write changes nothing in it, whatever is answered; who may not read is not told a word of it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from coordinator.actions.people.keys import hash_api_key
from tests.guards.table import API, EDGE
from tests.served import KEYS, Served

pytestmark = pytest.mark.served

SESSION, RUN, EXECUTOR = "ses_good", "run_good", "claude-of-good"
MARKER = "the-secret-of-agent-good"
AT = "2026-02-23T12:00:00+00:00"


@dataclass(frozen=True)
class Caller:
    """A key, and what it may do with the session: agent.good's, taken by a runner of another key."""

    scopes: tuple[str, ...]
    agent_id: str | None = None
    writes: bool = False
    reads: bool = True

    def may_call(self, who: str) -> bool:
        return bool(set(self.scopes) & set(who.split()))


CALLERS = {
    "own": Caller(("agent",), "agent.good", writes=True),
    "operator": Caller(("operator",), writes=True),
    "unbound": Caller(("agent",), writes=True),
    "read": Caller(("read",)),
    "runner": Caller(("runner",)),
    "evil": Caller(("agent",), "agent.evil", reads=False),
    "evil-runs": Caller(("agent", "runner"), "agent.evil"),
    "evil-reads": Caller(("agent", "read"), "agent.evil"),
}


@dataclass(frozen=True)
class Row:
    """A request that names the session. `lets_in`: whoever may write leaves something in it."""

    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    lets_in: bool = False


EVENT = {"event_type": "message", "timestamp": AT, "role": "user", "content": [{"type": "text", "text": "x"}]}
HOOK = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "x"}, "cwd": "/"}
SAID = {"hook_event_name": "Notification", "message": "x", "cwd": "/"}  # what a runner does not tell itself
HEADER = {"X-Signalbox-Session": SESSION}
ASK = {"plugin_id": "mind.x", "permission_type": "FileWrite", "justification": "because"}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {}}}


def pair(name: str, value: str) -> dict[str, Any]:
    return {"key": name, "value": {"stringValue": value}}


def logs() -> dict[str, Any]:
    attributes = [pair("event.name", "user_prompt"), pair("session.id", EXECUTOR), pair("prompt", "x")]
    record = {"timeUnixNano": "1771848000000000000", "body": {"stringValue": "x"}, "attributes": attributes}
    resource = {"attributes": [pair("service.name", "claude-code")]}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}]}


RUNNER_BODY = {"runner_id": "lnch_other"}
WRITES = [
    Row("POST", f"/sessions/{SESSION}/events", EVENT | {"session_id": SESSION}, lets_in=True),
    Row("POST", "/api/events", {"events": [EVENT | {"session_id": SESSION}]}),
    Row("POST", "/hooks/claude-code", HOOK | {"session_id": "anything", "tool_use_id": "t1"}, HEADER),
    Row("POST", "/hooks/claude-code", HOOK | {"session_id": EXECUTOR, "tool_use_id": "t2"}),
    Row("POST", "/hooks/claude-code", SAID | {"session_id": "anything"}, HEADER, lets_in=True),
    Row("POST", "/hooks/claude-code", SAID | {"session_id": EXECUTOR}, lets_in=True),
    Row("POST", "/hooks/codex", HOOK | {"session_id": "anything", "tool_use_id": "t3"}, HEADER),
    Row("POST", "/v1/logs", logs()),
    Row("POST", "/v1/traces", {"resourceSpans": []}),
    Row("POST", "/v1/metrics", {"resourceMetrics": []}),
    Row("POST", f"/runner/sessions/{SESSION}/updates", RUNNER_BODY | {"updates": [], "run_id": RUN}),
    Row("POST", f"/runner/sessions/{SESSION}/permission", RUNNER_BODY | {"run_id": RUN, "tool_call": {}}),
    Row("POST", f"/runner/sessions/{SESSION}/permission/withdraw", RUNNER_BODY | {"toolCallId": "t"}),
    Row("POST", f"/runner/sessions/{SESSION}/gateway", RUNNER_BODY | {"program": "claude"}),
    Row("POST", f"/runner/sessions/{SESSION}/status", RUNNER_BODY | {"status": "finished"}),
    *(Row("POST", f"/runner/runs/{RUN}/{word}", RUNNER_BODY) for word in ("started", "completed", "failed", "stopped")),
    Row("POST", f"/sessions/{SESSION}/bind", {"executor_session_id": "e", "hostname": "h", "executor_profile": "p"}),
    Row("PATCH", f"/sessions/{SESSION}/metadata", {"agent_name": "agent.evil"}),
    Row("POST", f"/sessions/{SESSION}/stop"),
    Row("POST", f"/runs/{RUN}/stop"),
    Row("POST", "/runs", {"type": "resume_session", "session_id": SESSION, "prompt": "x"}),
    Row("POST", "/runs", {"type": "start_session", "parent_session_id": SESSION, "prompt": "x",
                          "execution_mode": "async_callback"}),
    Row("POST", "/runs", {"type": "start_session", "parameters": {"prompt": "x", "fork_of": SESSION}}),
    Row("POST", "/api/permission-requests", ASK | {"session_id": SESSION}, lets_in=True),
    Row("POST", "/mcp", CALL, HEADER),
    Row("POST", "/mcp/collections/team", CALL, HEADER | {"Mcp-Session-Id": SESSION}),
    Row("POST", "/mcp/s", CALL, HEADER | {"Mcp-Session-Id": SESSION}),
    Row("POST", "/api/mcp/calls", {"server": "s", "tool": "t", "arguments": "{}", "session": SESSION}, HEADER),
    Row("DELETE", f"/sessions/{SESSION}"),
]  # fmt: skip
READS = [
    *(
        Row("GET", f"/sessions/{SESSION}{what}")
        for what in ("", "/status", "/result", "/affinity", "/events")
    ),
    Row("GET", "/sessions"),
    Row("GET", "/runs"),
    Row("GET", f"/runs/{RUN}"),
    Row("GET", f"/sse/sessions?session_id={SESSION}"),
]


def who_may(row: Row) -> str:
    """Return the scopes that the tables of endpoints give for the row's request."""
    path = row.path.partition("?")[0]
    for (method, pattern), who in EDGE.items():
        if method == row.method and re.fullmatch(pattern, path):
            return who
    for route, who in API.items():
        method, _, pattern = route.partition(" ")
        if method == row.method and re.fullmatch(re.sub(r"<[^>]+>", "[^/]+", pattern), path):
            return who
    raise AssertionError(f"no endpoint: {row.method} {row.path}")


def test_every_endpoint_that_names_a_session_or_a_run_has_a_row() -> None:
    rows = [(row.method, row.path.partition("?")[0]) for row in (*WRITES, *READS)]
    routes = [(*route.split(" ", 1),) for route in API if re.search(r"<(session_id|run_id)>", route)]
    patterns = [(method, re.sub(r"<[^>]+>", "[^/]+", pattern)) for method, pattern in routes]
    patterns += [
        (method, pattern)
        for method, pattern in EDGE
        if re.search(r"/sessions/|/hooks/|/events|/v1/|^/mcp|/sse/", pattern) and method == "POST"
    ]
    missing = [
        (method, pattern)
        for method, pattern in patterns
        if not any(method == made and re.fullmatch(pattern, path) for made, path in rows)
    ]
    assert missing == []


@pytest.fixture(scope="module")
def clients(box: Served) -> dict[str, httpx.Client]:
    """A client for each caller; the session with its run and a note stands in the database."""
    for name, caller in CALLERS.items():
        box.sql(
            "INSERT INTO api_keys (name, prefix, key_hash, scopes, created_at, agent_id) VALUES (?, ?, ?, ?, ?, ?)",
            (
                f"whose-{name}",
                "sbx_",
                hash_api_key(f"sbx_whose-{name}"),
                json.dumps(caller.scopes),
                AT,
                caller.agent_id,
            ),
        )
    box.sql(
        "INSERT INTO sessions (session_id, status, created_at, agent_name, executor_session_id, project_dir, hostname)"
        " VALUES (?, 'running', ?, 'agent.good', ?, '/', 'h')",
        (SESSION, AT, EXECUTOR),
    )
    box.sql(
        "INSERT INTO runs (run_id, session_id, type, status, prompt, created_at, started_at, runner_id)"
        " VALUES (?, ?, 'start_session', 'running', ?, ?, ?, 'lnch_other')",
        (RUN, SESSION, MARKER, AT, AT),
    )
    box.sql(
        "INSERT INTO driven_sessions (session_id, runner_id, run_id) VALUES (?, 'lnch_other', ?)",
        (SESSION, RUN),
    )
    box.sql(
        "INSERT INTO session_writers (session_id, writer, is_runner) VALUES (?, 'another', ?)",
        (SESSION, True),
    )
    box.sql(
        "INSERT INTO tool_collections (name, description, tools, changed_by, changed_at)"
        " VALUES ('team', '', '[]', '', ?)",
        (AT,),
    )
    message = EVENT | {"session_id": SESSION, "content": [{"type": "text", "text": MARKER}]}
    assert box.client("operator").post(f"/sessions/{SESSION}/events", json=message).status_code < 300
    box.sql(
        "INSERT INTO session_notes (session_id, text, written_at, written_by) VALUES (?, ?, ?, 'user:ann')",
        (SESSION, MARKER, AT),
    )
    return {name: box.client(None, follow_redirects=False) for name in CALLERS}


@pytest.fixture(autouse=True)
def _living_runner(box: Served, request: pytest.FixtureRequest) -> None:
    """The runner that has the session in hand is there, so that housekeeping leaves the session alone."""
    if "clients" in request.fixturenames:
        now = datetime.now(UTC).isoformat()
        box.sql("DELETE FROM runners WHERE runner_id = 'lnch_other'")
        box.sql(
            "INSERT INTO runners (runner_id, hostname, project_dir, executor_profile, tags, extra, registered_at,"
            " last_heartbeat, registered_by) VALUES ('lnch_other', 'h', '/', 'p', '[]', '{}', ?, ?, 'another')",
            (now, now),
        )


def ask(client: httpx.Client, name: str, row: Row) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer sbx_whose-{name}", "Accept": "application/json, text/event-stream"}
    with client.stream(row.method, row.path, headers=headers | row.headers, json=row.body) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return answer.status_code, next(answer.iter_text(), "") if answer.status_code == 200 else ""
        return answer.status_code, answer.read().decode()


def state(box: Served) -> list[Any]:
    """Return all that the session holds."""
    tables = {
        "sessions": "session_id, status, agent_name, executor_session_id, executor_profile, hostname",
        "runs": "run_id, status",
        "driven_sessions": "run_id, agent_session_id, last_n",
        "session_notes": "text, given_at, closed_at",
        "session_writers": "writer",
        "events": "event_type, tool_name",
        "permission_context": "requested_by",
    }
    return [
        sorted(map(str, box.sql(f"SELECT {columns} FROM {name} WHERE session_id = ?", (SESSION,))))
        for name, columns in tables.items()
    ] + [box.sql("SELECT count(*) FROM runs WHERE parent_session_id = ?", (SESSION,))]


@pytest.mark.parametrize("row", WRITES, ids=[f"{row.method} {row.path} {n}" for n, row in enumerate(WRITES)])
def test_who_may_not_write_into_a_session_changes_nothing_in_it(
    box: Served, clients: dict[str, httpx.Client], row: Row
) -> None:
    before = state(box)
    changed, told, failed = [], [], []
    for name, caller in CALLERS.items():
        if caller.writes and caller.may_call(who_may(row)):
            continue
        status, text = ask(clients[name], name, row)
        if (after := state(box)) != before:
            changed.append(
                (name, status, [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]])
            )
            before = after
        if not caller.reads and MARKER in text:
            told.append(name)
        if status >= 500:
            failed.append((name, status))
    assert (changed, told, failed) == ([], [], [])


@pytest.mark.parametrize("row", READS, ids=[f"{row.method} {row.path}" for row in READS])
def test_who_may_not_read_a_session_is_told_nothing_of_it(
    box: Served, clients: dict[str, httpx.Client], row: Row
) -> None:
    told = {
        name
        for name in CALLERS
        if any(word in ask(clients[name], name, row)[1] for word in (MARKER, SESSION))
    }
    assert not told & {name for name, caller in CALLERS.items() if not caller.reads}


@pytest.mark.parametrize(
    "row", [row for row in WRITES if row.lets_in], ids=[row.path for row in WRITES if row.lets_in]
)
def test_the_same_requests_reach_the_session_of_who_may(
    box: Served, clients: dict[str, httpx.Client], row: Row
) -> None:
    """Else the rows above would show nothing."""
    before = state(box)
    status, _ = ask(clients["own"], "own", row)
    assert status < 300
    assert state(box) != before


def test_the_table_of_keys_is_whole() -> None:
    assert {scope for caller in CALLERS.values() for scope in caller.scopes} == set(KEYS) - {"all"}
