"""Two equal calls at once: one yes runs one of them. One call that is delivered twice shares one card."""

from __future__ import annotations

import http.client
import select
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tests.claude_code.double import Call, Claude
from tests.claude_code.test_deciding import (
    approver,
    claude,
    decide,
    pending,
    raw_asking,
    raw_decision,
    served,
)
from tests.served import Served

__all__ = ["approver", "claude", "served"]
pytestmark = pytest.mark.served


def begin(claude: Claude, command: str) -> Call:
    """Begin a call, of which its PreToolUse hook tells."""
    call = claude.new_call("Bash", {"command": command})
    claude.before(call)
    return call


def answered(lines: Sequence[http.client.HTTPConnection]) -> http.client.HTTPConnection:
    """Return the line that is answered first."""
    ready, _, _ = select.select([line.sock for line in lines], [], [], 60)
    return next(line for line in lines if line.sock in ready)


def is_silent(line: http.client.HTTPConnection, within: float) -> bool:
    return not select.select([line.sock], [], [], within)[0]


@pytest.mark.parametrize("where", ["the same worker", "another worker"])
def test_one_yes_runs_one_of_two_equal_calls(
    served: Served, claude: Claude, approver: httpx.Client, where: str
) -> None:
    calls = [begin(claude, f"npm test # {where}") for _ in range(2)]
    here, there = served.all_worker_pids()
    first = raw_asking(served, claude, calls[0], to=here)
    pending(served, claude)
    second = raw_asking(served, claude, calls[1], to=here if where == "the same worker" else there)
    requests = pending(served, claude, 2)
    page = approver.get("/ui/approvals/").text
    assert "2 equal calls wait" in page
    assert "Approve all 2" in " ".join(page.split())
    decide(approver, requests[0])
    line = answered([first, second])
    assert raw_decision(line) == {"behavior": "allow"}
    (other,) = {first, second} - {line}
    assert is_silent(other, 1.0)
    assert pending(served, claude) == [requests[1]]
    decide(approver, requests[1])
    assert raw_decision(other) == {"behavior": "allow"}


def test_one_yes_runs_one_call_where_nothing_tells_two_questions_apart(
    served: Served, claude: Claude, approver: httpx.Client
) -> None:
    """No hook told of the calls' beginnings, so both questions stand by one card."""
    call = claude.new_call("Bash", {"command": "npm test # unknown"})
    here, there = served.all_worker_pids()
    lines = [raw_asking(served, claude, call, to=worker) for worker in (here, there)]
    decide(approver, pending(served, claude)[0])
    line = answered(lines)
    assert raw_decision(line) == {"behavior": "allow"}
    (other,) = set(lines) - {line}
    decide(approver, pending(served, claude)[0])
    assert raw_decision(other) == {"behavior": "allow"}


@pytest.mark.parametrize("where", ["the same worker", "another worker"])
def test_a_call_that_is_delivered_twice_shares_a_card_and_its_answer(
    served: Served, claude: Claude, approver: httpx.Client, where: str
) -> None:
    """A hook is installed twice: PreToolUse and PermissionRequest of one call come twice."""
    call = begin(claude, f"npm run build # {where}")
    claude.before(call)
    here, there = served.all_worker_pids()
    lines = [
        raw_asking(served, claude, call, to=worker)
        for worker in (here, here if where == "the same worker" else there)
    ]
    (request_id,) = pending(served, claude)
    decide(approver, request_id)
    answers: list[Any] = [raw_decision(line) for line in lines]
    assert answers == [{"behavior": "allow"}] * 2


def test_a_later_equal_call_is_not_run_by_an_earlier_yes(
    served: Served, claude: Claude, approver: httpx.Client
) -> None:
    call = begin(claude, "npm publish")
    asking = claude.asking(call)
    decide(approver, pending(served, claude)[0])
    assert asking.result() == {"behavior": "allow"}
    claude.ran(call)
    again = claude.asking(begin(claude, "npm publish"))
    (request_id,) = pending(served, claude)
    assert again.waits
    decide(approver, request_id, verdict="denied")
    assert again.result()["behavior"] == "deny"
