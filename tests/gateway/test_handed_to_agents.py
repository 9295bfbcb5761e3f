"""A runner hands the gateway to the sessions that it starts, with a key that is good for nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.agents import LONG_AGO, furnish
from tests.gateway.conftest import TABLES
from tests.gateway.example_server import Example
from tests.runner.person import Person
from tests.served import Served

pytestmark = pytest.mark.served

CALL = 'do: tool signalbox example__echo {"text": "hi"}'


@pytest.fixture
def person(served: Served, example: Example, tmp_path: Path) -> Iterator[Person]:
    """Somebody with a runner, a blueprint `coder` that may call the example server's tools, and one that may not."""
    served.emptied(*TABLES, "session_keys")
    furnish(served, example.url, policy="opt-in")
    grant = (
        "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, permission, granted_at)"
        " VALUES ('server_grant', 'coder', 'example', 'allow', ?)"
    )
    served.sql(grant, (LONG_AGO,))
    (tmp_path / "work").mkdir()
    someone = Person(served, tmp_path / "work")
    for name in ("coder", "stranger"):
        someone.http.delete(f"/agents/{name}")
        made = someone.http.post("/agents", json={"name": name, "description": "For tests."})
        assert made.status_code == 201, made.text
    with someone.runner():
        yield someone


def key_of(served: Served, session: str) -> list[Any]:
    return served.sql("SELECT agent_id, key_hash FROM session_keys WHERE session_id = ?", (session,))


@pytest.mark.parametrize("agent", ["scripted", "older"])
def test_an_agent_calls_what_it_was_granted_and_the_call_stands_in_its_session(
    person: Person, example: Example, agent: str
) -> None:
    run, session = person.order(f"{CALL}; servers", agent=agent, agent_name="coder")
    person.status(run, "completed")
    person.until(lambda: "echo: hi" in person.said(session))
    assert example.calls["echo hi"] == 1
    assert f'"signalbox\\", \\"{"http" if agent == "scripted" else "stdio"}' in person.said(session)
    asked = (
        "SELECT session_id FROM events WHERE tool_name = 'mcp__example__echo' AND event_type = 'post_tool'"
    )
    person.until(lambda: person.served.sql(asked) == [(session,)])
    assert [agent_id for agent_id, _ in key_of(person.served, session)] == ["coder"]
    run, _ = person.order(CALL.replace("hi", "again"), session, agent=agent)
    person.status(run, "completed")
    assert example.calls["echo again"] == 1, "the kept agent's key is good for its next turn"
    assert person.http.post(f"/sessions/{session}/stop").status_code == 200
    person.until(lambda: not key_of(person.served, session))


def test_who_has_no_grant_or_has_switched_it_off_is_handed_nothing(person: Person) -> None:
    run, session = person.order("do: servers; say done", agent_name="stranger")
    person.status(run, "completed")
    person.until(lambda: "done" in person.said(session))
    assert "signalbox" not in person.said(session)
    off = {"mcp_servers": {"signalbox": {"type": "off"}}}
    assert person.http.patch("/agents/coder", json=off).status_code == 200
    run, session = person.order("do: servers; say done", agent_name="coder")
    person.status(run, "completed")
    person.until(lambda: "done" in person.said(session))
    assert "signalbox" not in person.said(session)
    assert person.served.sql("SELECT count(*) FROM session_keys") == [(0,)]


def test_the_key_opens_no_other_door_and_ends_with_its_session(person: Person) -> None:
    runner_id, session, key = held_session(person)
    agent = person.served.client(key=None)
    agent.headers["Authorization"] = f"Bearer {key}"
    refused = {
        agent.get("/sessions").status_code,
        agent.get("/runner/runs", params={"runner_id": runner_id}).status_code,
        agent.post(f"/sessions/{session}/events", json={}).status_code,
        agent.post("/api/permission-requests", json={}).status_code,
        agent.post("/hooks/claude-code", json={}).status_code,
        agent.post("/api/mcp/calls", json={}).status_code,
        agent.post("/api/access/check", json={}).status_code,
    }
    assert refused == {403}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    accept = {"Accept": "application/json, text/event-stream"}
    assert agent.post("/mcp", json=begin, headers=accept).status_code == 200
    assert (
        agent.post("/mcp", json=begin, headers={**accept, "X-Signalbox-Agent": "agent.one"}).status_code
        == 403
    )
    person.served.client("runner").post(
        f"/runner/runs/{run_of(person, session)}/failed", json={"runner_id": runner_id, "error": "x"}
    )
    person.until(lambda: agent.post("/mcp", json=begin, headers=accept).status_code == 401)


def held_session(person: Person) -> tuple[str, str, str]:
    """Take a run as a runner of the test's own does; return the runner, the session and its agent's key."""
    runner = person.served.client("runner")
    host = f"{person.host}-own"
    identity = {"hostname": host, "project_dir": str(person.work), "executor_profile": "signalbox"}
    offers = {"agents": [{"name": "scripted"}], "directories": [str(person.work)]}
    body = {**identity, "executor": {"type": "autonomous", "lifecycle": "persistent"}, "offers": offers}
    runner_id = runner.post("/runner/register", json=body).json()["runner_id"]
    _, session = person.order("hi", agent_name="coder", additional_demands={"hostname": host})
    assert runner.get("/runner/runs", params={"runner_id": runner_id}).json()["run"]["session_id"] == session
    asked = {"runner_id": runner_id, "agent": "scripted"}
    handed = runner.post(f"/runner/sessions/{session}/gateway", json=asked).json()
    again = runner.post(f"/runner/sessions/{session}/gateway", json=asked).json()
    assert handed["key"] != again["key"]
    assert len(key_of(person.served, session)) == 1, "the earlier one has ended"
    return runner_id, session, again["key"]


def run_of(person: Person, session: str) -> str:
    return str(person.served.sql("SELECT run_id FROM runs WHERE session_id = ?", (session,))[0][0])


def test_the_key_stands_nowhere_though_the_agent_says_it(person: Person) -> None:
    run, session = person.order("do: leak", agent_name="coder")
    person.status(run, "failed")
    person.until(lambda: "signalbox" in person.said(session))
    kept = json.dumps(
        [
            person.served.sql("SELECT * FROM events WHERE session_id = ?", (session,)),
            person.served.sql("SELECT * FROM event_context WHERE session_id = ?", (session,)),
            person.served.sql("SELECT * FROM runs WHERE session_id = ?", (session,)),
            person.served.sql("SELECT * FROM drafts WHERE session_id = ?", (session,)),
            person.served.sql("SELECT * FROM audit_logs"),
        ],
        default=str,
    )
    assert "Bearer" in kept, "it did say it"
    assert re.findall(r"sbx_[A-Za-z0-9_-]{3,}", kept) == []
    assert not key_of(person.served, session)


def test_the_key_ends_with_the_key_of_the_runner_that_it_was_handed_to(person: Person) -> None:
    runner_id, _, key = held_session(person)
    agent = person.served.client(key=None)
    agent.headers.update({"Authorization": f"Bearer {key}", "Accept": "application/json, text/event-stream"})
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    assert agent.post("/mcp", json=begin).status_code == 200
    ((name,),) = person.served.sql("SELECT registered_by FROM runners WHERE runner_id = ?", (runner_id,))
    person.served.sql("UPDATE api_keys SET revoked_at = ? WHERE name = ?", (LONG_AGO, name))
    try:
        person.until(lambda: agent.post("/mcp", json=begin).status_code == 401)
    finally:
        person.served.sql("UPDATE api_keys SET revoked_at = NULL WHERE name = ?", (name,))
