"""Servers that run beside their agent: the same rules, asked about before each call."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.gateway.agents import KEY, LONG_AGO, OTHER_KEY, furnish, rule
from tests.gateway.conftest import TABLES
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.patience import until
from tests.served import Served

pytestmark = pytest.mark.served
TOOL = {"name": "write", "description": "Write.", "inputSchema": {"type": "object"}}
CALL = {"server": "local", "tool": "write", "arguments": '{"path": "/a"}', "definition": TOOL}


@pytest.fixture
def agent(served: Served) -> httpx.Client:
    served.emptied(*TABLES)
    furnish(served, "http://127.0.0.1:9/", server="local")
    served.sql("DELETE FROM mcp_upstreams WHERE server_id = 'local'")
    client = served.client(key=None)
    client.headers["Authorization"] = f"Bearer {KEY}"
    return client


def asked(agent: httpx.Client, **changes: Any) -> dict[str, Any]:
    answer = agent.post("/api/mcp/calls", json=CALL | changes)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_an_allowed_call_is_told_of_twice(served: Served, agent: httpx.Client) -> None:
    said = asked(agent)
    assert said["decision"] == "allow"
    end = f"/api/mcp/calls/{said['call_id']}/end"
    told = {"is_error": False, "milliseconds": 5, "result": '{"content": []}'}
    other = served.client(key=None)
    assert other.post(end, json=told, headers={"Authorization": f"Bearer {OTHER_KEY}"}).status_code == 404
    assert agent.post(end, json=told).status_code == 200
    assert agent.post(end, json=told).status_code == 409


def test_an_allowed_call_that_is_asked_about_again_is_the_same_call(agent: httpx.Client) -> None:
    call = CALL | {"call_id": "sbx-told-twice"}
    assert asked(agent, **call) == asked(agent, **call)
    other = agent.post("/api/mcp/calls", json=call | {"arguments": '{"path": "/b"}'})
    assert other.status_code == 409


def test_rules_deny_and_hide(served: Served, agent: httpx.Client) -> None:
    rule(served, "mcp__local__write", "deny")
    assert asked(agent)["decision"] == "deny"
    assert agent.post("/api/mcp/listings/local", json={"tools": [TOOL, TOOL | {"name": "read"}]}).json() == {
        "tools": ["read"]
    }


def test_an_approval_frees_exactly_that_call_once(served: Served, agent: httpx.Client) -> None:
    rule(served, "mcp__local__write", "ask")
    waiting = InBackground(lambda: asked(agent))
    (request_id,) = pending(served)
    decide(served, request_id)
    said = waiting.result()
    assert said["decision"] == "allow"
    again = InBackground(lambda: asked(agent))
    (request_id,) = pending(served)
    decide(served, request_id, "denied", reason="no more")
    assert "no more" in again.result()["reason"]


def test_arguments_that_would_say_more_than_they_are_are_refused(agent: httpx.Client) -> None:
    for text in (
        '{}}, "x": {"a": 1',
        '{"a": 1, "a": 2}',
        "[]",
        '{}},"method":"x","params":{"name":"y","arguments":{}',
    ):
        assert agent.post("/api/mcp/calls", json=CALL | {"arguments": text}).status_code == 422


@pytest.mark.parametrize("policy", ["opt-in", "opt-out"])
def test_no_agent_tells_the_tools_of_a_server_that_is_asked_from_here_or_closed_to_it(
    served: Served, agent: httpx.Client, policy: str
) -> None:
    furnish(served, "http://127.0.0.1:9/", server="local", policy=policy)
    if policy == "opt-in":
        served.sql("DELETE FROM mcp_upstreams WHERE server_id = 'local'")
    refused = (
        "SELECT count(*) FROM audit_logs WHERE event_type = 'ACCESS_DENIED' AND target_id = 'agent.one local'"
    )
    before = served.sql(refused)[0][0]
    assert agent.post("/api/mcp/listings/local", json={"tools": [TOOL]}).status_code == 403
    assert agent.post("/api/mcp/calls", json=CALL).status_code == 403
    assert served.sql("SELECT name FROM mcp_tools WHERE server_id = 'local'") == []
    assert served.sql(refused)[0][0] == before + 1


def test_a_call_that_was_allowed_unheard_does_not_pass_a_brake(served: Served, agent: httpx.Client) -> None:
    rule(served, "mcp__local__write", "ask")
    call = CALL | {"call_id": "sbx-unheard"}
    waiting = InBackground(lambda: asked(agent, **call))
    (request_id,) = pending(served)
    decide(served, request_id)
    assert waiting.result() == asked(agent, **call) == {"decision": "allow", "call_id": "sbx-unheard"}
    put = "INSERT INTO brakes (reach, name, reason, set_at, set_by) VALUES ('everything', '', '', ?, 'user:ann')"
    served.sql(put, (LONG_AGO,))
    try:
        said = asked(agent, **call)
        assert said["decision"] == "deny"
        assert "put the brake on" in said["reason"]
    finally:
        served.sql("DELETE FROM brakes")
    assert served.sql("SELECT state FROM mcp_gateway_calls") == [("cancelled",)]
    assert asked(agent)["decision"] == "allow"  # by the approval that nobody used


def cancel(agent: httpx.Client, call_id: str, reason: str = "", **headers: str) -> None:
    path = f"/api/mcp/calls/{call_id}/cancel"
    assert agent.post(path, json={"reason": reason}, headers=headers).status_code == 200


def waits(served: Served, agent: httpx.Client, call_id: str) -> InBackground:
    """Ask about a call by an id of its own; it waits when this returns."""
    found = InBackground(lambda: asked(agent, call_id=call_id, begins=True))
    waiting = "SELECT count(*) FROM mcp_gateway_calls WHERE call_id = ? AND state = 'waiting'"
    until(lambda: served.sql(waiting, (call_id,)) == [(1,)], "it does not wait")
    return found


def cards(served: Served) -> list[str]:
    return [row[0] for row in served.sql("SELECT status FROM permission_requests ORDER BY id")]


def test_a_cancelled_call_leaves_no_card_and_is_not_allowed(served: Served, agent: httpx.Client) -> None:
    rule(served, "mcp__local__write", "ask")
    waiting = waits(served, agent, "sbx-one")
    cancel(agent, "sbx-one")
    assert "cancelled" in waiting.result()["reason"]
    assert cards(served) == ["withdrawn"]
    assert asked(agent, call_id="sbx-one")["decision"] == "deny"
    assert cards(served) == ["withdrawn"]


def test_nobody_is_asked_about_a_call_that_was_cancelled_first(served: Served, agent: httpx.Client) -> None:
    rule(served, "mcp__local__write", "ask")
    cancel(agent, "sbx-one")
    assert asked(agent, call_id="sbx-one", begins=True)["decision"] == "deny"
    assert cards(served) == []


def test_the_same_call_of_another_keeps_its_card(served: Served, agent: httpx.Client) -> None:
    rule(served, "mcp__local__write", "ask")
    first, second = (waits(served, agent, name) for name in ("sbx-one", "sbx-two"))
    cancel(agent, "sbx-one")
    first.result()
    (request_id,) = pending(served)
    cancel(agent, "sbx-two", Authorization=f"Bearer {OTHER_KEY}")
    decide(served, request_id)
    assert second.result() == {"decision": "allow", "call_id": "sbx-two"}


def test_a_client_whose_time_is_up_leaves_the_card(served: Served, agent: httpx.Client) -> None:
    rule(served, "mcp__local__write", "ask")
    waiting = waits(served, agent, "sbx-one")
    cancel(agent, "sbx-one", "Request timed out")
    assert waiting.result()["decision"] == "deny"
    decide(served, pending(served)[0])
    assert asked(agent)["decision"] == "allow"


def test_the_approval_of_a_call_that_was_cancelled_unheard_is_for_the_next(
    served: Served, agent: httpx.Client
) -> None:
    rule(served, "mcp__local__write", "ask")
    waiting = waits(served, agent, "sbx-one")
    decide(served, pending(served)[0])
    assert waiting.result()["decision"] == "allow"
    cancel(agent, "sbx-one")
    assert asked(agent, call_id="sbx-two", begins=True)["decision"] == "allow"
    assert cards(served) == ["approved"]


def test_a_card_is_closed_that_policy_needs_no_more(served: Served, agent: httpx.Client) -> None:
    rule(served, "mcp__local__write", "ask")
    InBackground(lambda: agent.post("/api/mcp/calls", json=CALL | {"call_id": "sbx-one", "begins": True}))
    pending(served)
    served.sql("DELETE FROM tool_rules")
    said = until(lambda: _allowed(asked(agent, call_id="sbx-one")), "the rule still asks")
    assert said["call_id"] == "sbx-one"
    assert cards(served) == ["withdrawn"]


def _allowed(said: dict[str, Any]) -> dict[str, Any] | None:
    return said if said["decision"] == "allow" else None


def asked_to_read(agent: httpx.Client, **changes: Any) -> dict[str, Any]:
    read = {"server": "local", "tool": "resources/read", "method": "resources/read"}
    return asked(agent, **read | {"arguments": '{"uri": "file:///a"}', "definition": None} | changes)


@pytest.mark.parametrize("verdict", ["deny", "ask"])
def test_a_read_is_judged_at_once_and_recorded(served: Served, agent: httpx.Client, verdict: str) -> None:
    named = "SELECT count(*) FROM events WHERE tool_name = 'mcp__local__resources/read'"
    before = served.sql(named)[0][0]
    assert asked_to_read(agent)["decision"] == "allow"
    rule(served, "mcp__local__resources/read", verdict, pattern="file:///a")
    assert asked_to_read(agent)["decision"] == "deny"
    assert asked_to_read(agent, arguments='{"uri": "x:1"}')["decision"] == "allow"
    until(lambda: served.sql(named)[0][0] == before + 6)
    assert not served.sql("SELECT 1 FROM permission_requests WHERE status = 'pending'")


def test_a_read_waits_for_no_brake(served: Served, agent: httpx.Client) -> None:
    served.sql(
        "INSERT INTO brakes (reach, name, reason, set_at, set_by) VALUES ('everything', '', 'Odd.', ?, 'user:ann')",
        (LONG_AGO,),
    )
    try:
        assert "brake" in asked_to_read(agent)["reason"]
    finally:
        served.sql("DELETE FROM brakes")


def test_the_answer_to_a_task_s_server_waits_for_no_brake(served: Served, agent: httpx.Client) -> None:
    update = {"method": "tasks/update", "tool": "tasks/update"}
    update["arguments"] = '{"taskId": "t", "inputResponses": {}}'
    assert asked_to_read(agent, **update)["decision"] == "allow"
    served.sql(
        "INSERT INTO brakes (reach, name, reason, set_at, set_by) VALUES ('everything', '', 'Odd.', ?, 'user:ann')",
        (LONG_AGO,),
    )
    try:
        assert "brake" in asked_to_read(agent, **update)["reason"]
    finally:
        served.sql("DELETE FROM brakes")


@pytest.mark.parametrize("method", ["tools/list", "x/any", "ping", "tasks/get", "tools/call "])
def test_only_reads_are_asked_about_by_their_method(agent: httpx.Client, method: str) -> None:
    assert asked_to_read(agent, method=method, tool=method or "x")["decision"] == "deny"


@pytest.mark.parametrize("text", ["[]", '{"uri":"a"},"params":{}', '{"uri":"a","uri":"b"}', "{", '{"a":NaN}'])
def test_parameters_that_would_say_more_than_they_are_are_refused(agent: httpx.Client, text: str) -> None:
    read = {"server": "local", "tool": "resources/read", "method": "resources/read", "arguments": text}
    assert agent.post("/api/mcp/calls", json=read).status_code == 422


SAMPLING = {"server": "local", "tool": "sampling/createMessage", "method": "sampling/createMessage"}


def asked_of_client(agent: httpx.Client, **changes: Any) -> dict[str, Any]:
    asking = SAMPLING | {"arguments": '{"maxTokens": 9}', "definition": None, "from_server": True}
    return asked(agent, **asking | changes)


@pytest.mark.parametrize("verdict", ["deny", "ask"])
def test_what_a_server_asks_of_its_client_is_judged(
    served: Served, agent: httpx.Client, verdict: str
) -> None:
    assert asked_of_client(agent)["decision"] == "allow"
    rule(served, "mcp__local__sampling/createMessage", verdict, pattern="maxTokens")
    refused = asked_of_client(agent)
    assert refused["decision"] == "deny"
    assert "sampling/createMessage of the server local was not passed on" in refused["reason"]
    assert asked_of_client(agent, arguments="{}")["decision"] == "allow"
    until(lambda: served.sql("SELECT 1 FROM events WHERE error LIKE 'Denied: sampling%'"))
    assert not served.sql("SELECT 1 FROM permission_requests WHERE status = 'pending'")


def test_a_question_to_a_person_passes_where_a_rule_asks_and_not_where_it_denies(
    served: Served, agent: httpx.Client
) -> None:
    form = {"method": "elicitation/create", "tool": "elicitation/create", "arguments": '{"message": "Name?"}'}
    rule(served, "mcp__local__elicitation/create", "ask")
    assert asked_of_client(agent, **form)["decision"] == "allow"
    served.sql("UPDATE tool_rules SET verdict = 'deny'")
    assert asked_of_client(agent, **form)["decision"] == "deny"


def test_what_a_server_asks_of_its_client_waits_for_no_brake(served: Served, agent: httpx.Client) -> None:
    served.sql(
        "INSERT INTO brakes (reach, name, reason, set_at, set_by) VALUES ('everything', '', 'Odd.', ?, 'user:ann')",
        (LONG_AGO,),
    )
    try:
        refused = asked_of_client(agent)
        assert refused["braked"]
        assert "brake" in refused["reason"]
    finally:
        served.sql("DELETE FROM brakes")


@pytest.mark.parametrize("text", ["[]", '{},"method":"ping"', "{", '{"a":1},"Method":"ping"'])
def test_no_request_of_a_server_says_more_than_it_is(agent: httpx.Client, text: str) -> None:
    answer = agent.post("/api/mcp/calls", json=SAMPLING | {"arguments": text, "from_server": True})
    assert answer.status_code == 422 or answer.json()["decision"] == "deny"
