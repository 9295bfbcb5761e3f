"""`signalbox mcp`: a call is sent once, whatever status comes back, unless the gateway says that nobody heard it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.client.test_mcp_guard import Agent

pytestmark = pytest.mark.one_engine


class Gateway:
    """A gateway that gives each of `answers` once, then a result."""

    def __init__(self) -> None:
        self.heard = 0
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.away = ""  # what it says where the server behind it cannot be reached
        gateway = self

        class Door(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                gateway.heard += 1
                status, headers = gateway.answers.pop(0) if gateway.answers else (200, {})
                told = {"jsonrpc": "2.0", "id": body["id"], "result": {"content": []}}
                if gateway.away:
                    status, error = 502, {"code": -32010, "message": gateway.away}
                    told = {"jsonrpc": "2.0", "id": body["id"], "error": error}
                data = json.dumps(
                    told if "error" in told or status == 200 else {"detail": "not now"}
                ).encode()
                self.send_response(status)
                for name, value in (headers | {"Content-Length": str(len(data))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


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


def test_why_the_server_behind_the_gateway_is_away_is_passed_on(agent: Agent, gateway: Gateway) -> None:
    gateway.away = "The MCP server s does not run: its program was not found."
    agent.send("initialize", 1)
    assert agent.told(1)["error"] == {"code": -32010, "message": gateway.away}
    assert gateway.heard > 1  # it may have been about to start
