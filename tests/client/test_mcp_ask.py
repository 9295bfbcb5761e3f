"""`signalbox mcp-ask`: an MCP tool that asks a person, as long as it takes, and takes nothing else for a yes."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.approvals.cards import served_form
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import ends, pending, rules
from tests.patience import PATIENCE
from tests.served import KEYS, ROOT, Served

pytestmark = pytest.mark.served
PUSH = {"command": "git push"}


class Client:
    """What Claude Code does with such a server: it begins, lists the tools, and calls."""

    def __init__(self, url: str, key: str = KEYS["agent"]) -> None:
        self.session = str(uuid.uuid4())
        self.process = subprocess.Popen(
            [sys.executable, "-m", "coordinator.client.main", "mcp-ask"],
            cwd=ROOT,
            env={
                "PATH": os.defpath,
                "HOME": "/nonexistent",
                "SIGNALBOX_URL": url,
                "SIGNALBOX_KEY": key,
                "CLAUDE_CODE_SESSION_ID": self.session,
                "CLAUDE_PROJECT_DIR": "/home/dev/shop",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.heard: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard.put(json.loads(line))

    def send(self, method: str, number: int | None = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def told(self, number: int, within: float = 90) -> dict[str, Any]:
        """Return the answer to a message; notifications are passed over."""
        until = time.monotonic() + within
        while True:
            message = self.heard.get(timeout=max(0.01, until - time.monotonic()))
            if message.get("id") == number:
                return message

    def ask(self, number: int, given: Any = PUSH, **more: Any) -> None:
        asked = {"tool_name": "Bash", "input": given, "tool_use_id": f"toolu_{number}"}
        self.send("tools/call", number, name="ask", arguments=asked, _meta={"progressToken": number}, **more)

    def answer(self, number: int) -> dict[str, Any]:
        """Return what Claude Code is told to do with the call."""
        content = self.told(number)["result"]["content"]
        found: dict[str, Any] = json.loads(content[0]["text"])
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE)


@pytest.fixture
def served(one_server: Any) -> Served:
    server: Served = one_server.emptied()
    rules(server)
    return server


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    client = Client(served.url)
    yield client
    client.close()


def decide(served: Served, request_id: str, verdict: str = "approved", **more: Any) -> None:
    approver = served.sign_in("approver")
    form = served_form(approver, request_id, verdict, **more)
    assert approver.post("/ui/approvals/decide/", data=form).status_code == 200


def waiting(served: Served, client: Client, count: int = 1) -> list[str]:
    return pending(served, Claude(served, session=client.session), count)


def test_it_is_a_server_with_one_tool(client: Client) -> None:
    client.send("initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo={})
    begun = client.told(0)["result"]
    assert (begun["protocolVersion"], begun["capabilities"]) == ("2025-06-18", {"tools": {}})
    client.send("initialize", 1, protocolVersion="1999-01-01")
    assert client.told(1)["result"]["protocolVersion"] == "2025-11-25"
    client.send("notifications/initialized")
    client.send("tools/list", 2)
    assert [tool["name"] for tool in client.told(2)["result"]["tools"]] == ["ask"]
    client.send("resources/list", 3)
    assert client.told(3)["error"]["code"] == -32601
    client.send("tools/call", 4, name="other", arguments={})
    assert client.told(4)["error"]["code"] == -32602


def test_it_waits_for_a_person_and_says_that_it_does(served: Served, client: Client) -> None:
    client.ask(1)
    (pushes,) = waiting(served, client)
    client.ask(2, {"command": "rm -rf build"})
    removes = waiting(served, client, 2)[1]
    progress = client.heard.get(timeout=60)
    assert (progress["method"], progress["params"]["progress"]) == ("notifications/progress", 1)
    decide(served, pushes)
    assert client.answer(1) == {"behavior": "allow", "updatedInput": PUSH}
    decide(served, removes, "denied", reason="Keep it.")
    denied = client.answer(2)
    assert (denied["behavior"], "Keep it." in denied["message"]) == ("deny", True)


def test_rules_answer_at_once(served: Served, client: Client) -> None:
    rules(
        served,
        {"tool": "Bash", "pattern": "git status", "verdict": "allow"},
        {"tool": "Bash", "verdict": "deny", "reason": "No."},
    )
    client.ask(1, {"command": "git status"})
    assert client.answer(1)["behavior"] == "allow"
    client.ask(2)
    assert client.answer(2) == {"behavior": "deny", "message": "Signalbox (rule 2): No."}


def test_an_edited_call_runs_as_it_was_edited(served: Served, client: Client) -> None:
    client.ask(1)
    (request_id,) = waiting(served, client)
    decide(served, request_id, edited="git push --dry-run", edited_field="command")
    assert client.answer(1)["updatedInput"] == {"command": "git push --dry-run"}


@pytest.mark.parametrize("how", ["cancelled", "gone"])
def test_who_does_not_want_to_know_any_more_closes_the_card(served: Served, how: str) -> None:
    client = Client(served.url)
    client.ask(1)
    (request_id,) = waiting(served, client)
    if how == "cancelled":
        client.send("notifications/cancelled", requestId=1)
    else:
        client.close()
    assert ends(served, request_id)[0] == "withdrawn"
    if how == "cancelled":
        client.close()


def test_a_restart_of_the_server_neither_ends_the_wait_nor_answers_it(served: Served) -> None:
    client = Client(served.url)
    client.ask(1)
    (request_id,) = waiting(served, client)
    served.stop()
    served.start()
    assert waiting(served, client) == [request_id]
    decide(served, request_id)
    assert client.answer(1)["behavior"] == "allow"
    client.close()


@pytest.mark.parametrize(
    ("given", "key"),
    [(PUSH, "sbx_nobody"), ("git push", KEYS["agent"]), ({"command": "token a " * 50_001}, KEYS["agent"])],
    ids=["a wrong key", "no input", "too large to judge"],
)
def test_what_cannot_be_asked_is_denied(served: Served, given: Any, key: str) -> None:
    client = Client(served.url, key)
    client.ask(1, given)
    denied = client.answer(1)
    client.close()
    assert denied["behavior"] == "deny"
    assert "Signalbox could not ask anyone" in denied["message"]


def test_without_a_server_it_says_so() -> None:
    client = Client("")
    client.ask(1)
    denied = client.answer(1)
    client.close()
    assert (denied["behavior"], "signalbox connect" in denied["message"]) == ("deny", True)
