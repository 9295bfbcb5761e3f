"""A server asks a person in the middle of a call: a card in Signalbox answers it, and so may the client's own person.

The server and the clients are the official package's, over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from playwright.sync_api import expect

from coordinator.edge.gateway.elicitations import CallElicitations
from tests.gateway import inquiring_server
from tests.gateway.agents import KEY, Wire, furnish, rule
from tests.gateway.conftest import TABLES
from tests.gateway.inquiring_server import Inquiring
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.patience import PATIENCE
from tests.served import Served

pytestmark = [
    pytest.mark.served,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
GENERATIONS = {"2025": "legacy", "2026": "2026-07-28"}
ADDRESSES = ("/mcp", "/mcp/inquiring")


@pytest.fixture
def inquiring() -> Iterator[Inquiring]:
    with inquiring_server.running() as found:
        yield found


@pytest.fixture
def box(served: Served, inquiring: Inquiring) -> Served:
    served.emptied(*TABLES, "events", "event_origins")
    furnish(served, inquiring.url, server="inquiring")
    return served


def call(
    box: Served,
    tool: str,
    *,
    mode: str = "legacy",
    address: str = "/mcp/inquiring",
    callback: Callable[..., Any] | None = None,
    **arguments: Any,
) -> str:
    """Call a tool with the official client; return its text."""

    async def run() -> str:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as http:
            transport = streamable_http_client(f"{box.url}{address}", http_client=http)
            name = tool if address.count("/") > 1 else f"inquiring__{tool}"
            async with Client(transport, mode=mode, elicitation_callback=callback) as client:
                result = await client.call_tool(name, arguments, progress_callback=ignore_progress)
                return "".join(getattr(block, "text", "") for block in result.content)

    return asyncio.run(asyncio.wait_for(run(), PATIENCE))


async def ignore_progress(*_: Any) -> None:
    return


def fields(page: str) -> list[str]:
    return re.findall(r'name="(answer-\d+(?:-text)?)"', page)


def answer(box: Served, request_id: str, **said: str) -> httpx.Response:
    """Answer a card's form as a person does."""
    person = box.sign_in("approver")
    page = person.get(f"/ui/approvals/{request_id}/").text
    judged = re.findall(r'name="judged"\s+value="([^"]+)"', page)
    questions = re.findall(r'name="questions" value="(\d+)"', page)
    form = {"ids": [request_id], "judged": judged, "verdict": "answered", "questions": questions[0]}
    return person.post("/ui/approvals/answer/", data=form | said)


def state(box: Served, request_id: str) -> tuple[str, str | None]:
    """Return a request's status and why it was closed."""
    asked = (
        "SELECT r.status, c.reason FROM permission_requests r JOIN permission_context c USING (request_id)"
        " WHERE r.request_id = ?"
    )
    ((status, reason),) = box.sql(asked, (request_id,))
    return status, reason


def closed(box: Served, request_id: str) -> tuple[str, str | None]:
    """Return how a request was closed, once it is."""
    until = time.monotonic() + PATIENCE
    while (found := state(box, request_id))[0] == "pending":
        assert time.monotonic() < until, "it still waits"
        time.sleep(0.02)
    return found


ORDER = {"answer-0-text": "Ada", "answer-1": "1", "answer-2-text": "3", "answer-3": "0"}
ORDERED = 'accept {"name":"Ada","size":"large","count":3,"gift":true}'


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_form_is_filled_in_on_its_card_for_a_client_that_cannot_ask(
    box: Served, inquiring: Inquiring, generation: str, address: str
) -> None:
    calling = InBackground(lambda: call(box, "order", mode=GENERATIONS[generation], address=address))
    (request_id,) = pending(box)
    page = box.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
    assert "What shall be sent?" in page
    assert "For the label" in page
    assert answer(box, request_id, **ORDER).status_code == 200
    assert calling.result() == ORDERED
    assert inquiring.outcomes == [ORDERED]
    assert state(box, request_id)[0] == "approved"


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_declined_question_is_declined_at_the_server(
    box: Served, inquiring: Inquiring, generation: str
) -> None:
    calling = InBackground(lambda: call(box, "order", mode=GENERATIONS[generation]))
    (request_id,) = pending(box)
    decide(box, request_id, "denied")
    assert calling.result() == "decline"
    assert inquiring.outcomes == ["decline"]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_question_that_is_not_answered_in_time_is_cancelled(
    box: Served, inquiring: Inquiring, generation: str
) -> None:
    calling = InBackground(lambda: call(box, "order", mode=GENERATIONS[generation]))
    (request_id,) = pending(box)
    box.sql("UPDATE permission_requests SET expires_at = created_at WHERE request_id = ?", (request_id,))
    assert calling.result() == "cancel"
    assert inquiring.outcomes == ["cancel"]
    assert closed(box, request_id)[0] != "approved"


MET = 'accept {"at":"%s","until":"2026-07-01T18:00:00+05:30"}'


