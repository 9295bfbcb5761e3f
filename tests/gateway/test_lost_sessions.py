"""Servers that forget their sessions, share them among clients, or end with them: at `/mcp` and at their own doors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway import older_server
from tests.gateway.agents import LONG_AGO, GatewayRefused, Wire, furnish, rule, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.older_server import OlderServer
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.patience import until
from tests.served import Served

pytestmark = pytest.mark.served
SDK_400 = (
    400,
    {"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"}},
)


@pytest.fixture
def older() -> Iterator[OlderServer]:
    with older_server.running() as found:
        yield found


@pytest.fixture
def box(served: Served, older: OlderServer) -> Served:
    served.emptied(*TABLES)
    furnish(served, older.url, server="older")
    return served


def begun(box: Served, server: str = "") -> Wire:
    wire = Wire(box, server=server)
    wire.initialize()
    return wire


@pytest.mark.parametrize("forgets", [(404, older_server.LOST), SDK_400])
@pytest.mark.parametrize("stateless", [False, True])
def test_a_server_that_forgot_its_sessions_hears_calls_and_lists_in_new_ones(
    box: Served, older: OlderServer, stateless: bool, forgets: tuple[int, Any]
) -> None:
    older.forgets = forgets
    wire = Wire(box, server="", stateless=True) if stateless else begun(box)
    assert text_of(wire.call("older__echo", a=1)) == 'echo {"a": 1}'
    older.sessions.clear()
    assert text_of(wire.call("older__echo", a=2)) == 'echo {"a": 2}'
    older.sessions.clear()
    assert "_meta" not in wire.ask("tools/list"), "the server is said to be unreachable"
    assert older.calls == {'echo {"a": 1}': 1, 'echo {"a": 2}': 1}


def test_an_approved_call_whose_server_forgot_the_session_runs_once(box: Served, older: OlderServer) -> None:
    wire = begun(box)
    wire.call("older__echo", a=0)
    rule(box, "mcp__older__*", "ask")
    waiting = InBackground(lambda: wire.call("older__echo", a=1))
    (request_id,) = pending(box)
    older.sessions.clear()
    decide(box, request_id)
    assert text_of(waiting.result()) == 'echo {"a": 1}'
    assert older.calls['echo {"a": 1}'] == 1


def test_calls_that_find_their_session_forgotten_together_begin_one_new_session(
    box: Served, older: OlderServer
) -> None:
    wire = begun(box)
    wire.call("older__echo", a=0)
    older.sessions.clear()
    calls = [wire.message("tools/call", {"name": "older__echo", "arguments": {"a": n}}) for n in range(1, 7)]
    waiting = [InBackground(lambda call=call: wire.response(wire.post(call))) for call in calls]
    told = sorted(text_of(one.result()["result"]) for one in waiting)
    assert told == [f'echo {{"a": {n}}}' for n in range(1, 7)]
    assert set(older.calls.values()) == {1}


@pytest.mark.parametrize("method", ["tools/call", "resources/list"])
def test_at_its_own_door_a_client_is_told_to_begin_again(
    box: Served, older: OlderServer, method: str
) -> None:
    wire = begun(box, "older")
    wire.call("echo", a=1)
    older.sessions.clear()
    params = {"name": "echo", "arguments": {"a": 2}} if method == "tools/call" else {}
    answer = wire.send(method, params)
    assert (answer.status_code, "initialize" in answer.text) == (404, True), answer.text
    if method == "tools/call":
        assert "x-signalbox-not-sent" in answer.headers
    with pytest.raises(GatewayRefused):
        wire.call("echo", a=2)
    wire.initialize()  # some still name the session that is over
    assert text_of(wire.call("echo", a=2)) == 'echo {"a": 2}'


def test_whoever_listens_at_the_door_of_a_server_that_forgot_is_told_to_begin_again(
    box: Served, older: OlderServer
) -> None:
    wire = begun(box, "older")
    session = {"Mcp-Session-Id": wire.session or ""}
    assert wire.http.get(wire.path, headers=session).status_code == 405
    older.sessions.clear()
    older.forgets = SDK_400
    assert wire.http.get(wire.path, headers=session).status_code == 404


def test_an_approval_stands_where_a_server_forgot_the_session_at_its_own_door(
    box: Served, older: OlderServer
) -> None:
    wire = begun(box, "older")
    wire.call("echo", a=0)
    rule(box, "mcp__older__*", "ask")
    waiting = InBackground(lambda: wire.call("echo", a=1))
    (request_id,) = pending(box)
    older.sessions.clear()
    decide(box, request_id)
    assert "The approval stands" in text_of(waiting.result())
    with pytest.raises(GatewayRefused):
        wire.call("echo", a=1)
    assert text_of(begun(box, "older").call("echo", a=1)) == 'echo {"a": 1}'
    assert older.calls['echo {"a": 1}'] == 1


def test_stateless_clients_of_one_key_get_each_its_own_answer(box: Served, older: OlderServer) -> None:
    windows = [Wire(box, server="", stateless=True) for _ in range(2)]

    def call(wire: Wire, path: str) -> dict[str, Any]:
        params = {"name": "older__slow", "arguments": {"path": path}, "_meta": {"progressToken": 7}}
        return wire.response(wire.send("tools/call", params))

    waiting = []
    for wire, path in zip(windows, "ab", strict=True):  # both under the id 1
        waiting.append(InBackground(lambda wire=wire, path=path: call(wire, path)))
        until(lambda path=path: older.calls[f'slow {{"path": "{path}"}}'])
    older.release.set()
    for wire, one, path in zip(windows, waiting, "ab", strict=True):
        response = one.result()
        assert (response["id"], text_of(response["result"])) == (1, f'slow {{"path": "{path}"}}')
        assert [told["params"]["progressToken"] for told in wire.heard] == [7]


def test_the_end_of_a_session_ends_the_servers_own(box: Served, older: OlderServer) -> None:
    wire = begun(box)
    wire.call("older__echo")
    assert older.sessions
    assert wire.http.delete(wire.path, headers={"Mcp-Session-Id": wire.session or ""}).status_code == 200
    assert not older.sessions


def test_servers_hear_that_a_client_has_other_roots(box: Served, older: OlderServer) -> None:
    wire = begun(box)
    wire.call("older__echo")
    changed = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    assert wire.post(changed).status_code == 202
    assert changed["method"] in [message["method"] for _, message in older.told]


# --- cancelled --------------------------------------------------------------------------------------------


def cancel(wire: Wire, number: int | str, reason: str = "Esc") -> None:
    params = {"requestId": number, "reason": reason}
    told = wire.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    assert told.status_code == 202


def held(box: Served, wire: Wire, **headers: str) -> tuple[InBackground, int, str]:
    """Make a call that waits for a person; return it with its id and its card."""
    known = box.sql("SELECT count(*) FROM permission_requests WHERE status = 'pending'")[0][0]
    call = wire.message("tools/call", {"name": tool(wire), "arguments": {"a": 1}})
    waiting = InBackground(lambda: wire.post(call, **headers))
    return waiting, call["id"], pending(box, known + 1)[-1]


def tool(wire: Wire, name: str = "echo") -> str:
    return name if wire.path.endswith("older") else f"older__{name}"


def card(box: Served, request_id: str) -> str:
    return str(box.sql("SELECT status FROM permission_requests WHERE request_id = ?", (request_id,))[0][0])


@pytest.mark.parametrize("server", ["", "older"])
@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "application/json"])
def test_a_call_that_was_cancelled_while_it_waited_is_withdrawn_and_never_runs(
    box: Served, older: OlderServer, server: str, accept: str
) -> None:
    rule(box, "mcp__older__*", "ask")
    wire = begun(box, server)
    waiting, number, request_id = held(box, wire, Accept=accept)
    cancel(wire, number)
    answer = waiting.result()
    assert answer.status_code in {200, 202}
    assert '"result"' not in answer.text
    assert card(box, request_id) == "withdrawn"
    assert not older.calls
    assert box.sql("SELECT count(*) FROM mcp_gateway_calls WHERE state = 'waiting'") == [(0,)]


@pytest.mark.parametrize("server", ["", "older"])
def test_a_call_whose_cancellation_overtook_it_asks_nobody_and_never_runs(
    box: Served, older: OlderServer, server: str
) -> None:
    rule(box, "mcp__older__*", "ask")
    wire = begun(box, server)
    call = wire.message("tools/call", {"name": tool(wire), "arguments": {"a": 1}})
    cancel(wire, call["id"])
    answer = wire.post(call)
    assert answer.status_code in {200, 202}
    assert '"result"' not in answer.text
    assert box.sql("SELECT count(*) FROM permission_requests") == [(0,)]
    assert not older.calls


def test_a_call_whose_clients_patience_ended_can_still_be_approved_for_the_next_try(
    box: Served, older: OlderServer
) -> None:
    rule(box, "mcp__older__*", "ask")
    wire = begun(box)
    waiting, number, request_id = held(box, wire)
    cancel(wire, number, "McpError: MCP error -32001: Request timed out")
    waiting.result()
    decide(box, request_id)
    assert not older.calls
    assert text_of(wire.call("older__echo", a=1)) == 'echo {"a": 1}'


def test_another_call_of_the_same_keeps_the_card(box: Served, older: OlderServer) -> None:
    rule(box, "mcp__older__*", "ask")
    wire, other = begun(box), begun(box)
    waiting, number, request_id = held(box, wire)
    stays = InBackground(lambda: other.call("older__echo", a=1))
    until(lambda: box.sql("SELECT count(*) FROM mcp_gateway_calls WHERE state = 'waiting'") == [(2,)])
    cancel(other, number + 100)  # an id of nobody's
    cancel(wire, number)
    waiting.result()
    assert card(box, request_id) == "pending"
    decide(box, request_id)
    assert text_of(stays.result()) == 'echo {"a": 1}'
    assert older.calls == {'echo {"a": 1}': 1}


@pytest.mark.parametrize("server", ["", "older"])
def test_a_running_call_is_cancelled_at_its_server(box: Served, older: OlderServer, server: str) -> None:
    wire = begun(box, server)
    call = wire.message("tools/call", {"name": tool(wire, "slow"), "arguments": {}})
    waiting = InBackground(lambda: wire.post(call))
    until(lambda: older.calls["slow {}"])
    cancel(wire, call["id"])
    assert waiting.result().status_code == 200
    cancelled = [told["params"]["requestId"] for _, told in older.told if "cancelled" in told["method"]]
    assert cancelled == [call["id"]]


@pytest.mark.parametrize("server", ["", "older"])
def test_the_cancellation_of_a_text_id_cancels_no_call_with_the_number(
    box: Served, older: OlderServer, server: str
) -> None:
    wire = begun(box, server)
    calls = {}
    for number in ("101", 101):
        call = wire.message("tools/call", {"name": tool(wire, "slow"), "arguments": {"id": repr(number)}})
        calls[number] = InBackground(lambda call=call, number=number: wire.post(call | {"id": number}))
        until(lambda number=number: older.calls[f"slow {json.dumps({'id': repr(number)})}"])
    cancel(wire, "101")
    calls["101"].result()
    older.release.set()
    answer = wire.response(calls[101].result())
    assert (answer["id"], text_of(answer["result"])) == (101, 'slow {"id": "101"}')
    cancelled = [told["params"]["requestId"] for _, told in older.told if "cancelled" in told["method"]]
    assert cancelled == ["101"]


# --- closed -----------------------------------------------------------------------------------------------


def test_a_call_of_a_closed_server_reads_like_one_of_none_and_is_audited(
    box: Served, older: OlderServer
) -> None:
    furnish(box, older.url, server="closed", policy="opt-in")
    wire = begun(box)

    def refusal(name: str) -> str:
        answer = wire.response(wire.send("tools/call", {"name": name, "arguments": {}}))
        assert answer["error"]["code"] == -32602
        return str(answer["error"]["message"])

    assert refusal("closed__echo") == refusal("nowhere__echo")
    assert "/ui/mcp/" in refusal("closed__echo")
    audited = box.sql("SELECT reason FROM audit_logs WHERE event_type = 'ACCESS_DENIED' ORDER BY id")
    words = " ".join(str(reason) for (reason,) in audited)
    assert "no grant for anything of the MCP server closed" in words
    assert "nowhere__echo" in words
    assert not older.calls


def test_a_call_of_a_server_that_is_switched_off_says_so(box: Served, older: OlderServer) -> None:
    box.sql("UPDATE mcp_upstreams SET enabled = ? WHERE server_id = 'older'", (False,))
    wire = begun(box)

    def is_said() -> bool:  # once both workers know
        answer = wire.response(wire.send("tools/call", {"name": "older__echo", "arguments": {}}))
        return "error" in answer and "older is switched off. An admin" in answer["error"]["message"]

    until(is_said)
    assert not older.calls


def test_a_tool_that_is_gone_is_looked_for_every_other_second_at_most(
    box: Served, older: OlderServer
) -> None:
    wire = begun(box)
    wire.call("older__echo")
    box.sql("UPDATE mcp_tools SET gone_at = ? WHERE name = 'slow'", (LONG_AGO,))
    older.tools, older.listed = ("echo",), 0
    older.release.set()
    until(lambda: wire.call("older__slow") and older.listed)  # once the workers know
    for _ in range(6):
        wire.call("older__slow")
    assert 1 <= older.listed <= 2, "once a worker"
