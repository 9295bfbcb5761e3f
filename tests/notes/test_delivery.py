"""A note reaches the agent once, by its hook, a tool's result or its next prompt, and its page says so."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator.edge.hooks.notes import append_text_to_tool_result
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import rules
from tests.client.programs import Home, until
from tests.dialects.agent import Agent
from tests.dialects.test_opencode_plugin import NODE, connect, drive
from tests.driving.driver import Driver
from tests.gateway.agents import Wire, furnish
from tests.gateway.example_server import running
from tests.served import Served

pytestmark = pytest.mark.served
TEXT = "Leave the branch alone."


@pytest.fixture
def approver(served: Served) -> Iterator[httpx.Client]:
    yield served.sign_in("approver")
    served.emptied("session_notes", "tool_rules")


@pytest.fixture
def claude(served: Served) -> Claude:
    found = Claude(served)
    found.start()
    return found


def id_of(served: Served, session: str) -> str:
    rows = served.sql("SELECT session_id FROM sessions WHERE executor_session_id = ?", (session,))
    return str(rows[0][0])


def send(approver: httpx.Client, session_id: str, text: str = TEXT) -> None:
    answer = approver.post(f"/ui/sessions/{session_id}/-/note/", data={"text": text})
    assert answer.status_code == 200, answer.text
    waits = (
        "Waiting for the agent&#x27;s next step",
        "Waiting for the agent's next step",
        "Queued as the next prompt",
    )
    assert any(words in answer.text for words in waits), answer.text


def told(answer: dict[str, Any]) -> str:
    return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


def after(claude: Claude, **more: Any) -> dict[str, Any]:
    """Post that a call has ended."""
    call = claude.new_call("Bash", {"command": "ls"})
    fields = {"tool_name": call.tool, "tool_input": call.tool_input, "tool_use_id": call.id}
    return claude.hook("PostToolUse", **fields, tool_response={"stdout": ""}, **more)


def test_it_comes_with_the_next_hook_that_can_carry_it_and_never_again(
    served: Served, approver: httpx.Client, claude: Claude
) -> None:
    session = id_of(served, claude.session)
    send(approver, session)
    with until() as pause:  # the workers hear of it by the feed
        while not (found := told(after(claude))):
            pause()
    assert TEXT in found
    assert "Note from approver, a person" in found
    assert told(after(claude)) == ""
    page = approver.get(f"/ui/sessions/{session}/").text
    assert "with Claude Code&#x27;s hook PostToolUse" in page
    kinds = [row[0] for row in served.sql("SELECT event_type FROM events WHERE session_id = ?", (session,))]
    assert kinds.count("note") == kinds.count("note_delivered") == 1
    audit = (
        "SELECT event_type, actor_id FROM audit_logs WHERE event_type LIKE 'NOTE%' ORDER BY id DESC LIMIT 2"
    )
    assert served.sql(audit) == [("NOTE_DELIVERED", "system:notes"), ("NOTE_WRITTEN", "user:approver")]


def test_of_many_hooks_at_once_one_carries_it_and_a_sub_agent_never_does(
    served: Served, approver: httpx.Client, claude: Claude
) -> None:
    send(approver, id_of(served, claude.session))
    with until() as pause:
        while told(after(claude, agent_id="a1")) or not served.sql("SELECT 1 FROM session_notes"):
            pause()

    def step(number: int) -> str:
        own = Claude(served, session=claude.session)
        own.calls = 100 * number
        return told(after(own))

    with ThreadPoolExecutor(10) as pool, until() as pause:
        while not (heard := [text for text in pool.map(step, range(10)) if text]):
            pause()
    assert len(heard) == 1


def test_a_hook_that_comes_again_because_it_heard_nothing_is_told_again(
    served: Served, approver: httpx.Client, claude: Claude
) -> None:
    send(approver, id_of(served, claude.session))
    with until() as pause:
        while True:
            claude.headers["X-Signalbox-Hook-Id"] = uuid.uuid4().hex
            if found := told(after(claude)):
                break
            pause()
    claude.calls -= 1
    assert told(after(claude)) == found
    claude.headers["X-Signalbox-Hook-Id"] = uuid.uuid4().hex
    assert told(after(claude)) == ""


def test_it_changes_nothing_of_what_policy_says(
    served: Served, approver: httpx.Client, claude: Claude
) -> None:
    rules(served, {"tool": "Bash", "verdict": "deny", "reason": "Never."})
    send(approver, id_of(served, claude.session))
    with until() as pause:
        while True:
            call = claude.new_call("Bash", {"command": "ls"})
            answer = claude.hook(
                "PreToolUse", tool_name=call.tool, tool_input=call.tool_input, tool_use_id=call.id
            )["hookSpecificOutput"]
            assert answer["permissionDecision"] == "deny"
            if TEXT in answer.get("additionalContext", ""):
                break
            pause()


def test_the_command_prints_it_for_agents_that_call_commands(
    served: Served, approver: httpx.Client, tmp_path: Path
) -> None:
    home, session = Home(tmp_path, served.url), str(uuid.uuid4())
    common = {"session_id": session, "cwd": "/home/dev/shop"}
    home.hook("codex", {**common, "hook_event_name": "SessionStart", "source": "startup"})
    with until() as pause:
        while not served.sql("SELECT 1 FROM sessions WHERE executor_session_id = ?", (session,)):
            pause()
    send(approver, id_of(served, session))
    with until() as pause:
        while not (
            said := home.hook("codex", {**common, "hook_event_name": "UserPromptSubmit", "prompt": "x"})
        ).out:
            pause()
    assert TEXT in json.loads(said.out)["hookSpecificOutput"]["additionalContext"]


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
def test_opencode_s_plugin_adds_it_to_the_next_result(
    served: Served, approver: httpx.Client, tmp_path: Path
) -> None:
    class OpenCode(Agent):
        name = "opencode"

    opencode = OpenCode(served)

    def call(number: int) -> list[dict[str, Any]]:
        about = {"tool": "bash", "sessionID": opencode.session, "callID": f"call_{number}"}
        before = {
            "call": "tool.execute.before",
            "input": about,
            "output": {"args": {"command": f"ls {number}"}},
        }
        return [before, {"call": "tool.execute.after", "input": about, "output": {"output": "files"}}]

    connect(tmp_path, served.url)
    drive(tmp_path, call(1))
    send(approver, id_of(served, opencode.session))
    with until() as pause:
        while True:
            _, first, _, second = drive(tmp_path, [*call(2), *call(3)])
            outputs = [first["output"]["output"], second["output"]["output"]]
            if outputs != ["files", "files"]:
                break
            pause()
    assert [TEXT in one for one in outputs].count(True) == 1


def test_the_gateway_adds_it_to_a_result(served: Served, approver: httpx.Client) -> None:
    with running() as example:
        furnish(served, example.url)
        wire = Wire(served)
        wire.initialize()
        wire.call("echo", text="one")
        rows = served.sql(
            "SELECT session_id FROM sessions WHERE agent_name = 'agent.one' AND status = 'running'"
            " ORDER BY created_at DESC"
        )
        send(approver, rows[0][0])
        with until() as pause:
            while len(content := wire.call("echo", text="two")["content"]) == 1:
                pause()
        assert content[0]["text"] == "echo: two"
        assert TEXT in content[1]["text"]
        assert content[1]["_meta"] == {"signalbox/note": True}
        assert len(wire.call("echo", text="three")["content"]) == 1


@pytest.mark.parametrize(
    "result",
    [
        {"content": [], "structuredContent": {"a": 1}},
        {"structuredContent": {"a": 1}},
        {"content": [], "resultType": "input_required"},
        "text",
    ],
)
def test_a_result_without_text_content_is_left_alone(result: Any) -> None:
    assert (
        append_text_to_tool_result(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode(), "x")
        is None
    )


def test_a_driven_agent_gets_it_as_its_next_prompt_when_its_turn_ends(
    served: Served, approver: httpx.Client
) -> None:
    driver = Driver(served)
    driver.tell({"sessionUpdate": "signalbox/agent", "agent": "claude", "agentSessionId": str(uuid.uuid4())})
    send(approver, driver.session)
    assert "Waiting for the agent" in approver.get(f"/ui/sessions/{driver.session}/-/notes/").text
    driver.tell({"sessionUpdate": "signalbox/turn_ended", "stopReason": "end_turn"})
    driver.ended()
    with until() as pause:
        while (work := driver.poll()) is None:
            pause()
    assert TEXT in work["run"]["prompt"]
    driver.run = work["run"]
    driver.call(f"/runner/runs/{driver.run['run_id']}/started", {"runner_id": driver.runner_id})
    driver.next = driver.run["driven"]["next"]
    assert "Queued as the next prompt" in approver.get(f"/ui/sessions/{driver.session}/-/notes/").text
    driver.tell({"sessionUpdate": "signalbox/turn_started", "runId": driver.run["run_id"], "prompt": []})
    assert "with its next prompt" in approver.get(f"/ui/sessions/{driver.session}/-/notes/").text
