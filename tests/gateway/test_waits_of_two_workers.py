"""What waits for a person at one worker: decided, answered or cancelled at another, and what a killed worker leaves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.gateway import asking_server, inquiring_server, obliging_server
from tests.gateway.agents import Wire, events, furnish, rule
from tests.gateway.asking_server import ITS_ID, SAMPLING, Asking
from tests.gateway.conftest import TABLES
from tests.gateway.inquiring_server import Inquiring
from tests.gateway.obliging_server import Obliging
from tests.gateway.test_elicitation import ORDER, ORDERED, closed
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.gateway.test_held_server_requests import SAMPLED
from tests.gateway.two_workers import decide_elsewhere, find_worker, post_elsewhere, sign_in_elsewhere
from tests.patience import PATIENCE, until
from tests.served import Served, Template, running

pytestmark = pytest.mark.served

READ = {"uri": "file:///secret"}
CALL: dict[str, Any] = {"name": "order", "arguments": {}, "_meta": {"progressToken": 1}}
CAN_SAMPLE = {"sampling": {}, "roots": {}}


@pytest.fixture(scope="module")
def two(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(served_template, tmp_path_factory.mktemp("waits") / "two", workers=2) as box:
        yield box


@pytest.fixture
def box(two: Served) -> Served:
    two.emptied(*TABLES, "events", "event_origins")
    two.all_worker_pids()
    return two


@pytest.fixture
def obliging(box: Served) -> Iterator[Obliging]:
    with obliging_server.running() as server:
        furnish(box, server.url, server="obliging")
        rule(box, "mcp__obliging__*", "ask")
        yield server


@pytest.fixture
def inquiring(box: Served) -> Iterator[Inquiring]:
    with inquiring_server.running() as server:
        furnish(box, server.url, server="inquiring")
        yield server


@pytest.fixture
def asking(box: Served) -> Iterator[Asking]:
    with asking_server.running() as server:
        furnish(box, server.url, server="asking")
        rule(box, "mcp__asking__sampling/createMessage", "ask")
        yield server


class Waiting:
    """A request on its way, in a thread: the worker that has it, what came, and how its connection ended."""

    def __init__(self, wire: Wire, method: str, params: dict[str, Any]) -> None:
        self.message = wire.message(method, params)
        self.heard: list[dict[str, Any]] = []
        self.broke = False
        self._wire = wire
        self._begun = threading.Event()
        self._work = InBackground(self.read)
        assert self._begun.wait(PATIENCE)

    def read(self) -> None:
        wire = self._wire
        with contextlib.suppress(httpx.TransportError):
            self.broke = True
            headers = wire.headers_for(self.message)
            with wire.http.stream("POST", wire.path, json=self.message, headers=headers) as stream:
                self.pid = find_worker(wire.box, stream)
                self._begun.set()
                for message in events(stream.iter_lines()):
                    self.heard.append(message)
            self.broke = False

    def response(self) -> dict[str, Any]:
        self._work.result()
        assert not self.broke
        return self.heard[-1]

    def breaks(self) -> None:
        self._work.result()
        assert self.broke


def begun(box: Served, server: str, *, stateless: bool = False, **options: Any) -> Wire:
    wire = Wire(box, server=server, stateless=stateless, **options)
    if not stateless:
        wire.initialize()
    return wire


def answer_elsewhere(box: Served, pid: int, request_id: str, **fields: str) -> None:
    """Answer a card's form as a person does whose browser is connected to another worker than `pid`."""
    person, page = sign_in_elsewhere(box, pid, f"/ui/approvals/{request_id}/")
    judged = re.findall(r'name="judged"\s+value="([^"]+)"', page)
    questions = re.findall(r'name="questions" value="(\d+)"', page)
    form = {"ids": [request_id], "judged": judged, "verdict": "answered", "questions": questions[0]}
    assert person.post("/ui/approvals/answer/", data=form | fields).status_code == 200


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_a_read_at_one_worker_is_decided_at_another(
    box: Served, obliging: Obliging, verdict: str, stateless: bool
) -> None:
    waiting = Waiting(begun(box, "obliging", stateless=stateless), "resources/read", READ)
    decide_elsewhere(box, waiting.pid, pending(box)[0], verdict)
    assert ("result" in waiting.response()) == (verdict == "approved")
    assert len(obliging.heard("resources/read")) == (verdict == "approved")


