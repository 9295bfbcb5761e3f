"""Only known methods pass the gateway; what reads or sets something at a server is judged, and all of it recorded."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.client import mcp_methods
from coordinator.mcp.protocol.messages import DENIED, HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND
from tests.gateway import obliging_server
from tests.gateway.agents import AGENT, KEY, LONG_AGO, OTHER, OTHER_KEY, Wire, furnish, grant, rule
from tests.gateway.conftest import TABLES
from tests.gateway.obliging_server import Obliging
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.patience import until
from tests.served import Served

pytestmark = pytest.mark.served

READS: dict[str, dict[str, Any]] = {
    "resources/read": {"uri": "file:///secret"},
    "resources/subscribe": {"uri": "file:///secret"},
    "resources/unsubscribe": {"uri": "file:///secret"},
    "prompts/get": {"name": "p", "arguments": {"a": "b"}},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "p"},
        "argument": {"name": "a", "value": "S"},
    },
    "logging/setLevel": {"level": "debug"},
    "subscriptions/listen": {"notifications": {"resourceSubscriptions": ["file:///secret"]}},
}
LISTS = ["resources/list", "resources/templates/list", "prompts/list"]
LOOK_ALIKES = [
    "x/any",
    "tools/call ",
    " tools/call",
    "Tools/Call",
    "tools/call/",
    "tools/ca\u217cl",  # a Roman numeral fifty, which folds to l
    "tools/call\u0000",
    "tools\\/call",
    "resources/read\u200b",
    "notifications/initialized",
    "sampling/createMessage",
    "elicitation/create",
    "roots/list",
    "",
]


@pytest.fixture
def server() -> Iterator[Obliging]:
    with obliging_server.running() as found:
        yield found


@pytest.fixture
def box(served: Served, server: Obliging) -> Served:
    served.emptied(*TABLES)
    furnish(served, server.url, server="obliging")
    return served


def begun(box: Served, *, stateless: bool = False) -> Wire:
    wire = Wire(box, server="obliging", stateless=stateless)
    if not stateless:
        wire.initialize()
    return wire


def recorded(box: Served, method: str) -> list[tuple[str, str | None]]:
    rows = box.sql(
        "SELECT event_type, error FROM events WHERE tool_name = ? ORDER BY id", (f"mcp__obliging__{method}",)
    )
    return [(row[0], row[1]) for row in rows]


def emptied_events(box: Served) -> None:
    box.sql("DELETE FROM events WHERE tool_name LIKE 'mcp__obliging__%'")


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("method", READS)
def test_a_read_passes_where_the_server_is_allowed_and_is_recorded(
    box: Served, server: Obliging, method: str, stateless: bool
) -> None:
    emptied_events(box)
    assert begun(box, stateless=stateless).ask(method, READS[method])["contents"][0]["text"] == "SECRET"
    assert len(server.heard(method)) == 1
    until(lambda: len(recorded(box, method)) == 2)
    assert [kind for kind, _ in recorded(box, method)] == ["pre_tool", "post_tool"]
    ((told,),) = box.sql(
        "SELECT tool_input FROM events WHERE tool_name = ? AND event_type = 'pre_tool'",
        (f"mcp__obliging__{method}",),
    )
    assert json.loads(told) == READS[method]


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize(
    "policy",
    ["tool grant alone", "denied server", "deny rule", "rule by address"],
)
def test_a_read_is_refused_where_policy_denies(
    box: Served, server: Obliging, method: str, policy: str
) -> None:
    if policy == "tool grant alone":
        box.sql("UPDATE mcp_servers SET default_policy = 'opt-in' WHERE name = 'obliging'")
    grant(box, AGENT, "run", "allow", server="obliging")  # so that the agent reaches the server at all
    if policy == "denied server":
        box.sql(
            "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, permission, granted_at)"
            " VALUES ('server_grant', ?, 'obliging', 'deny', ?)",
            (AGENT, LONG_AGO),
        )
    if policy == "deny rule":
        rule(box, "mcp__obliging__*", "deny")
    if policy == "rule by address":
        rule(box, f"mcp__obliging__{method}", "deny", pattern="secret|level|argument")
    emptied_events(box)
    wire = begun(box)
    error = wire.response(wire.send(method, READS[method]))["error"]
    assert error["code"] == DENIED
    assert "was not sent" in error["message"]
    assert not server.heard(method)
    until(lambda: len(recorded(box, method)) == 2)
    assert "Denied" in str(recorded(box, method)[1][1])
    assert box.sql("SELECT count(*) FROM permission_requests WHERE status = 'pending'") == [(0,)]


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("method", LISTS)
def test_lists_of_a_denied_server_are_empty(
    box: Served, server: Obliging, method: str, stateless: bool
) -> None:
    wire = begun(box, stateless=stateless)
    assert "SECRET" in str(wire.ask(method))
    rule(box, f"mcp__obliging__{method}", "deny")
    assert wire.ask(method)[mcp_methods.LISTS[method]] == []
    assert len(server.heard(method)) == 1


@pytest.mark.parametrize("policy", ["tool grant alone", "ask rule", "deny rule"])
def test_a_server_s_tasks_are_listed_only_where_the_server_is_allowed(
    box: Served, server: Obliging, policy: str
) -> None:
    """They are those of every agent that calls it."""
    wire = begun(box)
    begin_task(wire)
    assert "SECRET" in str(wire.ask("tasks/list"))
    if policy == "tool grant alone":
        box.sql("UPDATE mcp_servers SET default_policy = 'opt-in' WHERE name = 'obliging'")
        grant(box, AGENT, "run", "allow", server="obliging")
    else:
        rule(box, "mcp__obliging__*", policy.split(maxsplit=1)[0])
    assert wire.ask("tasks/list")["tasks"] == []
    assert len(server.heard("tasks/list")) == 1


ABOUT_TASKS = ("tasks/get", "tasks/result", "tasks/update", "tasks/cancel")


def begin_task(wire: Wire) -> None:
    """Have the server make a task of a call."""
    call = {"name": "run", "arguments": {}, "task": {"ttl": 60_000}}
    assert wire.ask("tools/call", call)["task"]["taskId"] == "SECRET"


@pytest.mark.parametrize("method", ABOUT_TASKS)
@pytest.mark.parametrize("whose", ["another agent's", "another session's", "nobody's"])
def test_a_task_of_a_server_is_used_by_whoever_began_it_alone(
    box: Served, server: Obliging, method: str, whose: str
) -> None:
    own = begun(box)
    begin_task(own)
    given = {"taskId": "SECRET", "inputResponses": {}} if method == "tasks/update" else {"taskId": "SECRET"}
    own.ask(method, given)
    assert len(server.heard(method)) == 1
    other = Wire(box, server="obliging", key=OTHER_KEY if whose == "another agent's" else KEY)
    other.initialize()
    task_id = "another" if whose == "nobody's" else "SECRET"
    error = other.response(other.send(method, given | {"taskId": task_id}))["error"]
    assert error["code"] == INVALID_PARAMS
    assert "no call of yours in this session began this task" in error["message"]
    assert len(server.heard(method)) == 1
    assert other.ask("tasks/list")["tasks"] == []


def test_a_task_of_an_approved_call_is_its_caller_s(box: Served, server: Obliging) -> None:
    rule(box, "mcp__obliging__run", "ask")
    wire = begun(box, stateless=True)
    waiting = InBackground(lambda: begin_task(wire))
    (request_id,) = pending(box)
    decide(box, request_id)
    waiting.result()
    again = Wire(box, server="obliging", stateless=True)
    again.ask("tasks/get", {"taskId": "SECRET"})
    assert len(server.heard("tasks/get")) == 1


def test_an_asking_server_names_what_it_has(box: Served, server: Obliging) -> None:
    rule(box, "mcp__obliging__*", "ask")
    assert "SECRET" in str(begun(box).ask("resources/list"))


def test_lists_and_tasks_are_recorded_once_a_minute(box: Served, server: Obliging) -> None:
    wire = begun(box)
    begin_task(wire)
    emptied_events(box)
    for _ in range(3):
        wire.ask("resources/list")
        wire.ask("tasks/get", {"taskId": "SECRET"})
    wire.ask("resources/read", {"uri": "x:1"})
    until(lambda: len(recorded(box, "resources/read")) == 2)
    assert len(recorded(box, "resources/list")) == len(recorded(box, "tasks/get")) == 2
    assert len(server.heard("resources/list")) == 3


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("method", LOOK_ALIKES)
def test_requests_with_unknown_methods_are_refused_and_recorded(
    box: Served, server: Obliging, method: str, stateless: bool
) -> None:
    emptied_events(box)
    wire = begun(box, stateless=stateless)
    message = wire.message(method, {"name": "run", "arguments": {}})
    headers = {"Mcp-Name": "run"} if stateless else {}
    if stateless:
        coded = base64.b64encode(method.encode()).decode()
        headers["Mcp-Method"] = f"=?base64?{coded}?="
    before = len(server.got)
    answer = wire.post(message, **headers)
    assert answer.status_code == (404 if stateless else 200)
    assert answer.json()["error"]["code"] == METHOD_NOT_FOUND
    assert answer.json()["id"] == message["id"]
    assert len(server.got) == before
    until(lambda: len(recorded(box, "(unknown method)")) == 2)


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call","params":{"name":"run"}}',
        b'{"jsonrpc":"2.0","id":7,"method":"ping","Method":"tools/call","params":{"name":"run"}}',
        b'{"jsonrpc":"2.0","id":7,"method":"ping","\\u006dethod":"tools/call","params":{"name":"run"}}',
        b'[{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run"}}]',
        b'[[{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run"}}]]',
        b'{"jsonrpc":"2.0","id":7,"method":["tools/call"],"params":{"name":"run"}}',
        b'{"jsonrpc":"2.0","id":7,"method":null,"params":{"name":"run"}}',
        b'{"jsonrpc":"2.0","id":7,"method":1,"params":{"name":"run"}}',
        b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"run"}}',
        b'{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"run"}}',
        b'{"jsonrpc":"2.0","id":{"a":1},"method":"tools/call","params":{"name":"run"}}',
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[{"name":"run"}]}',
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"\\ud800","arguments":{}}}',
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run","arguments":{"a":"\\udfff"}}}',
        b'{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":""}}',
        b'{"jsonrpc":"2.0"}',
        b'"tools/call"',
    ],
)
def test_messages_that_can_be_read_in_two_ways_are_refused(
    box: Served, server: Obliging, body: bytes
) -> None:
    wire = begun(box)
    before = len(server.got)
    headers = {"Content-Type": "application/json", "Mcp-Session-Id": str(wire.session)}
    answer = wire.http.post(wire.path, content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert "error" in answer.json()
    assert len(server.got) == before


@pytest.mark.parametrize(
    "method", ["notifications/tools/call", "notifications/Initialized", "notifications/", "notifications/x"]
)
def test_unknown_notifications_go_nowhere_and_are_recorded(
    box: Served, server: Obliging, method: str
) -> None:
    emptied_events(box)
    wire = begun(box)
    before = len(server.got)
    assert wire.post({"jsonrpc": "2.0", "method": method, "params": {"name": "run"}}).status_code == 202
    assert len(server.got) == before
    until(lambda: len(recorded(box, "(unknown method)")) == 2)


@pytest.mark.parametrize("method", mcp_methods.NOTIFICATIONS)
def test_known_notifications_reach_the_server(box: Served, server: Obliging, method: str) -> None:
    wire = begun(box)
    params = {"requestId": 900, "progressToken": 1, "progress": 1, "zzz": "EVIL"}
    assert wire.post({"jsonrpc": "2.0", "method": method, "params": params}).status_code == 202
    *_, (message, _, _) = server.heard(method)
    assert set(message["params"]) == set(params) & mcp_methods.NOTIFICATIONS[method]


def test_a_response_goes_to_the_server_as_a_response_alone(box: Served, server: Obliging) -> None:
    wire = begun(box)
    told = {"jsonrpc": "2.0", "id": 5, "result": {"action": "accept"}, "params": {"name": "run"}, "x": 1}
    assert wire.post(told).status_code == 202
    assert server.got[-1][0] == {"jsonrpc": "2.0", "id": 5, "result": {"action": "accept"}}


def test_an_agent_without_a_grant_reaches_nothing_of_a_server(box: Served, server: Obliging) -> None:
    wire = begun(box)
    box.sql("UPDATE mcp_servers SET default_policy = 'opt-in' WHERE name = 'obliging'")
    until(lambda: wire.send("ping").status_code == 403)  # the worker has read it
    before = len(server.got)
    for method in ("ping", "tools/list", "resources/list", "tools/call"):
        assert wire.send(method, {"name": "run"} if method == "tools/call" else None).status_code == 403
    assert len(server.got) == before


def test_a_bound_key_calls_as_no_other_agent(box: Served, server: Obliging) -> None:
    wire = begun(box)
    before = len(server.got)
    assert wire.post(wire.message("tools/list"), **{"X-Signalbox-Agent": OTHER}).status_code == 403
    assert len(server.got) == before


@pytest.mark.parametrize("header", ["Mcp-Name", "Mcp-Method", "MCP-Protocol-Version"])
def test_a_header_that_contradicts_a_stateless_body_is_refused(
    box: Served, server: Obliging, header: str
) -> None:
    wire = begun(box, stateless=True)
    call = wire.message("tools/call", {"name": "run", "arguments": {}})
    answer = wire.post(call, **{header: "other"})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == HEADER_MISMATCH
    assert not server.heard("tools/call")
