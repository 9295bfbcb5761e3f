"""Codex's own hooks, as recorded from version 0.169.0, posted to the served program: heard, held and answered."""

from __future__ import annotations

import json
import random
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.approvals.cards import served_form
from tests.claude_code.test_deciding import rules
from tests.patience import PATIENCE
from tests.served import Served

pytestmark = pytest.mark.served

RECORDED = Path(__file__).resolve().parents[1] / "data" / "codex" / "hooks.jsonl"
PUSH = "touch /etc/xx && git push"
# What the recorded session comes to, however its hooks arrive.
STORY = [
    ("message", None, "assistant"),
    ("message", None, "user"),
    ("permission_request", "Bash", None),
    ("post_tool", "Bash", None),
    ("post_tool", "Bash", None),
    ("pre_tool", "Bash", None),
    ("pre_tool", "Bash", None),
    ("session_start", None, None),
    ("session_stop", None, None),
    ("turn_end", None, None),
]


class Codex:
    """One session of Codex that posts recorded hooks as its hook command would."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.session = str(uuid.uuid4())
        self.http = served.client("agent")

    def recorded(self, name: str = "", number: int = 0) -> Any:
        """Return the recorded hooks as of this session, or one of them."""
        found = [json.loads(line) | {"session_id": self.session} for line in RECORDED.open()]
        return [hook for hook in found if hook["hook_event_name"] == name][number] if name else found

    def post(self, hook: dict[str, Any], *, wait: float = 0) -> dict[str, Any]:
        answer = self.http.post("/hooks/codex", params={"wait": wait}, json=hook)
        assert answer.status_code == 200, answer.text
        return json.loads(answer.text)["hookSpecificOutput"] if answer.text else {}

    def told(self, columns: str) -> list[tuple[Any, ...]]:
        return self.served.sql(
            f"SELECT {columns} FROM events e JOIN event_context c ON c.event_id = e.id"
            " JOIN sessions s ON s.session_id = e.session_id WHERE s.executor_session_id = ? ORDER BY e.id",
            (self.session,),
        )

    def pending(self) -> str:
        """Return the id of the request that the session waits for."""
        until = time.monotonic() + 60
        while True:
            found = self.served.sql(
                "SELECT r.request_id FROM permission_requests r JOIN permission_context c"
                " ON c.request_id = r.request_id JOIN sessions s ON s.session_id = c.session_id"
                " WHERE r.status = 'pending' AND s.executor_session_id = ?",
                (self.session,),
            )
            if found:
                return str(found[0][0])
            assert time.monotonic() < until, "no request came"
            time.sleep(0.02)


@pytest.fixture
def codex(served: Served) -> Codex:
    return Codex(served)


def held(codex: Codex, hook: dict[str, Any], verdict: str, **more: Any) -> dict[str, Any]:
    """Post a hook that waits, decide its request on its page, and return its answer."""
    with ThreadPoolExecutor(1) as pool:
        waiting: Future[dict[str, Any]] = pool.submit(codex.post, hook, wait=100)
        decide(codex, codex.pending(), verdict, **more)
        return waiting.result(PATIENCE)


def decide(codex: Codex, request_id: str, verdict: str, **more: Any) -> None:
    approver = codex.served.sign_in("approver")
    form = served_form(approver, request_id, verdict, **more)
    answer: httpx.Response = approver.post("/ui/approvals/decide/", data=form)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("seed", range(4))
def test_its_hooks_make_one_session_in_any_order_and_posted_twice(codex: Codex, seed: int) -> None:
    hooks = codex.recorded() * 2
    if seed:
        random.Random(seed).shuffle(hooks)
    assert [codex.post(hook) for hook in hooks] == [{}] * len(hooks)
    found = codex.told("e.event_type, e.tool_name, e.role")
    assert sorted(found, key=str) == STORY


def test_a_session_says_who_and_where_it_is_and_its_turns_hang_together(codex: Codex) -> None:
    for hook in codex.recorded():
        codex.post(hook)
    (session,) = codex.served.sql(
        "SELECT executor_profile, agent_name, project_dir, status FROM sessions WHERE executor_session_id = ?",
        (codex.session,),
    )
    assert session == ("codex", "codex", "/home/dev/project", "finished")
    assert set(codex.told("c.source")) == {("codex",)}
    turn = codex.recorded("Stop")["turn_id"]
    assert [row[0] for row in codex.told("c.prompt_id")].count(turn) == 8


def test_what_it_asks_its_person_is_approved_here(codex: Codex) -> None:
    codex.post(codex.recorded("PreToolUse", 1))
    answer = held(codex, codex.recorded("PermissionRequest"), "approved")
    assert answer == {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}


def test_what_it_asks_its_person_is_denied_here_and_told_as_the_call_s_result(codex: Codex) -> None:
    before = codex.recorded("PreToolUse", 1)
    codex.post(before)
    answer = held(codex, codex.recorded("PermissionRequest"), "denied", reason="Not from here.")
    assert answer["decision"]["behavior"] == "deny"
    assert answer["decision"]["message"].endswith("in Signalbox: Not from here.")
    ((call_id, error),) = [row[1:] for row in codex.told("e.event_type, c.tool_use_id, e.error") if row[2]]
    assert (call_id, error) == (before["tool_use_id"], answer["decision"]["message"])


def test_a_card_says_what_codex_says_of_the_call_and_offers_no_edit(codex: Codex) -> None:
    codex.post(codex.recorded("PreToolUse", 1))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(codex.post, codex.recorded("PermissionRequest"), wait=100)
        request_id = codex.pending()
        page = codex.served.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
        decide(codex, request_id, "denied")
        waiting.result(PATIENCE)
    assert "Push needs network" in page
    assert 'name="edited"' not in page


def test_a_call_that_a_rule_wants_asked_goes_on_when_approved_and_is_not_asked_again(codex: Codex) -> None:
    rules(codex.served, {"tool": "Bash", "pattern": "git push", "verdict": "ask"})
    assert held(codex, codex.recorded("PreToolUse", 1), "approved") == {}
    answer = codex.post(codex.recorded("PermissionRequest"), wait=0)
    assert answer["decision"] == {"behavior": "allow"}


def test_a_call_that_a_rule_wants_asked_runs_as_it_was_edited(codex: Codex) -> None:
    rules(codex.served, {"tool": "Bash", "pattern": "git push", "verdict": "ask"})
    hook = codex.recorded("PreToolUse", 1)
    answer = held(codex, hook, "approved", edited="git push --dry-run", edited_field="command")
    assert answer == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "allow",
        "updatedInput": {"command": "git push --dry-run"},
        "additionalContext": (
            'A person (approver) changed this call in Signalbox before it ran: command to "git push --dry-run".'
            " The call as you made it did not run."
        ),
    }


def test_a_call_that_a_rule_wants_asked_is_denied_by_a_person_or_by_silence(codex: Codex) -> None:
    rules(codex.served, {"tool": "Bash", "pattern": "git push", "verdict": "ask"})
    hook = codex.recorded("PreToolUse", 1)
    denied = held(codex, hook, "denied", reason="No.")
    assert denied["permissionDecision"] == "deny"
    silent = codex.post(hook | {"tool_use_id": "another"}, wait=0.2)
    assert silent["permissionDecision"] == "deny"
    assert "Nobody answered in Signalbox" in silent["permissionDecisionReason"]


def test_a_rule_that_allows_says_nothing_and_one_that_denies_says_why(codex: Codex) -> None:
    rules(
        codex.served,
        {"tool": "Bash", "pattern": "git push", "verdict": "deny", "reason": "Never."},
        {"tool": "Bash", "verdict": "allow"},
    )
    assert codex.post(codex.recorded("PreToolUse", 0)) == {}
    answer = codex.post(codex.recorded("PreToolUse", 1))
    assert (answer["permissionDecision"], "Never." in answer["permissionDecisionReason"]) == ("deny", True)


def test_a_hook_of_an_agent_that_nobody_knows_is_refused_with_the_names_of_those_known(codex: Codex) -> None:
    answer = codex.http.post("/hooks/hal-9000", json=codex.recorded("SessionStart"))
    assert answer.status_code == 404
    assert "claude-code, codex" in answer.json()["detail"]
    assert httpx.post(f"{codex.served.url}/hooks/hal-9000", json={}).status_code == 401
