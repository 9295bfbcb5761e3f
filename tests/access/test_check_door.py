"""The enforcing door of the served program: answered from memory, and never behind an edit."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.patience import PATIENCE, until
from tests.served import Served

pytestmark = pytest.mark.served

T0 = "2026-02-20T00:00:00+00:00"
QUESTION = {"agent_id": "agent.a", "server_id": "s", "tool_name": "t"}


@pytest.fixture
def world(one_server: Served) -> Served:
    served = one_server.emptied("mcp_access_control", "mcp_servers", "agents")
    served.sql("INSERT INTO agents (id, name, default_engine_id) VALUES ('agent.a', 'a', 'mind.x')")
    served.sql("INSERT INTO mcp_servers (name, command, created_at) VALUES ('s', 'python3', 1)")
    return served


def give(served: Served, permission: str = "allow") -> None:
    """Grant as another program would, behind the server's back."""
    served.sql(
        "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, permission, granted_at)"
        " VALUES ('server_grant', 'agent.a', 's', ?, ?)",
        (permission, T0),
    )


def verdict(client: httpx.Client) -> str:
    answer = client.post("/api/access/check", json=QUESTION)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["verdict"])


def becomes(client: httpx.Client, wanted: str) -> None:
    """Ask until the verdict is `wanted`."""
    until(lambda: verdict(client) == wanted, f"still not {wanted}")


def test_an_edit_of_any_program_reaches_every_worker_at_once(world: Served) -> None:
    clients = [world.client("agent") for _ in range(4)]  # connections spread over the workers
    for client in clients:
        becomes(client, "deny")
    give(world)
    for client in clients:
        becomes(client, "allow")
    world.sql("UPDATE mcp_access_control SET permission = 'deny'")
    for client in clients:
        becomes(client, "deny")


def test_a_changed_policy_and_a_deleted_server_count_at_once(world: Served) -> None:
    client = world.client("agent")
    becomes(client, "deny")
    world.sql("UPDATE mcp_servers SET default_policy = 'opt-out'")
    becomes(client, "allow")
    world.sql("DELETE FROM mcp_servers")
    becomes(client, "deny")
    assert client.post("/api/access/check", json=QUESTION).json()["source"] == "unknown_server"


def test_a_waiting_check_is_answered_when_a_person_grants_in_the_browser(world: Served) -> None:
    client, approver = world.client("agent"), world.sign_in("approver")
    becomes(client, "deny")
    question = QUESTION | {
        "tool_name": "held"
    }  # a denial that was seen before would not be written again at once
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, "/api/access/check", json={**question, "wait": 15})
        held(world)
        began = time.monotonic()
        entry = {"entry_type": "server_grant", "agent_id": "agent.a", "server_id": "s", "permission": "allow"}
        saved = approver.put("/api/mcp/servers/s/access", json={"entries": [entry]})
        assert saved.status_code == 200, saved.text
        assert waiting.result(PATIENCE).json()["verdict"] == "allow"
        assert time.monotonic() - began < 10  # it would wait 15 s


def counted(world: Served, tool: str) -> list[int]:
    """Return how many denials each row of the audit log counts that tells of this tool."""
    rows = world.sql(
        "SELECT metadata FROM audit_logs WHERE event_type = 'ACCESS_DENIED' AND target_id = ? ORDER BY id",
        (f"agent.a s {tool}",),
    )
    return [int(json.loads(metadata)["count"]) for (metadata,) in rows]


def held(world: Served) -> None:
    """Wait until the denied check is in the audit log: by then its request is at the door."""
    until(lambda: counted(world, "held"), "the check never came")


def test_a_wait_ends_with_the_verdict_as_it_is(world: Served) -> None:
    client = world.client("agent")
    becomes(client, "deny")
    answer = client.post("/api/access/check", json={**QUESTION, "wait": 0.2})
    assert answer.json()["verdict"] == "deny"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"{", ["body", 1]),
        (b"{}", ["body", "server_id"]),
        (b"[]", ["body", "server_id"]),
        (b'{"agent_id":"a","server_id":"s","tool_name":"t","wait":601}', ["body", "wait"]),
        (b'{"agent_id":"a","server_id":"s\\u0000","tool_name":"t"}', ["body", "server_id"]),
        (b'{"checks":[{"agent_id":"a","server_id":"s"}]}', ["body", "checks", 0, "tool_name"]),
        (b'{"server_id":"s","tool_name":"t"}', ["body", "agent_id"]),
    ],
)
def test_what_cannot_be_read_is_refused_in_the_recorded_form(
    one_server: Served, body: bytes, place: list[Any]
) -> None:
    answer = one_server.client("agent").post("/api/access/check", content=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"][0]["loc"] == place


def test_only_keys_that_may_ask_are_answered(one_server: Served) -> None:
    assert one_server.client(None).post("/api/access/check", json=QUESTION).status_code == 401
    assert one_server.client("read").post("/api/access/check", json=QUESTION).status_code == 200


def test_a_check_answers_verdict_source_row_end_and_reason(world: Served) -> None:
    client = world.client("agent")
    world.sql(
        "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, tool_name, permission, granted_at,"
        " granted_by, expires_at, justification) VALUES ('tool_grant', 'agent.a', 's', 't', 'allow', ?, 'alice',"
        " '2099-01-01T00:00:00.000000+00:00', 'For the release.')",
        (T0,),
    )
    becomes(client, "allow")
    ((row,),) = world.sql("SELECT id FROM mcp_access_control")
    assert client.post("/api/access/check", json=QUESTION).json() == {
        "verdict": "allow",
        "source": "tool_grant",
        "unknown_server": False,
        "grant_id": row,
        "until": "2099-01-01T00:00:00.000000+00:00",
        "then": "deny",
        "reason": "Allowed for this tool by alice: For the release.",
    }
    checks = [QUESTION | {"tool_name": tool} for tool in ("u", "t")]
    results = client.post("/api/access/check", json={"checks": checks}).json()["results"]
    assert [(one["tool_name"], one["verdict"]) for one in results] == [("u", "deny"), ("t", "allow")]


def test_the_edge_and_django_answer_alike(world: Served) -> None:
    give(world)
    client = world.client("all")
    becomes(client, "allow")
    edge = client.post("/api/access/check", json=QUESTION).json()
    listed = client.get("/api/access/agents/agent.a").json()["servers"][0]["any_tool"]
    assert edge == listed


def test_repeated_denials_are_one_row_at_once_and_a_count_in_the_end(world: Served) -> None:
    client = world.client("agent")  # one connection, so one worker
    becomes(client, "deny")  # the worker knows that the grants of earlier tests are gone
    for _ in range(25):
        answer = client.post("/api/access/check", json=QUESTION | {"tool_name": "repeated"})
        assert (answer.status_code, answer.json()["verdict"]) == (200, "deny")
    client.close()
    world.stop()
    assert counted(world, "repeated") == [1, 24]
