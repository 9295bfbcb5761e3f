"""An upstream that dies, hangs, floods, lies or points elsewhere harms nobody, and the agent is told what happened."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
import pytest

from tests.gateway import rude_server
from tests.gateway.agents import KEY, GatewayRefused, Wire, events, furnish, rule, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.rude_server import RudeServer
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.served import Served

pytestmark = pytest.mark.served


@pytest.fixture
def rude() -> Iterator[RudeServer]:
    with rude_server.running() as found:
        yield found


@pytest.fixture
def wire(served: Served, rude: RudeServer) -> Wire:
    served.emptied(*TABLES)
    furnish(served, rude.url, server="rude")
    served.sql("UPDATE mcp_upstreams SET call_seconds = 3 WHERE server_id = 'rude'")
    found = Wire(served, server="rude")
    found.initialize()
    return found


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("die", "in the middle of its answer"),
        ("hang", "did not answer within 3 seconds"),
        ("linger", "did not answer within 3 seconds"),
        ("flood", "more than 16777216 bytes"),
        ("flood_events", "more than 16777216 bytes"),
        ("lie", "does not match the request"),
        ("redirect", "points to another address"),
        ("refuse", "rejected Signalbox's credentials"),
        ("garbage", "does not speak HTTP"),
    ],
)
def test_a_call_that_goes_wrong_is_an_error_that_a_model_can_read(
    wire: Wire, rude: RudeServer, tool: str, words: str
) -> None:
    result = wire.call(tool)
    assert result["isError"]
    assert words in text_of(result)
    assert rude.calls == {tool: 1}
    assert text_of(wire.call("fine")) == "fine"


@pytest.mark.parametrize(("tool", "words"), [("broken", "half done"), ("nameless", "cannot read")])
def test_what_a_server_answered_is_no_status_at_which_clients_call_again(
    wire: Wire, rude: RudeServer, tool: str, words: str
) -> None:
    message = wire.message("tools/call", {"name": tool, "arguments": {}})
    answer = wire.post(message)
    assert answer.status_code == 200
    assert answer.json()["id"] == message["id"]
    assert answer.json()["error"]["message"] == words
    assert rude.calls == {tool: 1}


@pytest.mark.parametrize(("tool", "status"), [("nameless", 400), ("broken", 200)])
def test_a_refusal_keeps_its_status_where_no_client_calls_again_at_it(
    wire: Wire, tool: str, status: int
) -> None:
    of_2026 = Wire(wire.box, server="rude", stateless=True)
    answer = of_2026.send("tools/call", {"name": tool, "arguments": {}})
    assert answer.status_code == status
    assert "error" in answer.json()


def test_a_call_that_was_sent_is_marked_as_one(wire: Wire) -> None:
    told = wire.call("done_elsewhere")
    assert "may have run" in text_of(told)
    assert told["_meta"]["signalbox/decision"] == {"decision": "allow", "sent": True}


def test_an_approved_call_that_was_sent_elsewhere_is_not_sent_again(wire: Wire, rude: RudeServer) -> None:
    rule(wire.box, "mcp__rude__done_elsewhere", "ask")
    waiting = InBackground(lambda: wire.call("done_elsewhere"))
    (request_id,) = pending(wire.box)
    decide(wire.box, request_id)
    assert "may have run" in text_of(waiting.result())
    used = "SELECT count(*) FROM permission_context WHERE used_at IS NOT NULL"
    assert wire.box.sql(used) == [(1,)]


def test_an_approved_call_goes_where_the_server_is_by_then(wire: Wire, rude: RudeServer) -> None:
    rule(wire.box, "mcp__rude__fine", "ask")
    waiting = InBackground(lambda: wire.call("fine"))
    (request_id,) = pending(wire.box)
    with rude_server.running() as moved:
        wire.box.sql("UPDATE mcp_upstreams SET url = ? WHERE server_id = 'rude'", (moved.url,))
        decide(wire.box, request_id)
        assert text_of(waiting.result()) == "fine"
        assert (rude.calls["fine"], moved.calls["fine"]) == (0, 1)


def test_answers_that_no_approver_saw_go_with_no_call(wire: Wire, rude: RudeServer) -> None:
    rule(wire.box, "mcp__rude__fine", "ask")
    params = {"name": "fine", "arguments": {}, "inputResponses": {"sure": {"action": "accept"}}}
    waiting = InBackground(lambda: wire.ask("tools/call", params))
    (request_id,) = pending(wire.box)
    decide(wire.box, request_id)
    assert text_of(waiting.result()) == "fine"
    assert rude.told[-1]["params"] == {"name": "fine", "arguments": {}}


def test_a_response_to_a_number_nobody_sent_is_not_passed_on(wire: Wire) -> None:
    assert text_of(wire.call("lie_in_stream")) == "mine"
    assert "another's" not in str(wire.heard)


def test_a_list_of_tools_on_the_client_s_own_stream_is_a_list_of_tools(wire: Wire) -> None:
    rule(wire.box, "mcp__rude__die", "deny")
    assert "die" not in str(wire.ask("tools/list"))
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": str(wire.session)}
    told = list(events(wire.http.get(wire.path, headers=headers).iter_lines()))
    assert [one.get("id") for one in told] == [None, 2, 3]
    assert "die" not in [tool["name"] for tool in told[1]["result"]["tools"]]


def test_no_credential_of_the_agent_reaches_the_server(wire: Wire, rude: RudeServer) -> None:
    wire.http.headers.update({"X-API-Key": KEY, "Cookie": "a=b"})
    wire.call("fine")
    told = str(rude.seen)
    assert KEY not in told
    assert "a=b" not in told
    assert "authorization" not in told


def test_a_private_address_is_refused_unless_an_admin_allowed_it(wire: Wire) -> None:
    wire.box.sql("UPDATE mcp_upstreams SET private_network = ? WHERE server_id = 'rude'", (False,))
    other = Wire(wire.box, server="rude")

    def until_the_change_is_heard_of() -> None:
        for _ in range(200):
            with contextlib.suppress(
                AssertionError
            ):  # it is heard of between the two messages of a beginning
                other.initialize()

    with pytest.raises(GatewayRefused) as refused:
        until_the_change_is_heard_of()
    assert refused.value.status == 502
    assert "private network" in refused.value.text


def test_a_client_that_goes_away_leaves_the_gateway_at_work(wire: Wire) -> None:
    message = wire.message("tools/call", {"name": "hang", "arguments": {}})
    for _ in range(5):
        with pytest.raises(httpx.ReadTimeout):
            wire.http.post(wire.path, json=message, headers=wire.headers_for(message), timeout=0.2)
    assert text_of(wire.call("fine")) == "fine"
