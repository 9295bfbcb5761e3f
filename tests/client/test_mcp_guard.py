"""`signalbox mcp SERVER -- COMMAND`: a stdio server beside its agent, with Signalbox before each call of its tools."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.hosting.conftest import SERVER
from tests.patience import PATIENCE, until
from tests.served import ROOT

pytestmark = pytest.mark.one_engine
Answer = tuple[int, dict[str, Any]]


class Signalbox:
    """A server that answers as the doors for guarded calls do, as each test says."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.answers: Callable[[dict[str, Any]], Answer] = lambda _asked: (
            200,
            {"decision": "allow", "call_id": "c1"},
        )
        self.seen: list[str] = ["echo", "die"]
        box = self

        class Door(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                box.heard.append((self.path, body | {"key": self.headers["Authorization"]}))
                status, answer = box.answer(self.path, body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        if path == "/api/mcp/calls":
            return self.answers(body)
        return 200, {"tools": self.seen}

    def asked(self, path: str = "/api/mcp/calls") -> list[dict[str, Any]]:
        return [body for where, body in self.heard if where == path]


class Agent:
    """An agent that started the guarded server."""

    def __init__(self, url: str, *words: str, key: str = "sbx_k") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "coordinator.client.main", "mcp", *(words or ("s", "--", sys.executable, SERVER))],
            cwd=ROOT,
            env={
                "PATH": os.defpath, "HOME": "/nonexistent", "SIGNALBOX_URL": url, "SIGNALBOX_KEY": key,
                "SIGNALBOX_SESSION": "ses_1",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        self.lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def raw(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def send(self, method: str, number: Any = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.raw(json.dumps(message if number is None else message | {"id": number}))

    def told(self, number: Any, within: float = PATIENCE) -> dict[str, Any]:
        until = time.monotonic() + within
        while True:
            message: dict[str, Any] = json.loads(self.lines.get(timeout=max(0.01, until - time.monotonic())))
            if message.get("id") == number and "method" not in message:
                return message

    def call(self, tool: str = "echo", number: Any = 1, **arguments: Any) -> dict[str, Any]:
        self.send("tools/call", number, name=tool, arguments=arguments)
        found: dict[str, Any] = self.told(number)["result"]
        return found


@pytest.fixture
def box() -> Iterator[Signalbox]:
    found = Signalbox()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def agent(box: Signalbox) -> Iterator[Agent]:
    found = Agent(box.url)
    yield found
    found.process.kill()
    found.process.wait()


def test_an_allowed_call_runs_and_its_end_is_told(agent: Agent, box: Signalbox) -> None:
    agent.raw(
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a" : 1.50}}}'
    )
    assert "echo {'a': 1.5}" in agent.told(1)["result"]["content"][0]["text"]
    (asked,) = box.asked()
    assert (asked["server"], asked["tool"], asked["arguments"]) == ("s", "echo", '{"a" : 1.50}')
    assert (asked["session"], asked["key"]) == ("ses_1", "Bearer sbx_k")
    until(lambda: box.asked("/api/mcp/calls/c1/end"))
    (ended,) = box.asked("/api/mcp/calls/c1/end")
    assert (ended["is_error"], "echo" in ended["result"]) == (False, True)


def test_a_denied_call_does_not_run_and_says_why(agent: Agent, box: Signalbox) -> None:
    box.answers = lambda _asked: (200, {"decision": "deny", "reason": "Not for you."})
    result = agent.call()
    assert (result["isError"], result["content"][0]["text"]) == (True, "Not for you.")
    box.answers = lambda _asked: (200, {"decision": "allow", "call_id": "c1"})
    assert " 1 " in agent.call(number=2)["content"][0]["text"]  # the first that reached the server


def test_a_call_waits_for_a_person_and_asks_by_its_id(agent: Agent, box: Signalbox) -> None:
    def decide(asked: dict[str, Any]) -> Answer:
        if len(box.asked()) < 3:
            return 200, {"decision": "wait", "call_id": "c7", "request_id": "r", "card": "http://card"}
        assert (asked["call_id"], asked["begins"]) == ("c7", False)
        return 200, {"decision": "allow", "call_id": "c7"}

    box.answers = decide
    assert "echo" in agent.call()["content"][0]["text"]


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}),
        (200, {"decision": "perhaps"}),
        (500, {"detail": "broken"}),
        (403, {"decision": "allow", "call_id": "c1"}),
        (401, {"detail": "no key"}),
        (404, {}),
    ],
)
def test_whatever_is_no_clear_yes_is_a_no(agent: Agent, box: Signalbox, answer: Answer) -> None:
    box.answers = lambda _asked: answer
    assert agent.call()["isError"] is True


