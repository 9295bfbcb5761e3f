"""A key that holds all it can get leaves the others, and its own hooks, unharmed."""

from __future__ import annotations

import http.client
import select
import time
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import rules
from tests.live.connections import bearer, connect
from tests.served import running

pytestmark = pytest.mark.served

WAIT = "/api/chat/agent.cloto_default/messages/wait?timeout=60"
ASK = {"plugin_id": "mind.x", "permission_type": "NetworkAccess", "justification": "To look something up"}
REFUSED = "This caller already holds 10 polls, which is its share. Close some first."


def waiting(served: Any, stack: ExitStack) -> http.client.HTTPConnection:
    """Ask for the next message and do not read the answer."""
    line = stack.enter_context(closing(connect(served)))
    line.request("GET", WAIT, headers=bearer("operator"))
    return line


def refused(lines: list[http.client.HTTPConnection], count: int) -> list[http.client.HTTPConnection]:
    """Return the lines that are answered, as soon as there are so many."""
    until = time.monotonic() + 60
    while True:
        answered = set(select.select([line.sock for line in lines], [], [], 1)[0])
        if len(answered) >= count:
            return [line for line in lines if line.sock in answered]
        assert time.monotonic() < until, f"{len(answered)} of {count} were refused"


def test_polls_of_one_key_leave_room_for_others_and_for_hooks(served_template: Any, tmp_path: Any) -> None:
    folder = tmp_path / "server"
    with (
        running(served_template, folder, workers=1, SIGNALBOX_MAX_POLLS="20") as served,
        ExitStack() as stack,
    ):
        rules(
            served,
            {"tool": "Bash", "verdict": "ask", "wait_seconds": 1},
            {"tool": "Write", "verdict": "deny"},
        )
        lines = [waiting(served, stack) for _ in range(14)]
        answers = [line.getresponse() for line in refused(lines, 4)]
        assert [(answer.status, answer.headers["retry-after"]) for answer in answers] == [(429, "5")] * 4
        assert REFUSED in answers[0].read().decode()
        asker = served.client("agent")
        request_id = asker.post("/api/permission-requests", json=ASK).json()["request_id"]
        assert asker.get(f"/api/permission-requests/{request_id}/wait?timeout=0.1").status_code == 200
        claude = Claude(served, wait="1")
        assert "within 1 s" in claude.before(claude.new_call("Bash", {}))["permissionDecisionReason"]
        assert claude.before(claude.new_call("Write", {}))["permissionDecision"] == "deny"
