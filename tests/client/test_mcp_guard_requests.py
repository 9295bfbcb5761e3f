"""`signalbox mcp SERVER -- COMMAND`: what the server asks of the agent's client is judged, and so is the answer."""

from __future__ import annotations

import json
import queue
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.test_mcp_guard import Agent, Answer, Signalbox, box
from tests.patience import PATIENCE, until

__all__ = ["box"]  # a fixture

pytestmark = pytest.mark.one_engine

SERVER = str(Path(__file__).parent / "asking_stdio_server.py")
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "SECRET"}}], "maxTokens": 9}
FORM = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {}}}
REQUESTS: dict[str, dict[str, Any]] = {
    "sampling/createMessage": SAMPLING,
    "roots/list": {},
    "elicitation/create": FORM,
}


@pytest.fixture
def agent(box: Signalbox) -> Iterator[Agent]:
    started = Agent(box.url, "s", "--", sys.executable, SERVER)
    yield started
    started.process.kill()
    started.process.wait()


def deny(box: Signalbox, *, braked: bool = False) -> None:
    """Have requests of servers refused, and calls allowed."""

    def answer(question: dict[str, Any]) -> Answer:
        if question.get("from_server"):
            return 200, {"decision": "deny", "reason": "Denied: not that.", "braked": braked}
        return 200, {"decision": "allow", "call_id": "c1"}

    box.answers = answer


def ask(agent: Agent, method: str, params: dict[str, Any]) -> str:
    """Have the server ask something in the middle of a call; return the line."""
    line = json.dumps({"jsonrpc": "2.0", "id": "s1", "method": method, "params": params})
    agent.send("tools/call", 1, name="ask", arguments={"line": line})
    return line


def asked(box: Signalbox) -> list[dict[str, Any]]:
    return [question for question in box.asked() if question.get("from_server")]


def next_line(agent: Agent) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(agent.lines.get(timeout=PATIENCE))
    return message


@pytest.mark.parametrize("method", REQUESTS)
def test_a_request_reaches_the_client_where_policy_allows_it_and_its_answer_is_judged_again(
    agent: Agent, box: Signalbox, method: str
) -> None:
    line = ask(agent, method, REQUESTS[method])
    assert next_line(agent) == json.loads(line)
    agent.raw(json.dumps({"jsonrpc": "2.0", "id": "s1", "result": {"mine": 1}}))
    assert "mine" in agent.told(1)["result"]["content"][0]["text"]
    first, again = asked(box)
    assert first == again
    assert (first["server"], first["method"]) == ("s", method)
    assert json.loads(first["arguments"]) == REQUESTS[method]


@pytest.mark.parametrize("method", REQUESTS)
def test_a_request_that_policy_denies_is_answered_in_the_client_s_place(
    agent: Agent, box: Signalbox, method: str
) -> None:
    deny(box)
    ask(agent, method, REQUESTS[method])
    told = next_line(agent)
    assert told["id"] == 1, "nothing came before the call's answer"
    answer = json.loads(told["result"]["content"][0]["text"])
    if method == "elicitation/create":
        assert answer["result"] == {"action": "decline"}
    else:
        assert answer["error"] == {"code": -1, "message": "Denied: not that."}


def test_what_cannot_be_asked_does_not_reach_the_client(agent: Agent, box: Signalbox) -> None:
    box.answers = lambda question: (
        (403, {}) if question.get("from_server") else (200, {"decision": "allow", "call_id": "c1"})
    )
    ask(agent, "sampling/createMessage", SAMPLING)
    assert "could not be asked" in next_line(agent)["result"]["content"][0]["text"]


def test_an_answer_does_not_reach_the_server_once_a_brake_is_on(agent: Agent, box: Signalbox) -> None:
    ask(agent, "elicitation/create", FORM)
    next_line(agent)
    deny(box, braked=True)
    agent.raw(json.dumps({"jsonrpc": "2.0", "id": "s1", "result": {"action": "accept", "content": {}}}))
    answer = json.loads(agent.told(1)["result"]["content"][0]["text"])
    assert answer["result"] == {"action": "cancel"}


