"""An approved call whose server asks for more before it answers (2026-07-28) goes on, and a person is asked once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway import rude_server
from tests.gateway.agents import Wire, furnish, rule, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.rude_server import RudeServer
from tests.gateway.test_held_calls import TASKS, decide, ended, outputs, pending
from tests.patience import PATIENCE
from tests.served import Served

pytestmark = pytest.mark.served
OPENS = {"elicitation": {"url": {}, "form": {}}}
NOWHERE = "http://127.0.0.1:9/mcp"


@pytest.fixture
def rude() -> Iterator[RudeServer]:
    with rude_server.running() as found:
        yield found


@pytest.fixture
def box(served: Served, rude: RudeServer) -> Served:
    served.emptied(*TABLES, "events", "event_origins")
    furnish(served, rude.url, server="rude")
    rule(served, "mcp__rude__*", "ask")
    return served


def answers(*said: str) -> dict[str, Any]:
    """Return what a client says to a question."""
    return dict(zip(("who", "what"), ({"action": "accept", "content": one} for one in said), strict=True))


def retry(wire: Wire, asked: dict[str, Any], **said: Any) -> dict[str, Any]:
    params = {"name": "ask", "arguments": {}, "requestState": asked["requestState"], "inputResponses": said}
    return wire.ask("tools/call", params)


def approved(box: Served, wire: Wire) -> dict[str, Any]:
    """Return the first question of the server, once a person has approved the call."""
    card = wire.call("ask")
    (request_id,) = pending(box)
    decide(box, request_id)
    return retry(wire, card)


def move(box: Served, url: str) -> None:
    box.sql("UPDATE mcp_upstreams SET url = ? WHERE server_id = 'rude'", (url,))


def test_the_end_after_all_questions_stands_in_the_timeline(box: Served, rude: RudeServer) -> None:
    wire = Wire(box, server="rude", stateless=True, capabilities=OPENS)
    first = approved(box, wire)
    assert first["resultType"] == "input_required"
    second = retry(wire, first, **answers("", ""))
    assert text_of(retry(wire, second, **answers("Ada", "tea"))) == "Ada tea"
    assert rude.calls["ask"] == 3
    assert outputs(box, 1) == ["Ada tea"]
    assert "answered before" in text_of(retry(wire, first, **answers("Eve", "all")))
    assert rude.calls["ask"] == 3


def test_a_task_asks_its_client_and_goes_on(box: Served, rude: RudeServer) -> None:
    wire = Wire(box, server="rude", stateless=True, capabilities=TASKS)
    task = {"taskId": wire.call("ask")["taskId"]}
    (request_id,) = pending(box)
    decide(box, request_id)
    seen: set[str] = set()
    for said in (("", ""), ("Ada", "tea")):
        found = asking(wire, task)
        names = dict(zip(("who", "what"), sorted(found["inputRequests"], reverse=True), strict=True))
        assert not seen & set(names.values()), "a name is used once in a task's life"
        seen |= set(names.values())
        for name, answer in answers(*said).items():  # one by one
            told = task | {"inputResponses": {names[name]: answer, "unasked": answer}}
            assert wire.ask("tasks/update", told) == {"resultType": "complete"}
    assert text_of(ended(wire, task)["result"]) == "Ada tea"
    assert rude.calls["ask"] == 3
    assert outputs(box, 1) == ["Ada tea"]
    assert box.sql("SELECT count(*) FROM permission_requests") == [(1,)]


def asking(wire: Wire, task: dict[str, Any]) -> dict[str, Any]:
    """Return a task once its server asks something."""
    deadline = time.monotonic() + PATIENCE
    while (found := wire.ask("tasks/get", task))["status"] == "working" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found["status"] == "input_required", found
    return found


def test_a_task_that_asks_is_held_to_the_policy_of_now(box: Served, rude: RudeServer) -> None:
    wire = Wire(box, server="rude", stateless=True, capabilities=TASKS)
    task = {"taskId": wire.call("ask")["taskId"]}
    (request_id,) = pending(box)
    decide(box, request_id)
    asked = asking(wire, task)["inputRequests"]
    box.sql("UPDATE tool_rules SET verdict = 'deny'")
    told = {name: {"action": "accept", "content": ""} for name in asked}
    wire.ask("tasks/update", task | {"inputResponses": told})
    assert "Denied" in text_of(ended(wire, task)["result"])
    assert rude.calls["ask"] == 1


def test_a_question_stands_whose_answer_could_not_be_sent(box: Served, rude: RudeServer) -> None:
    wire = Wire(box, server="rude", stateless=True, capabilities=OPENS)
    first = approved(box, wire)
    move(box, NOWHERE)
    refused = text_of(retry(wire, first, **answers("", "")))
    assert "did not go on" in refused
    assert "approval" not in refused
    move(box, rude.url)
    second = retry(wire, first, **answers("", ""))
    assert text_of(retry(wire, second, **answers("Ada", "tea"))) == "Ada tea"
    assert box.sql("SELECT count(*) FROM permission_requests") == [(1,)]


def test_a_task_whose_server_cannot_be_reached_says_so_and_its_approval_stands(
    box: Served, rude: RudeServer
) -> None:
    wire = Wire(box, server="rude", stateless=True, capabilities=TASKS)
    task = {"taskId": wire.call("fine")["taskId"]}
    (request_id,) = pending(box)
    move(box, NOWHERE)
    decide(box, request_id)
    found = ended(wire, task)
    assert found["result"]["isError"]
    assert "The approval stands" in text_of(found["result"])
    move(box, rude.url)
    assert text_of(wire.call("fine")) == "fine"
    assert rude.calls == {"fine": 1}


def test_an_approved_call_is_not_lost_whose_client_hears_the_end_elsewhere(
    box: Served, rude: RudeServer
) -> None:
    wire = Wire(box, server="rude")
    wire.initialize()
    message = wire.message(
        "tools/call", {"name": "leave_open", "arguments": {}, "_meta": {"progressToken": 1}}
    )
    with wire.http.stream("POST", wire.path, json=message, headers=wire.headers_for(message)) as answer:
        lines = answer.iter_lines()
        next(lines)
        (request_id,) = pending(box)
        decide(box, request_id)
        assert not any("may have run" in line for line in lines)
    assert box.sql("SELECT state FROM mcp_gateway_calls") == [("done",)]


def test_a_task_that_asks_can_be_cancelled(box: Served, rude: RudeServer) -> None:
    wire = Wire(box, server="rude", stateless=True, capabilities=TASKS)
    task = {"taskId": wire.call("ask")["taskId"]}
    (request_id,) = pending(box)
    decide(box, request_id)
    asked = asking(wire, task)["inputRequests"]
    assert wire.ask("tasks/cancel", task) == {"resultType": "complete"}
    told = {name: {"action": "accept", "content": ""} for name in asked}
    wire.ask("tasks/update", task | {"inputResponses": told})
    assert wire.ask("tasks/get", task)["status"] == "cancelled"
    assert rude.calls["ask"] == 1
