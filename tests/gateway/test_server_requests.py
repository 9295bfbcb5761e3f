"""Rules, grants and the brake hold for what a server asks of its client: its model, its person, its folders."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CreateMessageResult, TextContent

from coordinator.mcp.gateway.server_requests import (
    find_server_requests_in_response,
    parse_server_request_or_none,
)
from coordinator.mcp.protocol.messages import BRAKED, DENIED
from tests.gateway import asking_server
from tests.gateway.agents import AGENT, KEY, Wire, events, furnish, grant, rule
from tests.gateway.asking_server import ITS_ID, QUESTION, SAMPLING, Asking
from tests.gateway.conforming import server as conforming_server
from tests.gateway.conftest import TABLES
from tests.gateway.test_braked_reads import put_on
from tests.gateway.test_held_calls import InBackground
from tests.patience import PATIENCE, until
from tests.served import Served

pytestmark = [
    pytest.mark.served,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
CAN_ALL = {"sampling": {}, "elicitation": {"form": {}}, "roots": {}}
REQUESTS: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "run", "arguments": {}},
    "resources/read": {"uri": "a:b"},
    "prompts/get": {"name": "p"},
}
SAMPLE = "mcp__asking__sampling/createMessage"


@pytest.fixture
def asking() -> Iterator[Asking]:
    with asking_server.running() as found:
        yield found


@pytest.fixture
def box(served: Served, asking: Asking) -> Iterator[Served]:
    served.emptied(*TABLES, "events", "event_origins")
    furnish(served, asking.url, server="asking")
    yield served
    served.sql("DELETE FROM brakes")


def begun(box: Served, *, stateless: bool, capabilities: dict[str, Any] | None = None) -> Wire:
    wire = Wire(
        box,
        server="asking",
        stateless=stateless,
        capabilities=CAN_ALL if capabilities is None else capabilities,
    )
    if not stateless:
        wire.initialize()
    return wire


def is_asked(wire: Wire, answer: dict[str, Any]) -> bool:
    """Say whether the client was asked what the server asks."""
    return "SECRET" in json.dumps([*wire.heard, answer])


def deny_by_grant(box: Served) -> None:
    box.sql(
        "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, permission, granted_at)"
        " VALUES ('server_grant', ?, 'asking', 'deny', '2026-01-01T00:00:00+00:00')",
        (AGENT,),
    )
    grant(box, AGENT, "run", "allow", server="asking")


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("method", REQUESTS)
def test_a_rule_keeps_sampling_from_the_client_in_the_middle_of_any_request(
    box: Served, asking: Asking, method: str, stateless: bool
) -> None:
    rule(box, SAMPLE, "deny")
    wire = begun(box, stateless=stateless)
    answer = wire.response(wire.send(method, REQUESTS[method]))
    assert not is_asked(wire, answer)
    if stateless:
        assert answer["error"]["code"] == DENIED
        assert "sampling/createMessage of the server asking was not passed on" in answer["error"]["message"]
        assert not asking.answers
    else:
        assert "result" in answer, "the server goes on without it"
        (refused,) = asking.answers
        assert refused["id"] == ITS_ID
        assert refused["error"]["code"] == -1
    until(lambda: recorded(box, SAMPLE) == 1)


def recorded(box: Served, name: str) -> int:
    """Return how many requests of this name were refused, as timelines show it."""
    (count,) = box.sql("SELECT count(*) FROM events WHERE tool_name = ? AND error LIKE 'Denied:%'", (name,))[
        0
    ]
    return int(count)


@pytest.mark.parametrize("stateless", [False, True])
def test_a_grant_that_denies_the_server_keeps_its_sampling_back_though_a_tool_is_granted(
    box: Served, asking: Asking, stateless: bool
) -> None:
    deny_by_grant(box)
    wire = begun(box, stateless=stateless)
    answer = wire.response(wire.send("tools/call", REQUESTS["tools/call"]))
    assert not is_asked(wire, answer)
    for method in ("resources/read", "prompts/get"):
        assert wire.response(wire.send(method, REQUESTS[method]))["error"]["code"] == DENIED


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("method", REQUESTS)
def test_sampling_reaches_the_client_where_no_policy_speaks_of_it(
    box: Served, asking: Asking, method: str, stateless: bool
) -> None:
    wire = begun(box, stateless=stateless)
    sampled = {"role": "assistant", "content": {"type": "text", "text": "mine"}, "model": "m"}
    if stateless:
        answer = wire.ask(method, REQUESTS[method])
        assert answer["inputRequests"] == {"q": SAMPLING}
        wire.ask(method, REQUESTS[method] | {"inputResponses": {"q": sampled}})
        assert asking.answers == [sampled]
        return
    message = wire.message(method, REQUESTS[method])
    with wire.http.stream("POST", wire.path, json=message, headers=wire.headers_for(message)) as stream:
        found = events(stream.iter_lines())
        assert next(found)["params"] == SAMPLING["params"]
        assert wire.post({"jsonrpc": "2.0", "id": ITS_ID, "result": sampled}).status_code == 202
        assert "result" in next(found)
    assert asking.answers == [{"jsonrpc": "2.0", "id": ITS_ID, "result": sampled}]


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("question", [SAMPLING, QUESTION], ids=["sampling", "elicitation"])
def test_nothing_is_asked_of_the_client_once_a_brake_is_on(
    box: Served, asking: Asking, question: dict[str, Any], method: str, stateless: bool
) -> None:
    asking.reset(question)
    asking.release.clear()
    wire = begun(box, stateless=stateless)
    calling = InBackground(lambda: wire.response(wire.send(method, REQUESTS[method])))
    assert asking.began.wait(PATIENCE)
    put_on(box)
    asking.release.set()
    answer = calling.result()
    assert not any(message.get("id") == ITS_ID for message in wire.heard)
    if stateless:
        assert answer["error"]["code"] == BRAKED
    elif question is QUESTION:
        assert asking.answers == [{"jsonrpc": "2.0", "id": ITS_ID, "result": {"action": "cancel"}}]
    else:
        assert asking.answers[0]["error"]["code"] == -1


@pytest.mark.parametrize(("server", "tool"), [("asking", "run"), ("", "asking__run")])
def test_what_a_client_answers_while_a_brake_is_on_does_not_reach_the_server(
    box: Served, asking: Asking, server: str, tool: str
) -> None:
    wire = Wire(box, server=server, capabilities=CAN_ALL)
    wire.initialize()
    message = wire.message("tools/call", {"name": tool, "arguments": {}})
    with wire.http.stream("POST", wire.path, json=message, headers=wire.headers_for(message)) as stream:
        number = next(events(stream.iter_lines()))["id"]
        put_on(box)
        wire.post({"jsonrpc": "2.0", "id": number, "result": {"content": {"type": "text", "text": "mine"}}})
        assert asking.answered.wait(PATIENCE)
    assert "error" in asking.answers[0]
    assert "mine" not in json.dumps(asking.answers)


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("method", REQUESTS)
def test_a_rule_declines_a_question_also_to_a_client_that_could_ask_its_person(
    box: Served, asking: Asking, method: str, stateless: bool
) -> None:
    asking.reset(QUESTION)
    rule(box, "mcp__asking__elicitation/create", "deny")
    wire = begun(box, stateless=stateless)
    answer = wire.response(wire.send(method, REQUESTS[method]))
    assert not any(message.get("id") == ITS_ID for message in wire.heard)
    if stateless and method != "tools/call":
        assert answer["error"]["code"] == DENIED
    else:
        declined = {"action": "decline"}
        assert "result" in answer
        assert asking.answers == (
            [declined] if stateless else [{"jsonrpc": "2.0", "id": ITS_ID, "result": declined}]
        )


@pytest.mark.parametrize("policy", ["deny", "brake", ""])
def test_a_servers_own_stream_asks_no_more_than_policy_lets_it(
    box: Served, asking: Asking, policy: str
) -> None:
    if policy == "deny":
        rule(box, SAMPLE, "deny")
    wire = begun(box, stateless=False)
    if policy == "brake":
        put_on(box)
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": wire.session or ""}
    with wire.http.stream("GET", wire.path, headers=headers) as stream:
        told = [message["method"] for message in events(stream.iter_lines())]
    assert told[-1] == "notifications/tools/list_changed"
    assert ("sampling/createMessage" in told) == (not policy)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("verdict", ["", "deny"])
def test_the_official_client_samples_for_the_official_server_unless_a_rule_denies_it(
    served: Served, verdict: str, mode: str
) -> None:
    """The two of the official package, in both generations."""
    asked: list[Any] = []

    async def sample(_: Any, params: Any) -> CreateMessageResult:
        asked.append(params)
        return CreateMessageResult(
            role="assistant", content=TextContent(type="text", text="Paris"), model="m"
        )

    tool = "test_sampling" if mode == "legacy" else "test_input_required_result_sampling"

    async def run() -> str:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as http:
            transport = streamable_http_client(f"{served.url}/mcp/conforming", http_client=http)
            async with Client(transport, mode=mode, sampling_callback=sample) as client:
                result = await client.call_tool(tool, {"prompt": "France?"})
                return "".join(getattr(block, "text", "") for block in result.content)

    served.emptied(*TABLES)
    with conforming_server.running() as url:
        furnish(served, url, server="conforming")
        if verdict:
            rule(served, "mcp__conforming__sampling/createMessage", verdict)
            try:
                text = asyncio.run(run())
            except BaseException as problem:
                text = str(problem) or repr(getattr(problem, "exceptions", ""))
            assert "Paris" not in text
            assert not asked
        else:
            assert "Paris" in asyncio.run(run())
            assert len(asked) == 1


@pytest.mark.parametrize(
    "sent",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"sampling/create\\u004dessage","params":{}}',
        b'{"jsonrpc":"2.0","ID":1,"Method":"sampling/createMessage","params":{}}',
    ],
)
def test_a_request_is_recognized_however_it_is_written(sent: bytes) -> None:
    request = parse_server_request_or_none(sent)
    assert request is not None
    assert request.method == "sampling/createMessage"


def test_a_request_that_clients_may_read_in_two_ways_is_none_that_passes() -> None:
    request = parse_server_request_or_none(b'{"id":1,"method":"ping","Method":"sampling/createMessage"}')
    assert request is not None
    assert request.method == "(unreadable request)"
    assert parse_server_request_or_none(b'{"id":1,"method":"ping"}') is None
    assert parse_server_request_or_none(b'{"method":"notifications/progress","params":{}}') is None


def test_requests_in_a_result_are_found_however_they_are_written() -> None:
    response = b'{"id":1,"Result":{"InputReque\\u0073ts":{"a":{"Method":"roots/list"}}}}'
    assert [request.method for request in find_server_requests_in_response(response)] == ["roots/list"]
    assert find_server_requests_in_response(b'{"id":1,"result":{"content":[]}}') == []
    assert find_server_requests_in_response(b'{"id":1,"result":[]}') == []