def test_where_signalbox_cannot_be_reached_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent("http://127.0.0.1:9")
    try:
        agent.send("tools/list", 1)
        assert "could not be asked" in agent.told(1)["error"]["message"]
    finally:
        agent.process.kill()


def test_the_list_shows_what_the_agent_may_see(box: Signalbox) -> None:
    script = (
        "import json,sys\n"
        "for line in sys.stdin:\n"
        "    m = json.loads(line)\n"
        "    tools = [{'name': n, 'inputSchema': {}} for n in ('hidden', 'echo')]\n"
        "    result = {'tools': tools, 'nextCursor': 'c'}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': result}), flush=True)\n"
    )
    agent = Agent(box.url, "s", "--", sys.executable, "-c", script)
    try:
        agent.send("tools/list", 1)
        result = agent.told(1)["result"]
        assert ([one["name"] for one in result["tools"]], result["nextCursor"]) == (["echo"], "c")
        agent.send("tools/call", 2, name="echo", arguments={})
        agent.told(2)
        assert box.asked()[0]["definition"] == {"name": "echo", "inputSchema": {}}
    finally:
        agent.process.kill()


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call","params":{"name":"echo"}}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","Method":"ping","params":{"name":"echo"}}',
        '[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}]',
        '{"jsonrpc":"2.0","id":1,"error":{},"Method":"tools/call","params":{"name":"echo"}}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","Arguments":{"a":1}}}',
        '{"jsonrpc":"2.0","id":null,"method":"tools/list","params":{}}',
        '{"jsonrpc":"2.0","id":1,"Method":"ping","method":"tools/call","params":{"name":"echo"}}',
        '{"jsonrpc":"2.0","id":1,"method":"ping",\r"params":{}}',
        '{"x":\r{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}\r}',
    ],
)
def test_what_two_parsers_could_read_differently_is_refused(agent: Agent, box: Signalbox, line: str) -> None:
    agent.raw(line)
    assert json.loads(agent.lines.get(timeout=PATIENCE))["error"]["code"] == -32600
    assert not box.heard


def test_a_cancelled_call_is_not_sent(agent: Agent, box: Signalbox) -> None:
    waits = threading.Event()

    def decide(_asked: dict[str, Any]) -> Answer:
        waits.wait(10)
        return 200, {"decision": "allow", "call_id": "c"}

    box.answers = decide
    agent.send("tools/call", 1, name="echo", arguments={})
    until(box.asked)
    agent.send("notifications/cancelled", requestId=1)
    agent.send("ping", 2)
    agent.told(2)
    waits.set()
    box.answers = lambda _asked: (200, {"decision": "allow", "call_id": "c"})
    assert " 1 " in agent.call(number=3)["content"][0]["text"]


def test_signalbox_is_told_that_a_call_was_cancelled_before_it_answered(agent: Agent, box: Signalbox) -> None:
    waits = threading.Event()

    def decide(asked: dict[str, Any]) -> Answer:
        waits.wait(PATIENCE)
        return 200, {"decision": "allow", "call_id": asked["call_id"]}

    box.answers = decide
    agent.send("tools/call", 1, name="echo", arguments={})
    until(box.asked)
    (asked,) = box.asked()
    assert asked["begins"] is True
    agent.send("notifications/cancelled", requestId=1, reason="Esc")
    path = f"/api/mcp/calls/{asked['call_id']}/cancel"
    until(lambda: box.asked(path))
    waits.set()
    assert [told["reason"] for told in box.asked(path)] == ["Esc"]


# Answers its first call once the next one is on its way, and reads no more of that before it was heard.
TALKATIVE = """
import json, select, sys
read = open(0, "rb", buffering=0).readline
for number in range(2):
    message = json.loads(read())
    if number == 0:
        select.select([0], [], [])
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}), flush=True)
    logged = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 1_000_000}}
    print(json.dumps(logged), flush=True)
"""


def test_a_server_that_talks_before_it_reads_on_hears_all_calls(box: Signalbox) -> None:
    agent = Agent(box.url, "s", "--", sys.executable, "-c", TALKATIVE)
    try:
        for number in (1, 2):
            agent.send("tools/call", number, name="echo", arguments={"text": "x" * 1_000_000})
        told: set[int] = set()
        while told != {1, 2}:
            message = json.loads(agent.lines.get(timeout=PATIENCE))
            told |= {message["id"]} if "id" in message else set()
    finally:
        agent.process.kill()
        agent.process.wait()


def test_it_ends_with_its_server_and_its_exit_code(agent: Agent) -> None:
    agent.send("tools/call", 1, name="die", arguments={})
    assert agent.process.wait(PATIENCE) == 3
