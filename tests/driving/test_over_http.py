"""A runner that drives agents, over HTTP: what it tells, what it asks, and how people and rules answer."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.approvals.cards import served_form
from tests.claude_code.test_deciding import rules
from tests.driving.driver import Driver
from tests.driving.recorded import recording
from tests.patience import PATIENCE
from tests.served import Served

pytestmark = pytest.mark.served


@pytest.fixture
def driver(served: Served) -> Driver:
    made = Driver(served)
    made.tell({"sessionUpdate": "signalbox/agent", "agent": "claude", "agentSessionId": str(uuid.uuid4())})
    return made


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def push() -> dict[str, Any]:
    """Claude Code asks whether it may push, with a call of its own."""
    question = next(
        one for one in recording("claude").questions if one["toolCall"]["title"].startswith("git push")
    )
    call = {**question["toolCall"], "toolCallId": f"toolu_{uuid.uuid4().hex}"}
    return {**question, "toolCall": call}


def wait_for_card(driver: Driver) -> str:
    pause = threading.Event()
    for _ in range(600):
        if (found := driver.pending()) is not None:
            return found
        pause.wait(0.02)
    raise AssertionError("no card came")


def decide(driver: Driver, request_id: str, verdict: str, **said: Any) -> None:
    person = driver.served.sign_in("approver")
    form = served_form(person, request_id)
    answer = person.post("/ui/approvals/decide/", data={**form, "verdict": verdict, **said})
    assert answer.status_code in {200, 302}, answer.text


def test_a_person_answers_in_the_agents_own_words(driver: Driver, aside: ThreadPoolExecutor) -> None:
    question = push()
    asked: Future[dict[str, Any]] = aside.submit(driver.ask, question)
    request_id = wait_for_card(driver)
    page = driver.served.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
    assert "Always Allow Bash(git push *)" in page
    assert "git push origin main" in page
    decide(driver, request_id, "approved")
    answer = asked.result(PATIENCE)
    assert answer == {
        "permission_request_id": request_id,
        "outcome": {"optionId": "allow"},
        "reason": None,
    }
    assert driver.ask(question) == answer


def test_a_denial_carries_its_reason(driver: Driver, aside: ThreadPoolExecutor) -> None:
    asked = aside.submit(driver.ask, push())
    decide(driver, wait_for_card(driver), "denied", reason="Not on a Friday")
    assert asked.result(PATIENCE) | {"permission_request_id": ""} == {
        "permission_request_id": "",
        "outcome": {"optionId": "reject"},
        "reason": "Not on a Friday",
    }


def test_an_option_that_lasts_is_picked(driver: Driver, aside: ThreadPoolExecutor) -> None:
    asked = aside.submit(driver.ask, push())
    request_id = wait_for_card(driver)
    person = driver.served.sign_in("approver")
    page = person.get("/ui/approvals/").text
    at = page.index("Always Allow Bash(git push *)")
    digest = page[:at].rpartition('name="suggestion"')[2].partition('value="')[2].partition('"')[0]
    decide(driver, request_id, "approved", suggestion=digest)
    assert asked.result(PATIENCE)["outcome"] == {"optionId": "allow_always"}


def test_a_yes_answers_one_question_and_a_second_about_the_same_call_is_asked_anew(
    driver: Driver, aside: ThreadPoolExecutor
) -> None:
    question = push()
    first = aside.submit(driver.ask, question, "one")
    request_id = wait_for_card(driver)
    decide(driver, request_id, "approved")
    assert first.result(PATIENCE)["outcome"] == {"optionId": "allow"}
    assert driver.ask(question, "one")["permission_request_id"] == request_id
    second = aside.submit(driver.ask, question, "two")
    assert wait_for_card(driver) != request_id
    body = {"runner_id": driver.runner_id, "toolCallId": question["toolCall"]["toolCallId"], "ask": "two"}
    driver.call(
        f"/runner/sessions/{driver.session}/permission/withdraw", {**body, "why": "The agent is gone"}
    )
    assert second.result(PATIENCE)["outcome"] == {"cancelled": True}


def test_a_question_asked_again_is_the_same_once_it_is_known_where_its_session_works(
    driver: Driver, aside: ThreadPoolExecutor
) -> None:
    question = push()
    first = aside.submit(driver.ask, question, "one")
    request_id = wait_for_card(driver)
    place = {"hostname": "mill", "worktree": "/state/worktrees/ses_1/project"}
    driver.tell({"sessionUpdate": "signalbox/agent", "agent": "claude", **place})
    again = aside.submit(driver.ask, question, "one")
    decide(driver, request_id, "approved")
    assert again.result(PATIENCE) == first.result(PATIENCE)
    assert first.result() == {
        "permission_request_id": request_id,
        "outcome": {"optionId": "allow"},
        "reason": None,
    }


def test_rules_decide_before_anybody_is_asked(driver: Driver) -> None:
    rules(
        driver.served,
        {"tool": "Bash", "pattern": "git push *", "verdict": "deny", "reason": "Nobody pushes"},
    )
    try:
        answer = driver.ask(push())
    finally:
        rules(driver.served)
    assert answer["outcome"] == {"optionId": "reject"}
    assert "Nobody pushes" in answer["reason"]
    assert driver.pending() is None


def test_what_the_gateway_asks_about_is_not_asked_twice(driver: Driver, aside: ThreadPoolExecutor) -> None:
    box = driver.served
    box.sql("DELETE FROM mcp_servers WHERE name = 'notes'")
    box.sql(
        "INSERT INTO mcp_servers (name, command, created_at, default_policy) VALUES ('notes', '', 1, 'opt-out')"
    )
    rules(box, {"tool": "mcp__notes__write", "verdict": "ask"})
    question = push()
    question["toolCall"] |= {
        "title": "mcp__signalbox__notes__write",
        "_meta": {"claudeCode": {"toolName": "mcp__signalbox__notes__write"}},
    }
    asked = aside.submit(driver.ask, question, "before")
    decide(driver, wait_for_card(driver), "denied")
    asked.result(PATIENCE)
    box.sql(
        "INSERT INTO session_keys (key_hash, session_id, agent_id, runner_id, created_at, expires_at)"
        " VALUES ('h', ?, 'a', 'r', ?, ?)",
        (driver.session, *("2999-01-01T00:00:00.000000+00:00",) * 2),
    )
    ((key_id,),) = box.sql("SELECT id FROM session_keys WHERE key_hash = 'h'")
    box.sql(
        "INSERT INTO mcp_gateway_sessions (session_id, door, key_id, agent_id, protocol_version, created_at, used_at)"
        " VALUES ('gws', '', ?, 'a', '2025-11-25', ?, ?)",
        (-key_id, *("2999-01-01T00:00:00.000000+00:00",) * 2),
    )
    question["toolCall"] |= {"toolCallId": f"toolu_{uuid.uuid4().hex}"}
    try:
        assert driver.ask(question, "then")["outcome"] == {"optionId": "allow"}
        assert driver.pending() is None
    finally:
        box.sql("DELETE FROM session_keys")
        box.sql("DELETE FROM mcp_gateway_sessions WHERE session_id = 'gws'")


def test_the_end_of_the_turn_withdraws_the_question(driver: Driver, aside: ThreadPoolExecutor) -> None:
    asked = aside.submit(driver.ask, push())
    request_id = wait_for_card(driver)
    driver.tell({"sessionUpdate": "signalbox/turn_ended", "stopReason": "cancelled"})
    assert asked.result(PATIENCE)["outcome"] == {"cancelled": True}
    ((reason,),) = driver.served.sql(
        "SELECT reason FROM permission_context WHERE request_id = ?", (request_id,)
    )
    assert reason == "The turn was cancelled."


def test_what_its_hooks_tell_too_stands_in_the_session_once(served: Served) -> None:
    driver = Driver(served)
    own = str(uuid.uuid4())
    told = recording("claude")
    updates = [one["update"] for one in told.updates]
    updates = [{**one, "agentSessionId": own} if "agentSessionId" in one else one for one in updates]
    agent = driver.served.client("agent")
    hook = {"session_id": own, "cwd": "/home/dev/project"}
    started = {**hook, "hook_event_name": "SessionStart", "source": "startup"}
    headers = {"X-Signalbox-Session": driver.session}
    # Before the runner has told the agent's id, the hook is known by what the runner gave its agent to pass on.
    agent.post("/hooks/claude-code", json=started, headers=headers).raise_for_status()
    driver.tell(*updates)
    for name, fields in (
        ("UserPromptSubmit", {"prompt": "please work"}),
        ("PreToolUse", {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_x"}),
        ("Stop", {"last_assistant_message": "All done."}),
        ("PreCompact", {"trigger": "auto"}),
    ):
        body = {**hook, "hook_event_name": name, **fields}
        agent.post("/hooks/claude-code", json=body, headers=headers).raise_for_status()
    sessions = driver.served.sql("SELECT session_id FROM sessions WHERE executor_session_id = ?", (own,))
    assert [one[0] for one in sessions] == [driver.session]
    kinds = [
        one[0]
        for one in driver.served.sql(
            "SELECT event_type FROM events WHERE session_id = ? ORDER BY id", (driver.session,)
        )
    ]
    assert kinds.count("pre_tool") == 4
    roles = driver.served.sql(
        "SELECT role FROM events WHERE session_id = ? AND event_type = 'message' ORDER BY id",
        (driver.session,),
    )
    assert [one[0] for one in roles] == ["user", *["assistant"] * 5]
    assert kinds[-1] == "PreCompact"  # what only a hook tells


def test_a_stranger_to_the_session_is_refused(driver: Driver) -> None:
    other = Driver(driver.served)
    path = f"/runner/sessions/{driver.session}/updates"
    answer = other.http.post(path, json={"runner_id": other.runner_id, "updates": []})
    assert answer.status_code == 403
    agent = driver.served.client("agent")
    assert agent.post(path, json={"runner_id": driver.runner_id, "updates": []}).status_code == 403
    assert isinstance(answer, httpx.Response)
