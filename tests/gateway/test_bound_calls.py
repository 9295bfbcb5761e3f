"""What reaches a server of an approved call is what its card shows: no other member, `_meta` or header."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.client import mcp_lines
from coordinator.mcp.protocol import messages, param_headers
from coordinator.mcp.protocol.messages import HEADER_MISMATCH
from tests.gateway import obliging_server
from tests.gateway.agents import Wire, furnish, rule
from tests.gateway.conftest import TABLES
from tests.gateway.obliging_server import Obliging
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.served import Served

EVIL = "EVILMARK"
MEMBERS: dict[str, dict[str, Any]] = {
    "_meta": {"_meta": {"com.example/path": EVIL}},
    "the client's own _meta": {"_meta": {"claudecode/toolUseId": EVIL}},
    "log level": {"_meta": {"io.modelcontextprotocol/logLevel": EVIL}},
    "trace": {"_meta": {"traceparent": EVIL}},
    "params": {"path": EVIL, "force": True},
    "task": {"task": {"ttl": 1, "note": EVIL}},
    "capabilities": {
        "_meta": {
            "io.modelcontextprotocol/clientCapabilities": {
                "elicitation": {"form": {EVIL: {}}, "url": EVIL},
                "roots": {"listChanged": EVIL},
                "sampling": EVIL,
                "extensions": {
                    f"com.example/{EVIL}": {},
                    "io.modelcontextprotocol/ui": {"mimeTypes": [EVIL]},
                },
                "tasks": {"requests": {"sampling": {"createMessage": {"note": EVIL}}}},
            }
        }
    },
    "state": {"requestState": EVIL},
    "answers": {"inputResponses": {"a": EVIL}},
    "client": {"_meta": {"io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1", "evil": EVIL}}},
}
HEADERS: dict[str, dict[str, str]] = {
    "parameter": {"Mcp-Param-Path": EVIL},
    "trace": {"traceparent": EVIL},
    "trace state": {"tracestate": f"a={EVIL}"},
    "name": {"Mcp-Name": EVIL},
    "method": {"Mcp-Method": EVIL},
    "version": {"MCP-Protocol-Version": EVIL},
    "event": {"Last-Event-ID": EVIL},
    "accepted": {"Accept": f"application/json, text/event-stream, x/{EVIL}"},
    "own": {
        "X-Evil": EVIL,
        "Cookie": EVIL,
        "User-Agent": EVIL,
        "Content-Type": f"application/json; a={EVIL}",
    },
}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


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
    wire.ask("tools/list")
    return wire


def body_of(wire: Wire, extra: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    return wire.message("tools/call", {"name": "run", "arguments": arguments, **extra})


@pytest.mark.served
@pytest.mark.parametrize(
    ("extra", "headers"),
    [*((members, {}) for members in MEMBERS.values()), *(({}, headers) for headers in HEADERS.values())],
    ids=[*MEMBERS, *(f"header: {name}" for name in HEADERS)],
)
@pytest.mark.parametrize("verdict", ["ask", "allow"])
def test_what_no_card_shows_reaches_no_server(
    box: Served, server: Obliging, extra: dict[str, Any], headers: dict[str, str], verdict: str
) -> None:
    if verdict == "allow" and extra.keys() & {"requestState", "inputResponses"}:
        pytest.skip("a server's own state comes back to it where nobody is asked")
    rule(box, "mcp__obliging__*", verdict)
    wire = begun(box)
    waiting = InBackground(lambda: wire.post(body_of(wire, extra, path="/a"), **headers))
    if verdict == "ask":
        (request_id,) = pending(box)
        decide(box, request_id)
    assert waiting.result().status_code == 200
    ((message, got, raw),) = server.heard("tools/call")
    assert EVIL not in raw.decode() + json.dumps(got)
    assert message["params"]["arguments"] == {"path": "/a"}
    assert set(message["params"]) <= {"name", "arguments", "_meta", "task"}


@pytest.mark.served
def test_progress_tokens_traces_and_log_levels_reach_the_server(box: Served, server: Obliging) -> None:
    wire = begun(box)
    meta = {"progressToken": "p-1", "io.modelcontextprotocol/logLevel": "debug"}
    wire.post(body_of(wire, {"_meta": meta, "task": {"ttl": 5}}), traceparent=TRACE)
    ((message, headers, _),) = server.heard("tools/call")
    assert message["params"]["_meta"] == meta
    assert message["params"]["task"] == {"ttl": 60_000}
    assert headers["traceparent"] == TRACE


@pytest.mark.parametrize(
    ("ttl", "step"),
    [
        (0, 60_000),
        (60_000, 60_000),
        (60_001, 3_600_000),
        (10**9, 86_400_000),
        (-1, 60_000),
        (1e300, 86_400_000),
    ],
)
def test_for_how_long_a_task_is_kept_goes_on_in_steps(ttl: float, step: int) -> None:
    params = {"name": "run", "arguments": {}, "task": {"ttl": ttl}}
    raw = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    assert json.loads(messages.parse_mcp_message(raw).raw)["params"]["task"] == {"ttl": step}


@pytest.mark.parametrize("odd", [EVIL * 10, "a b", "ä", "", 2**53, 1.5, True])
@pytest.mark.parametrize("where", ["id", "progressToken"])
def test_a_call_with_an_odd_id_is_refused(where: str, odd: Any) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run", "_meta": {}}}
    target = call if where == "id" else call["params"]["_meta"]  # type: ignore[index]
    target[where] = odd
    with pytest.raises(messages.UnreadableMessage) as refused:
        messages.parse_mcp_message(json.dumps(call).encode())
    assert refused.value.code == messages.INVALID_REQUEST
    if where == "id" and odd is not True:
        with pytest.raises(mcp_lines.AmbiguousMessage):
            mcp_lines.parse_mcp_line(json.dumps(call).encode())


@pytest.mark.served
def test_the_card_shows_what_is_sent_along(box: Served, server: Obliging) -> None:
    rule(box, "mcp__obliging__*", "ask")
    wire = begun(box)
    extra = {"_meta": {"progressToken": "p-1"}, "task": {"ttl": 5}}
    waiting = InBackground(lambda: wire.post(body_of(wire, extra, path="/a")))
    (request_id,) = pending(box)
    page = html.unescape(box.sign_in("approver").get(f"/ui/approvals/{request_id}/").text)
    decide(box, request_id)
    assert waiting.result().status_code == 200
    assert f'{{"id": {wire.number}, "progressToken": "p-1", "task": {{"ttl": 60000}}}}' in page


@pytest.mark.served
@pytest.mark.parametrize("header", ["eu", "=?base64?ZXU=?="])
def test_a_header_that_repeats_its_argument_goes_on(box: Served, server: Obliging, header: str) -> None:
    wire = begun(box, stateless=True)
    call = wire.message("tools/call", {"name": "place", "arguments": {"region": "eu"}})
    assert "done" in wire.post(call, **{"Mcp-Param-Region": header, "Mcp-Param-Other": EVIL}).text
    ((_, headers, _),) = server.heard("tools/call")
    assert headers["mcp-param-region"] == header
    assert "mcp-param-other" not in headers


@pytest.mark.served
@pytest.mark.parametrize("arguments", [{"region": "eu"}, {}, {"region": None}])
def test_a_header_that_contradicts_its_argument_is_refused(
    box: Served, server: Obliging, arguments: dict[str, Any]
) -> None:
    wire = begun(box, stateless=True)
    call = wire.message("tools/call", {"name": "place", "arguments": arguments})
    answer = wire.post(call, **{"Mcp-Param-Region": EVIL})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == HEADER_MISMATCH
    assert not server.heard("tools/call")


@pytest.mark.parametrize(
    ("text", "value", "repeats"),
    [
        ("eu", "eu", True),
        ("us", "eu", False),
        ("true", True, True),
        ("True", True, False),
        ("1", True, False),
        ("42", 42, True),
        ("42.0", 42, True),
        ("42", 42.0, True),
        ("1.5", 1.5, True),
        ("4_2", 42, False),
        ("٤٢", 42, False),
        ("42", "42", True),
        (None, "eu", False),
        ("None", None, False),
        ("{}", {}, False),
    ],
)
def test_which_texts_repeat_an_argument(text: str | None, value: Any, repeats: bool) -> None:
    assert param_headers.is_header_matching_argument(text, {"a": {"b": value}}, ("a", "b")) is repeats


def test_headers_are_declared_on_properties_alone() -> None:
    schema = {
        "properties": {
            "a": {"x-mcp-header": "A"},
            "b": {"properties": {"c": {"x-mcp-header": "C"}}, "items": {"x-mcp-header": "Items"}},
            "d": {"default": {"x-mcp-header": "Default"}},
        },
        "x-mcp-header": "Root",
        "$defs": {"properties": {"x-mcp-header": "Defs"}},
    }
    assert param_headers.list_declared_header_paths(schema) == (
        ("mcp-param-a", ("a",)),
        ("mcp-param-c", ("b", "c")),
    )


def test_arguments_keep_their_bytes() -> None:
    raw = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","x":1,'
        b'"params":{"name":"run","y":2,"arguments":{ "a":1.50,"b":12345678901234567890123 }}}'
    )
    message = messages.parse_mcp_message(raw)
    assert message.raw == (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
        b'"params":{"name":"run","arguments":{ "a":1.50,"b":12345678901234567890123 }}}'
    )
    assert message.raw_arguments == b'{ "a":1.50,"b":12345678901234567890123 }'
    assert json.loads(message.raw) == message.value
