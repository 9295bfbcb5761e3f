"""A call that nobody answered in time, over the wire: denied with a number, approved later, then run once."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.approvals.cards import served_form
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import pending, rules
from tests.patience import PATIENCE
from tests.served import Served

pytestmark = pytest.mark.served
HOLD = {"tool": "Bash", "verdict": "ask", "wait_seconds": 1, "deny_at_deadline": True}
PUSH = {"command": "git push"}


@pytest.fixture
def served(one_server: Any) -> Served:
    server: Served = one_server.emptied()
    return server


def decide(served: Served, request_id: str, verdict: str = "approved", **more: Any) -> None:
    approver = served.sign_in("approver")
    form = served_form(approver, request_id, verdict, **more)
    assert approver.post("/ui/approvals/decide/", data=form).status_code == 200


def test_it_is_denied_with_a_number_and_runs_once_after_the_approval(served: Served) -> None:
    rules(served, HOLD)
    claude = Claude(served, wait="100")
    claude.prompt("Push it.")
    denied = claude.call("Bash", PUSH)
    (request_id,) = pending(served, claude)
    assert denied.outcome == "denied"
    assert "Nobody answered in Signalbox within 1 s. So this call did not run." in denied.why
    assert f"request {request_id}, " in denied.why
    assert f"/ui/approvals/{request_id}/ " in denied.why
    claude.stop("I wait for an approval.")  # the turn goes on to its end; the request stays open
    decide(served, request_id, reason="Release day.")
    assert claude.call("Bash", {"command": "git push --force"}).outcome == "denied"
    again = claude.call("Bash", PUSH)
    assert (again.outcome, again.answers[0]["hookSpecificOutput"]["permissionDecision"]) == ("ran", "allow")
    assert "Release day." in again.answers[0]["hookSpecificOutput"]["permissionDecisionReason"]
    assert claude.call("Bash", PUSH).outcome == "denied"


def test_many_at_once_run_it_once(served: Served) -> None:
    rules(served, HOLD)
    claude = Claude(served, wait="100")
    claude.prompt("Push it.")
    claude.call("Bash", PUSH)
    (request_id,) = pending(served, claude)
    decide(served, request_id)
    calls = [claude.new_call("Bash", PUSH) for _ in range(6)]
    with ThreadPoolExecutor(len(calls)) as pool:
        answers = list(pool.map(claude.before, calls))
    assert sorted(answer["permissionDecision"] for answer in answers) == ["allow"] + ["deny"] * 5


def test_a_denial_and_a_rule_of_today_answer_at_once(served: Served) -> None:
    rules(served, HOLD)
    claude = Claude(served, wait="100")
    claude.prompt("Push it.")
    claude.call("Bash", PUSH)
    (request_id,) = pending(served, claude)
    decide(served, request_id, "denied", reason="Not on a Friday.")
    assert "Not on a Friday." in claude.call("Bash", PUSH).why
    claude.call("Bash", {"command": "make deploy"})
    (request_id,) = pending(served, claude)[-1:]
    decide(served, request_id)
    rules(served, {"tool": "Bash", "verdict": "deny", "reason": "Never again."})
    assert "Never again." in claude.call("Bash", {"command": "make deploy"}).why


def test_an_agent_started_anew_in_the_same_folder_goes_on(served: Served) -> None:
    rules(served, HOLD)
    first = Claude(served, wait="100")
    first.prompt("Push it.")
    first.call("Bash", PUSH)
    (request_id,) = pending(served, first)
    first.end()
    decide(served, request_id)
    elsewhere = Claude(served, wait="100", host="server")
    assert elsewhere.call("Bash", PUSH).outcome == "denied"
    assert Claude(served, wait="100").call("Bash", PUSH).outcome == "ran"
    assert Claude(served, wait="100").call("Bash", PUSH).outcome == "denied"


@pytest.mark.parametrize("how", ["restarted", "killed"])
def test_nothing_of_it_lives_in_a_process(served: Served, how: str) -> None:
    rules(served, HOLD | {"wait_seconds": 100})
    claude = Claude(served, wait="100")
    claude.prompt("Push it.")
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(claude.before, claude.new_call("Bash", PUSH))
        (request_id,) = pending(served, claude)
        if how == "restarted":
            served.stop()
            why = held.result(PATIENCE)["permissionDecisionReason"]
            assert "Signalbox was restarted while the call waited. So this call did not run." in why
            assert request_id in why
        else:
            crash(served)
            with pytest.raises(httpx.HTTPError):
                held.result(PATIENCE)
    served.start()
    claude.base, claude.url = served.url, f"{served.url}/hooks/claude-code?wait=100"
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(claude.before, claude.new_call("Bash", PUSH))
        assert pending(served, claude) == [request_id]
        decide(served, request_id)
        assert again.result(PATIENCE)["permissionDecision"] == "allow"


def crash(served: Served) -> None:
    """End the server and its workers at once."""
    assert served.process is not None
    for pid in (served.process.pid, *served.worker_pids()):
        os.kill(pid, signal.SIGKILL)
    served.process.wait()
    served.process = None


def test_a_headless_run_ends_and_asks_again_when_it_is_resumed(served: Served) -> None:
    rules(served, HOLD)
    claude = Claude(served, wait="100&defer=on")
    claude.headers["X-Signalbox-Entrypoint"] = "sdk-cli"
    claude.prompt("Push it.")
    call = claude.new_call("Bash", PUSH)
    assert claude.before(call) == {"hookEventName": "PreToolUse", "permissionDecision": "defer"}
    (request_id,) = pending(served, claude)
    claude.end()
    assert claude.before(call)["permissionDecision"] == "defer"
    decide(served, request_id)
    assert claude.before(call)["permissionDecision"] == "allow"


@pytest.mark.parametrize(
    ("started", "more"),
    [("cli", {}), ("$CLAUDE_CODE_ENTRYPOINT", {}), ("sdk-cli", {"agent_id": "a1"})],
    ids=["at a screen", "not told", "a sub-agent"],
)
def test_what_may_not_heed_it_is_denied(served: Served, started: str, more: dict[str, str]) -> None:
    rules(served, HOLD)
    claude = Claude(served, wait="100&defer=on")
    claude.headers["X-Signalbox-Entrypoint"] = started
    claude.prompt("Push it.")
    assert claude.before(claude.new_call("Bash", PUSH), **more)["permissionDecision"] == "deny"
