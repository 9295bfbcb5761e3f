"""`signalbox mcp`: a call is sent once, whatever status comes back, unless the gateway says that nobody heard it.

Where its session is over, another one is begun as the agent began the first.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.client.test_mcp_guard import Agent
from tests.patience import PATIENCE

pytestmark = pytest.mark.one_engine


class Gateway:
    """A gateway that gives each of `answers` once, then a result. Of sessions it knows `session` alone."""

    def __init__(self) -> None:
        self.heard = 0
        self.said: list[str] = []  # methods, in order
        self.begun = 0
        self.session: str | None = None
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.refuses = False  # to begin sessions
        self.away = ""  # what it says where the server behind it cannot be reached
        gateway = self

        class Door(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                gateway.heard += 1
                gateway.said.append(body["method"])
                if body["method"] == "initialize" and not (gateway.refuses or gateway.away):
                    gateway.begun += 1
                    gateway.session = f"s{gateway.begun}"
                    about = {"protocolVersion": "2025-11-25", "number": gateway.begun}
                    self.answer(200, {"id": body["id"], "result": about}, {"Mcp-Session-Id": gateway.session})
                    return
                if self.headers["Mcp-Session-Id"] != gateway.session:
                    self.answer(404, {"detail": "This session is over."}, {})
                    return
                if "id" not in body:
                    self.answer(202, {}, {})
                    return
                status, headers = gateway.answers.pop(0) if gateway.answers else (200, {})
                told = {"jsonrpc": "2.0", "id": body["id"], "result": {"content": []}}
                if gateway.away:
                    status, error = 502, {"code": -32010, "message": gateway.away}
                    told = {"jsonrpc": "2.0", "id": body["id"], "error": error}
                self.answer(
                    status, told if "error" in told or status == 200 else {"detail": "not now"}, headers
                )

            def do_GET(self) -> None:
                self.answer(405, {}, {})

            def answer(self, status: int, told: dict[str, Any], headers: dict[str, str]) -> None:
                data = json.dumps({"jsonrpc": "2.0"} | told if "id" in told else told).encode()
                self.send_response(status)
                for name, value in (headers | {"Content-Length": str(len(data))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    found = Gateway()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def agent(gateway: Gateway) -> Iterator[Agent]:
    found = Agent(f"http://127.0.0.1:{gateway.server.server_port}", "s")
    yield found
    found.process.kill()
    found.process.wait()


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_call_that_may_have_run_is_not_sent_again(agent: Agent, gateway: Gateway, status: int) -> None:
    gateway.answers = [(status, {})]
    result = agent.call()
    assert result["isError"]
    assert "it may have" in result["content"][0]["text"]
    assert gateway.heard == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_call_that_nobody_heard_is_sent_again(agent: Agent, gateway: Gateway, status: int) -> None:
    gateway.answers = [(status, {"X-Signalbox-Not-Sent": "1"})] * 2
    assert "isError" not in agent.call()
    assert gateway.heard == 3


def test_what_changes_nothing_is_sent_again(agent: Agent, gateway: Gateway) -> None:
    gateway.answers = [(503, {})]
    agent.send("tools/list", 1)
    assert "result" in agent.told(1)


def begin(agent: Agent) -> None:
    agent.send("initialize", 1, protocolVersion="2025-11-25")
    assert agent.told(1)["result"]["number"] == 1
    agent.send("notifications/initialized")


def test_a_session_that_is_over_is_begun_again_unseen(agent: Agent, gateway: Gateway) -> None:
    begin(agent)
    assert "isError" not in agent.call(number=2)
    gateway.session = "another"
    for number in (3, 4):
        assert "isError" not in agent.call(number=number)
    begins = ["initialize", "notifications/initialized"]
    assert gateway.said == [*begins, "tools/call", "tools/call", *begins, "tools/call", "tools/call"]
    assert agent.lines.empty(), "the agent hears of it"


def test_requests_that_find_their_session_over_together_begin_one(agent: Agent, gateway: Gateway) -> None:
    begin(agent)
    agent.call(number=2)
    gateway.session = "another"
    for number in range(3, 9):
        agent.send("tools/call", number, name="echo", arguments={})
    left = set(range(3, 9))
    while left:
        message = json.loads(agent.lines.get(timeout=PATIENCE))
        assert "isError" not in message["result"]
        left.remove(message["id"])
    assert gateway.begun == 2


def test_a_session_that_may_not_begin_again_is_said_to_be_over(agent: Agent, gateway: Gateway) -> None:
    begin(agent)
    agent.call(number=2)
    gateway.session, gateway.refuses = "another", True
    result = agent.call(number=3)
    assert (result["isError"], "This session is over" in str(result)) == (True, True)
    assert "did not run" in str(result)


def test_why_the_server_behind_the_gateway_is_away_is_passed_on(agent: Agent, gateway: Gateway) -> None:
    gateway.away = "The MCP server s does not run: its program was not found."
    agent.send("initialize", 1)
    assert agent.told(1)["error"] == {"code": -32010, "message": gateway.away}
    assert gateway.heard > 1  # it may have been about to start