@pytest.mark.parametrize(
    ("zone", "at"),
    [
        ("Europe/Berlin", "2026-07-01T10:00:00+02:00"),
        ("America/New_York", "2026-07-01T10:00:00-04:00"),
        ("+05:45", "2026-07-01T10:00:00+05:45"),
        ("UTC", "2026-07-01T10:00:00+00:00"),
    ],
)
def test_a_time_is_sent_with_the_zone_that_stands_beside_it(
    box: Served, inquiring: Inquiring, zone: str, at: str
) -> None:
    calling = InBackground(lambda: call(box, "meet"))
    (request_id,) = pending(box)
    times = {"answer-0-text": "2026-07-01T10:00", "answer-1-text": "2026-07-01T18:00:00"}
    said = times | {"answer-0-zone": zone, "answer-1-zone": "+05:30"}
    assert "and its zone" in answer(box, request_id, **said | {"answer-0-zone": "Mars/Olympus"}).text
    assert "and its zone" in answer(box, request_id, **times).text
    assert answer(box, request_id, **said).status_code == 200
    assert calling.result() == MET % at


@pytest.mark.browser
def test_a_time_is_typed_in_the_readers_own_zone(
    box: Served, inquiring: Inquiring, person_at: Callable[..., Any]
) -> None:
    calling = InBackground(lambda: call(box, "meet"))
    (request_id,) = pending(box)
    page, _ = person_at(box, "approver", timezone_id="Asia/Tokyo")
    page.add_init_script("performance.now = ((now) => () => (now += 1000))(0)")
    page.goto(f"{box.url}/ui/approvals/{request_id}/")
    expect(page.locator("[name=answer-0-zone]")).to_have_value("Asia/Tokyo")
    expect(page.locator("[name=answer-1-zone]")).to_have_value("+05:30")
    expect(page.locator("[name=answer-1-text]")).to_have_value("2026-07-01T18:00")
    page.locator("[name=answer-0-text]").fill("2026-07-01T10:00")
    page.get_by_role("button", name="Send answers").click()
    assert calling.result() == MET % "2026-07-01T10:00:00+09:00"


def test_a_bare_yes_accepts_nothing(box: Served, inquiring: Inquiring) -> None:
    """Another program may write into the table: only an answer to the form counts."""
    calling = InBackground(lambda: call(box, "order"))
    (request_id,) = pending(box)
    box.sql("UPDATE permission_requests SET status = 'approved' WHERE request_id = ?", (request_id,))
    assert calling.result() == "cancel"


def test_an_address_is_opened_or_declined(box: Served, inquiring: Inquiring) -> None:
    url = "https://pay.example/order?token=glpat-A1b2C3d4E5f6G7h8I9j0"
    calling = InBackground(lambda: call(box, "pay", url=url))
    (request_id,) = pending(box)
    page = box.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
    assert f'href="{url}"' in page
    assert "pay.example" in page
    stored = box.sql("SELECT tool_input FROM permission_context WHERE request_id = ?", (request_id,))
    assert "A1b2C3d4" not in str(stored)
    assert answer(box, request_id).status_code == 200
    assert calling.result() == "accept"


@pytest.mark.parametrize("url", ["javascript:alert(1)", "https://good.example@evil.example/", "file:///etc"])
def test_an_address_that_hides_where_it_leads_is_not_shown(box: Served, url: str) -> None:
    wire = Wire(box, server="inquiring")
    wire.initialize()
    answered = wire.response(wire.send("tools/call", {"name": "pay", "arguments": {"url": url}}))
    assert "form that MCP does not allow" in json.dumps(answered)
    assert box.sql("SELECT count(*) FROM permission_requests") == [(0,)]


def test_a_secret_is_sealed_until_it_is_sent_and_then_gone(box: Served, inquiring: Inquiring) -> None:
    calling = InBackground(lambda: call(box, "sign_in"))
    (request_id,) = pending(box)
    page = box.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
    assert 'type="password"' in page
    said = {"answer-0-text": "ada", "answer-1-text": "hunter2-correct"}
    assert "hunter2" not in answer(box, request_id, **said).text
    assert calling.result() == 'accept {"user":"ada","password":"hunter2-correct"}'
    until = time.monotonic() + PATIENCE
    stored = "SELECT answer FROM permission_context WHERE request_id = ?"
    while "sealed" in box.sql(stored, (request_id,))[0][0]:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert "ada" in box.sql(stored, (request_id,))[0][0]
    audited = box.sql("SELECT metadata FROM audit_logs WHERE event_type = 'PERMISSION_REQUEST_APPROVED'")
    assert "ada" in audited[-1][0]
    assert "sealed" not in audited[-1][0]
    for table in ("permission_context", "audit_logs"):
        assert "hunter2" not in str(box.sql(f"SELECT * FROM {table}"))


def test_the_clients_own_person_may_be_faster_and_the_card_says_so(box: Served, inquiring: Inquiring) -> None:
    cards: list[str] = []

    async def accept(_context: Any, _params: Any) -> ElicitResult:
        cards.extend(pending(box))
        return ElicitResult(
            action="accept", content={"name": "Eve", "size": "small", "count": 1, "gift": False}
        )

    assert call(box, "order", callback=accept).startswith('accept {"name":"Eve"')
    assert closed(box, cards[0]) == ("withdrawn", "Answered in the agent's own program.")


