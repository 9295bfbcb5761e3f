"""What a server asks of its client and policy asks about: the client hears of it once a person approved it."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from coordinator.mcp.protocol.messages import BRAKED, DENIED
from tests.gateway.agents import AGENT, LONG_AGO, Wire, events, grant, rule
from tests.gateway.asking_server import ITS_ID, QUESTION, SAMPLING, Asking
from tests.gateway.test_braked_reads import put_on
from tests.gateway.test_elicitation import closed
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.gateway.test_server_requests import REQUESTS, SAMPLE, asking, begun, box, recorded
from tests.patience import PATIENCE, until
from tests.served import Served

__all__ = ["asking", "box"]  # fixtures

pytestmark = pytest.mark.served

SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "mine"}, "model": "m"}
ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}
CALL = REQUESTS["tools/call"]


class Listening:
    """A client that listens to the answer of its request, in a thread of its own."""

    def __init__(self, wire: Wire, method: str = "tools/call", params: dict[str, Any] = CALL) -> None:
        self.wire = wire
        self.asked = threading.Event()
        self.messages: list[dict[str, Any]] = []
        message = wire.message(method, params)
        self._reading = InBackground(lambda: self.read(message))

    def read(self, message: dict[str, Any]) -> None:
        headers = self.wire.headers_for(message)
        with self.wire.http.stream("POST", self.wire.path, json=message, headers=headers) as stream:
            for heard in events(stream.iter_lines()):
                self.messages.append(heard)
                if heard.get("id") == ITS_ID:
                    self.asked.set()

    def answer(self, result: dict[str, Any]) -> None:
        """Answer the server's request as the client does that got it."""
        assert self.asked.wait(PATIENCE)
        assert self.wire.post({"jsonrpc": "2.0", "id": ITS_ID, "result": result}).status_code == 202

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Return what the server asked of the client."""
        return [message for message in self.messages if message.get("id") == ITS_ID]

    def response(self) -> dict[str, Any]:
        self._reading.result()
        return self.messages[-1]


@pytest.fixture
def ruled(box: Served) -> Served:
    rule(box, SAMPLE, "ask")
    rule(box, "mcp__asking__roots/list", "ask")
    return box


@pytest.mark.parametrize("question", [SAMPLING, ROOTS], ids=["sampling", "roots"])
@pytest.mark.parametrize("method", REQUESTS)
def test_a_request_of_a_server_reaches_the_client_once_a_person_approved_it(
    ruled: Served, asking: Asking, method: str, question: dict[str, Any]
) -> None:
    asking.reset(question)
    listening = Listening(begun(ruled, stateless=False), method, REQUESTS[method])
    (request_id,) = pending(ruled)
    assert not listening.requests
    assert not asking.answers
    decide(ruled, request_id)
    listening.answer(SAMPLED)
    assert "result" in listening.response()
    assert listening.requests == [{"jsonrpc": "2.0", "id": ITS_ID, **question}]
    assert asking.answers == [{"jsonrpc": "2.0", "id": ITS_ID, "result": SAMPLED}]


@pytest.mark.parametrize("method", REQUESTS)
def test_a_request_in_a_result_reaches_the_client_once_a_person_approved_it(
    ruled: Served, asking: Asking, method: str
) -> None:
    wire = begun(ruled, stateless=True)
    waiting = InBackground(lambda: wire.response(wire.send(method, REQUESTS[method])))
    (request_id,) = pending(ruled)
    decide(ruled, request_id)
    assert waiting.result()["result"]["inputRequests"] == {"q": SAMPLING}
    ((used_at,),) = ruled.sql("SELECT used_at FROM permission_context")
    assert used_at is not None
    again = InBackground(lambda: wire.response(wire.send(method, REQUESTS[method])))
    (another,) = pending(ruled)
    decide(ruled, another, "denied")
    assert again.result()["error"]["code"] == DENIED


@pytest.mark.parametrize("stateless", [False, True])
def test_what_a_person_denies_does_not_reach_the_client(
    ruled: Served, asking: Asking, stateless: bool
) -> None:
    wire = begun(ruled, stateless=stateless)
    waiting = InBackground(lambda: wire.response(wire.send("tools/call", CALL)))
    decide(ruled, pending(ruled)[0], "denied")
    require_refused(wire, waiting.result(), asking)
    until(lambda: recorded(ruled, SAMPLE) == 1)


def require_refused(wire: Wire, answer: dict[str, Any], asking: Asking, code: int = DENIED) -> None:
    """Check that the client was not asked, and that its server, or it itself, was told so."""
    assert "SECRET" not in json.dumps([*wire.heard, answer])
    if wire.stateless:
        assert answer["error"]["code"] == code
    else:
        (refused,) = asking.answers
        assert refused["error"]["code"] == -1
        assert "was not passed on" in refused["error"]["message"]


@pytest.mark.parametrize("stateless", [False, True])
def test_what_nobody_approves_in_time_does_not_reach_the_client(
    ruled: Served, asking: Asking, stateless: bool
) -> None:
    wire = begun(ruled, stateless=stateless)
    waiting = InBackground(lambda: wire.response(wire.send("tools/call", CALL)))
    (request_id,) = pending(ruled)
    ruled.sql("UPDATE permission_requests SET expires_at = created_at WHERE request_id = ?", (request_id,))
    require_refused(wire, waiting.result(), asking)


@pytest.mark.parametrize(
    "change", ["UPDATE tool_rules SET verdict = 'deny'", "UPDATE tool_rules SET tool = 'mcp__*'"]
)
@pytest.mark.parametrize("stateless", [False, True])
def test_an_approval_does_not_count_once_policy_is_another(
    ruled: Served, asking: Asking, stateless: bool, change: str
) -> None:
    wire = begun(ruled, stateless=stateless)
    waiting = InBackground(lambda: wire.response(wire.send("tools/call", CALL)))
    (request_id,) = pending(ruled)
    ruled.sql(change)
    decide(ruled, request_id)
    require_refused(wire, waiting.result(), asking)


@pytest.mark.parametrize("stateless", [False, True])
def test_an_approval_does_not_count_under_a_brake(ruled: Served, asking: Asking, stateless: bool) -> None:
    wire = begun(ruled, stateless=stateless)
    waiting = InBackground(lambda: wire.response(wire.send("tools/call", CALL)))
    (request_id,) = pending(ruled)
    put_on(ruled)
    ruled.sql(
        "UPDATE permission_requests SET status = 'approved', approved_by = 'ann' WHERE request_id = ?",
        (request_id,),
    )
    require_refused(wire, waiting.result(), asking, BRAKED)


def test_a_client_cannot_answer_what_waits_for_a_person(ruled: Served, asking: Asking) -> None:
    wire = begun(ruled, stateless=False)
    listening = Listening(wire)
    (request_id,) = pending(ruled)
    assert wire.post({"jsonrpc": "2.0", "id": ITS_ID, "result": SAMPLED}).status_code == 202
    assert not asking.answers
    decide(ruled, request_id, "denied")
    listening.response()
    assert wire.post({"jsonrpc": "2.0", "id": ITS_ID, "result": SAMPLED}).status_code == 202
    assert "mine" not in json.dumps(asking.answers)


@pytest.mark.parametrize("stateless", [False, True])
def test_nobody_is_asked_for_a_client_that_does_not_answer_such_requests(
    ruled: Served, asking: Asking, stateless: bool
) -> None:
    wire = begun(ruled, stateless=stateless, capabilities={"elicitation": {"form": {}}})
    require_refused(wire, wire.response(wire.send("tools/call", CALL)), asking)
    assert ruled.sql("SELECT count(*) FROM permission_requests") == [(0,)]


def test_a_client_that_leaves_takes_the_card_with_it(ruled: Served, asking: Asking) -> None:
    wire = begun(ruled, stateless=False)
    message = wire.message("tools/call", CALL | {"_meta": {"progressToken": 1}})
    with wire.http.stream("POST", wire.path, json=message, headers=wire.headers_for(message)):
        (request_id,) = pending(ruled)
    assert closed(ruled, request_id)[0] == "withdrawn"
    assert asking.answered.wait(PATIENCE)
    assert "error" in asking.answers[0]


def test_a_stream_that_ends_at_once_leaves_no_card(ruled: Served, asking: Asking) -> None:
    asking.answered.set()
    wire = begun(ruled, stateless=False)
    for _ in range(5):
        assert "result" in wire.response(wire.send("tools/call", CALL))
    assert "SECRET" not in json.dumps(wire.heard)
    until(lambda: len(asking.answers) == 5)
    assert all("error" in refused for refused in asking.answers)
    until(lambda: ruled.sql("SELECT 1 FROM permission_requests WHERE status = 'pending'") == [])


def test_a_request_on_the_servers_own_stream_waits_too(ruled: Served, asking: Asking) -> None:
    wire = begun(ruled, stateless=False)
    asking.stays_open = True
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": wire.session or ""}
    with wire.http.stream("GET", wire.path, headers=headers) as stream:
        found = events(stream.iter_lines())
        assert next(found)["method"] == "notifications/tools/list_changed"
        decide(ruled, pending(ruled)[0])
        assert next(found)["params"] == SAMPLING["params"]
        asking.answered.set()


def test_a_grant_that_asks_for_the_server_asks_about_its_sampling(box: Served, asking: Asking) -> None:
    grant(box, AGENT, "run", "allow", server="asking")
    box.sql(
        "INSERT INTO mcp_access_control (entry_type, agent_id, server_id, permission, granted_at)"
        " VALUES ('server_grant', ?, 'asking', 'deny', ?)",
        (AGENT, LONG_AGO),
    )
    box.sql("INSERT INTO asking_grants (grant_id) SELECT max(id) FROM mcp_access_control")
    listening = Listening(begun(box, stateless=False))
    decide(box, pending(box)[0])
    listening.answer(SAMPLED)
    assert "result" in listening.response()


def test_the_card_says_who_asks_the_model_what(ruled: Served, asking: Asking) -> None:
    preferences = {"hints": [{"name": "small-model"}], "costPriority": 0.9}
    more = {"systemPrompt": "Be brief.", "maxTokens": 77, "modelPreferences": preferences}
    asking.reset(SAMPLING | {"params": SAMPLING["params"] | more})
    listening = Listening(begun(ruled, stateless=False))
    (request_id,) = pending(ruled)
    page = ruled.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
    for shown in (
        "ask the agent's model",
        "asks the agent's model for a text",
        "SECRET",
        "Be brief.",
        "77",
        "small-model",
    ):
        assert shown.replace("'", "&#x27;") in page
    decide(ruled, request_id, "denied")
    listening.response()


def test_a_request_that_can_be_read_in_two_ways_is_put_before_nobody(ruled: Served, asking: Asking) -> None:
    asking.reset({"method": "sampling/createMessage", "Method": "ping", "params": {}})
    wire = begun(ruled, stateless=True)
    answer = wire.response(wire.send("tools/call", CALL))
    assert answer["error"]["code"] == DENIED
    assert ruled.sql("SELECT count(*) FROM permission_requests") == [(0,)]


def test_a_question_beside_it_goes_on_with_an_approved_request(ruled: Served, asking: Asking) -> None:
    asking.beside = {"form": QUESTION}
    wire = begun(ruled, stateless=True)
    waiting = InBackground(lambda: wire.response(wire.send("resources/read", REQUESTS["resources/read"])))
    decide(ruled, pending(ruled)[0])
    assert waiting.result()["result"]["inputRequests"] == {"q": SAMPLING, "form": QUESTION}


def test_what_an_approval_let_through_has_used_it_up(ruled: Served, asking: Asking) -> None:
    listening = Listening(begun(ruled, stateless=False))
    decide(ruled, pending(ruled)[0])
    listening.answer(SAMPLED)
    listening.response()
    asking.reset(SAMPLING)
    second = Listening(begun(ruled, stateless=False))
    (another,) = pending(ruled)
    decide(ruled, another, "denied")
    second.response()
    assert not second.requests