def test_a_client_s_answer_to_what_it_was_not_asked_is_dropped(agent: Agent, box: Signalbox) -> None:
    deny(box)
    agent.send("tools/call", 1, name="ask", arguments={})
    agent.raw(json.dumps({"jsonrpc": "2.0", "id": "s1", "result": {"mine": 1}}))
    with pytest.raises(queue.Empty):
        agent.lines.get(timeout=1.0)
    agent.send("tools/call", 2, name="ask", arguments={"result": {"content": []}})
    assert next_line(agent)["id"] == 2


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":"s1","Method":"sampling/createMessage","params":{}}',
        '{"jsonrpc":"2.0","id":"s1","method":"ping","Method":"sampling/createMessage","params":{}}',
        '{"jsonrpc":"2.0","id":"s1","method":"ping","method":"sampling/createMessage","params":{}}',
    ],
)
def test_a_request_that_can_be_read_in_two_ways_reaches_nobody(
    agent: Agent, box: Signalbox, line: str
) -> None:
    agent.send("tools/call", 1, name="ask", arguments={"line": line, "result": {"content": []}})
    assert next_line(agent)["id"] == 1


def test_a_ping_is_asked_about_by_nobody(agent: Agent, box: Signalbox) -> None:
    ask(agent, "ping", {})
    assert next_line(agent)["method"] == "ping"
    agent.raw(json.dumps({"jsonrpc": "2.0", "id": "s1", "result": {}}))
    agent.told(1)
    assert not asked(box)


@pytest.mark.parametrize("is_denied", [False, True])
def test_what_a_result_asks_of_the_client_is_judged(agent: Agent, box: Signalbox, is_denied: bool) -> None:
    if is_denied:
        deny(box)
    asks = {"q": {"method": "sampling/createMessage", "params": SAMPLING}}
    result = {"resultType": "input_required", "inputRequests": asks}
    agent.send("tools/call", 1, name="ask", arguments={"result": result})
    told = agent.told(1)
    if is_denied:
        assert told["error"] == {"code": -32012, "message": "Denied: not that."}
    else:
        assert told["result"] == result
    assert len(asked(box)) == 1


def test_an_error_that_has_a_person_open_an_address_is_judged(agent: Agent, box: Signalbox) -> None:
    question = {"mode": "url", "url": "https://shop.example/", "message": "m", "elicitationId": "1"}
    error = {"code": -32042, "message": "Open it.", "data": {"elicitations": [question]}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "error": error})
    agent.send("tools/call", 1, name="ask", arguments={"line": line})
    assert agent.told(1)["error"] == error
    assert [json.loads(one["arguments"]) for one in asked(box)] == [question]
    deny(box)
    agent.send("tools/call", 2, name="ask", arguments={"line": line.replace('"id": 1', '"id": 2')})
    assert agent.told(2)["error"]["code"] == -32012


@pytest.mark.parametrize(
    "asks",
    [
        {"inputRequests": {"q": {"method": "ping", "Method": "sampling/createMessage"}}},
        {"InputRequests": [1]},
        {"inputRequests": {"q": {"Method": "sampling/createMessage"}}},
    ],
)
def test_a_result_that_asks_in_two_ways_does_not_reach_the_client(
    agent: Agent, box: Signalbox, asks: dict[str, Any]
) -> None:
    agent.send("tools/call", 1, name="ask", arguments={"result": {"resultType": "input_required"} | asks})
    assert "error" in agent.told(1)


def test_a_request_that_is_taken_back_while_it_is_judged_does_not_reach_the_client(
    agent: Agent, box: Signalbox
) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "s1"}}
    box.answers = lambda question: (200, {"decision": "allow", "call_id": "c1"})
    line = json.dumps({"jsonrpc": "2.0", "id": "s1", "method": "roots/list"})
    arguments = {"line": f"{line}\n{json.dumps(note)}", "result": {"content": []}}
    agent.send("tools/call", 1, name="ask", arguments=arguments)
    assert agent.told(1)["result"] == {"content": []}
    until(lambda: len(asked(box)) == 1)