def test_a_client_that_cancels_leaves_the_card_to_people(box: Served, inquiring: Inquiring) -> None:
    async def cancel(_context: Any, _params: Any) -> ElicitResult:
        return ElicitResult(action="cancel")

    calling = InBackground(lambda: call(box, "order", callback=cancel))
    (request_id,) = pending(box)
    assert answer(box, request_id, **ORDER).status_code == 200
    assert calling.result() == ORDERED


@pytest.mark.parametrize("address", ["", "inquiring"])
def test_an_answer_here_takes_the_question_back_from_the_client(box: Served, address: str) -> None:
    wire = Wire(box, server=address, capabilities={"elicitation": {}})
    wire.initialize()
    name = "order" if address else "inquiring__order"
    message = wire.message("tools/call", {"name": name, "arguments": {}, "_meta": {"progressToken": 1}})
    calling = InBackground(lambda: wire.response(wire.post(message)))
    (request_id,) = pending(box)
    assert answer(box, request_id, **ORDER).status_code == 200
    assert ORDERED in json.dumps(calling.result()).replace("\\", "")
    (asked,) = [one for one in wire.heard if one.get("method") == "elicitation/create"]
    (taken_back,) = [one for one in wire.heard if one.get("method") == "notifications/cancelled"]
    assert taken_back["params"] == {"requestId": asked["id"], "reason": "Answered in Signalbox."}
    late = wire.post({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}})
    assert late.status_code == 202


def test_two_questions_of_one_call_are_two_cards(box: Served, inquiring: Inquiring) -> None:
    calling = InBackground(lambda: call(box, "order_twice"))
    (first,) = pending(box)
    assert answer(box, first, **ORDER).status_code == 200
    closed(box, first)
    (second,) = pending(box)
    assert second != first
    decide(box, second, "denied")
    assert calling.result() == f"{ORDERED} decline"


def test_a_client_that_leaves_takes_its_question_with_it(box: Served, inquiring: Inquiring) -> None:
    wire = Wire(box, server="inquiring")
    wire.initialize()
    message = wire.message("tools/call", {"name": "order", "arguments": {}, "_meta": {"progressToken": 1}})
    with wire.http.stream("POST", wire.path, json=message, headers=wire.headers_for(message)):
        (request_id,) = pending(box)
    assert closed(box, request_id) == ("withdrawn", "The call in whose middle it was asked has ended.")
    until = time.monotonic() + PATIENCE
    while not inquiring.outcomes and time.monotonic() < until:
        time.sleep(0.02)
    assert inquiring.outcomes in ([], ["cancel"])


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_rule_declines_the_questions_of_a_server(
    box: Served, inquiring: Inquiring, generation: str
) -> None:
    rule(box, "mcp__inquiring__elicitation/create", "deny")
    assert call(box, "order", mode=GENERATIONS[generation]) == "decline"
    assert box.sql("SELECT count(*) FROM permission_requests") == [(0,)]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_approved_call_asks_in_its_middle(box: Served, inquiring: Inquiring, generation: str) -> None:
    rule(box, "mcp__inquiring__order", "ask")
    calling = InBackground(lambda: call(box, "order", mode=GENERATIONS[generation]))
    (first,) = pending(box)
    decide(box, first)
    (question,) = pending(box)
    assert question != first
    assert answer(box, question, **ORDER).status_code == 200
    assert calling.result() == ORDERED


def test_the_question_stands_in_the_timeline_of_the_call(box: Served, inquiring: Inquiring) -> None:
    calling = InBackground(lambda: call(box, "order"))
    (request_id,) = pending(box)
    ((session_id,),) = box.sql(
        "SELECT session_id FROM permission_context WHERE request_id = ?", (request_id,)
    )
    assert answer(box, request_id, **ORDER).status_code == 200
    calling.result()
    page = box.sign_in("approver").get(f"/ui/sessions/{session_id}/").text
    assert "What shall be sent?" in page
    assert "Ada" in page


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"form": {}}}])
def test_a_question_that_policy_denies_just_then_is_left_to_no_client(capabilities: dict[str, Any]) -> None:
    """The gate has let it pass, and the card is refused: a rule was saved in between."""
    handler = AsyncMock(open_elicitation_card=AsyncMock(return_value=None))
    exchange: Any = SimpleNamespace(
        client=SimpleNamespace(capabilities=capabilities),
        message=SimpleNamespace(is_stateless=False),
        disconnect=SimpleNamespace(happened=False),
    )
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    params = {"message": "Who are you?", "requestedSchema": schema}
    question = {"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params}
    questions = CallElicitations(handler, exchange, AsyncMock())
    assert asyncio.run(questions.intercept_server_message(json.dumps(question).encode()))
    handler.send_elicitation_response.assert_awaited_once_with(exchange, 7, result={"action": "decline"})
