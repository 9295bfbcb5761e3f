"""No odd form lets a request of a server reach a client that policy keeps it from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.mcp.protocol.messages import BRAKED, DENIED
from tests.gateway.agents import rule
from tests.gateway.asking_server import ITS_ID, SAMPLING, Asking
from tests.gateway.test_braked_reads import put_on
from tests.gateway.test_held_calls import InBackground
from tests.gateway.test_server_requests import REQUESTS, SAMPLE, asking, begun, box
from tests.patience import PATIENCE
from tests.served import Served

__all__ = ["asking", "box"]  # fixtures

pytestmark = pytest.mark.served

ASKED = json.dumps({"jsonrpc": "2.0", "id": ITS_ID, **SAMPLING}).encode()
ODD = {
    "a batch": b"[" + ASKED + b"]",
    "a number that is none": ASKED.replace(b'"maxTokens": 9', b'"maxTokens": NaN'),
    "a byte that is no text": ASKED.replace(b"SECRET", b"SECRET\xff"),
    "half a sign": ASKED.replace(b"SECRET", b"SECRET\\ud800"),
    "a member twice": ASKED.replace(b'"id":', b'"method": "ping", "id":'),
    "a member twice, the harmless last": ASKED[:-1] + b', "method": "ping"}',
    "another case": ASKED.replace(b'"method"', b'"Method"'),
    "two cases": ASKED[:-1] + b', "Method": "ping"}',
    "escapes": ASKED.replace(b'"method"', b'"\\u006dethod"'),
    "a method with a blank": ASKED.replace(b"sampling/createMessage", b" sampling/createMessage"),
    "a response, too": ASKED[:-1] + b', "result": {}}',
    "a byte order mark": b"\xef\xbb\xbf" + ASKED,
    "deep": ASKED.replace(b'"maxTokens": 9', b'"x": ' + b"[" * 300 + b"]" * 300),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("method", ["tools/call", "resources/read"])
def test_an_odd_request_on_a_stream_does_not_reach_the_client(
    box: Served, asking: Asking, method: str, odd: str
) -> None:
    rule(box, "mcp__asking__*sampling*", "deny")
    asking.event = ODD[odd]
    asking.answered.set()
    wire = begun(box, stateless=False)
    answer = wire.response(wire.send(method, REQUESTS[method]))
    assert "SECRET" not in json.dumps([*wire.heard, answer])


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_request_on_the_servers_own_stream_does_not_reach_the_client(
    box: Served, asking: Asking, odd: str
) -> None:
    rule(box, "mcp__asking__*sampling*", "deny")
    asking.event = ODD[odd]
    wire = begun(box, stateless=False)
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": wire.session or "", "Last-Event-ID": "1"}
    with wire.http.stream("GET", wire.path, headers=headers) as stream:
        text = "".join(stream.iter_text())
    assert "SECRET" not in text
    assert "list_changed" in text


URL_REQUIRED: dict[str, Any] = {
    "code": -32042,
    "message": "Open this first.",
    "data": {
        "elicitations": [
            {"mode": "url", "url": "https://SECRET.example/", "message": "m", "elicitationId": "1"}
        ]
    },
}


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("policy", ["", "deny", "brake"])
def test_an_error_that_has_a_person_open_an_address_is_a_question(
    box: Served, asking: Asking, policy: str, method: str
) -> None:
    asking.error = URL_REQUIRED
    asking.release.clear()
    wire = begun(box, stateless=False)
    if policy == "deny":
        rule(box, "mcp__asking__elicitation/create", "deny")
    calling = InBackground(lambda: wire.response(wire.send(method, REQUESTS[method])))
    assert asking.began.wait(PATIENCE)
    if policy == "brake":
        put_on(box)
    asking.release.set()
    error = calling.result()["error"]
    if policy:
        assert error["code"] == (DENIED if policy == "deny" else BRAKED)
        assert "SECRET" not in json.dumps(error)
    else:
        assert error == URL_REQUIRED


@pytest.mark.parametrize(
    "asks",
    [
        '{"q":{"method":"sampling/createMessage","params":{"x":"SECRET"}},"q":{"method":"ping"}}',
        '{"q":{"method":"sampling/createMessage","method":"ping","params":{"x":"SECRET"}}}',
        '{"q":{"METHOD":"sampling/createMessage","params":{"x":"SECRET"}}}',
    ],
)
def test_an_odd_request_in_a_result_does_not_reach_the_client(box: Served, asking: Asking, asks: str) -> None:
    rule(box, SAMPLE, "deny")
    asking.asks = asks
    wire = begun(box, stateless=True)
    answer = wire.response(wire.send("tools/call", REQUESTS["tools/call"]))
    assert "SECRET" not in json.dumps(answer)