def test_a_read_at_one_worker_is_cancelled_at_another(box: Served, obliging: Obliging) -> None:
    wire = begun(box, "obliging")
    waiting = Waiting(wire, "resources/read", READ)
    (request_id,) = pending(box)
    number = {"requestId": waiting.message["id"]}
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": number}
    post_elsewhere(wire, waiting.pid, lambda: box.client(key=None), note)
    assert closed(box, request_id)[0] == "withdrawn"
    assert not obliging.heard("resources/read")


def test_a_read_whose_worker_is_killed_is_approved_for_the_same_read_made_again(
    box: Served, obliging: Obliging
) -> None:
    waiting = Waiting(begun(box, "obliging"), "resources/read", READ)
    (request_id,) = pending(box)
    os.kill(waiting.pid, signal.SIGKILL)
    waiting.breaks()
    decide(box, request_id)
    assert not obliging.heard("resources/read")
    wire = begun(box, "obliging")
    assert "SECRET" in json.dumps(wire.ask("resources/read", READ))
    again = Waiting(wire, "resources/read", READ)
    decide(box, pending(box)[0], "denied")
    assert "error" in again.response()
    assert len(obliging.heard("resources/read")) == 1


@pytest.mark.parametrize("stateless", [False, True])
def test_a_question_at_one_worker_is_answered_at_another(
    box: Served, inquiring: Inquiring, stateless: bool
) -> None:
    waiting = Waiting(begun(box, "inquiring", stateless=stateless), "tools/call", CALL)
    answer_elsewhere(box, waiting.pid, pending(box)[0], **ORDER)
    assert ORDERED in json.dumps(waiting.response()).replace("\\", "")
    assert inquiring.outcomes == [ORDERED]


@pytest.mark.parametrize("stateless", [False, True])
def test_a_question_whose_worker_is_killed_is_closed_and_accepts_nothing(
    box: Served, inquiring: Inquiring, stateless: bool
) -> None:
    waiting = Waiting(begun(box, "inquiring", stateless=stateless), "tools/call", CALL)
    (request_id,) = pending(box)
    os.kill(waiting.pid, signal.SIGKILL)
    waiting.breaks()
    assert closed(box, request_id)[0] == "withdrawn"
    person = box.sign_in("approver")
    form = {"ids": [request_id], "judged": "x", "verdict": "answered", "questions": "4"}
    person.post("/ui/approvals/answer/", data=form | ORDER)
    assert closed(box, request_id)[0] == "withdrawn"
    assert not any(outcome.startswith("accept") for outcome in inquiring.outcomes)


def test_what_a_server_asks_at_one_worker_is_decided_and_answered_at_another(
    box: Served, asking: Asking
) -> None:
    wire = begun(box, "asking", capabilities=CAN_SAMPLE)
    waiting = Waiting(wire, "tools/call", {"name": "run", "arguments": {}})
    decide_elsewhere(box, waiting.pid, pending(box)[0])
    until(lambda: any(message.get("id") == ITS_ID for message in waiting.heard))
    answer = {"jsonrpc": "2.0", "id": ITS_ID, "result": SAMPLED}
    post_elsewhere(wire, waiting.pid, lambda: box.client(key=None), answer)
    assert "result" in waiting.response()
    assert asking.answers == [answer]


def test_an_answer_at_another_worker_does_not_overtake_the_approval(box: Served, asking: Asking) -> None:
    wire = begun(box, "asking", capabilities=CAN_SAMPLE)
    waiting = Waiting(wire, "tools/call", {"name": "run", "arguments": {}})
    (request_id,) = pending(box)
    answer: dict[str, object] = {"jsonrpc": "2.0", "id": ITS_ID, "result": SAMPLED}
    post_elsewhere(wire, waiting.pid, lambda: box.client(key=None), answer)
    assert not asking.answers
    decide_elsewhere(box, waiting.pid, request_id, "denied")
    waiting.response()
    assert "error" in asking.answers[0]


@pytest.mark.parametrize("stateless", [False, True])
def test_what_a_server_asks_reaches_nobody_once_its_worker_is_killed(
    box: Served, asking: Asking, stateless: bool
) -> None:
    wire = begun(box, "asking", stateless=stateless, capabilities=CAN_SAMPLE)
    waiting = Waiting(wire, "tools/call", {"name": "run", "arguments": {}})
    (request_id,) = pending(box)
    os.kill(waiting.pid, signal.SIGKILL)
    waiting.breaks()
    assert closed(box, request_id)[0] == "withdrawn"
    assert SAMPLING["params"] not in [message.get("params") for message in waiting.heard]
    assert not any("result" in answer for answer in asking.answers)
