"""The command and the served program: what is told, held and answered, and what becomes of it when the server dies."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.actions.sessions.tool_calls import GONE
from coordinator.client import settings
from coordinator.client.connecting.connectable_agents import HOOK_FAILED, HookInvocation
from tests.claude_code.test_deciding import decide, rules
from tests.claude_code.test_told_to_wait import crash
from tests.client.programs import Home, Said, until
from tests.served import KEYS, Served, children_of

pytestmark = pytest.mark.served

HOLD = {"tool": "Bash|run_shell_command", "pattern": "push", "verdict": "ask", "deny_at_deadline": True}
LONG = ("--timeout", "120")


class Agent:
    """One session of an agent whose hooks call the command."""

    def __init__(self, home: Home, served: Served, name: str = "codex") -> None:
        self.home, self.served, self.name = home, served, name
        self.session = str(uuid.uuid4())
        self.numbers = itertools.count(1)

    def payload(self, event: str, **more: Any) -> dict[str, Any]:
        return {"session_id": self.session, "hook_event_name": event, "cwd": "/home/dev/shop", **more}

    def call(self, command: str = "git push") -> dict[str, Any]:
        about = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": uuid.uuid4().hex}
        return self.payload("PreToolUse", **about)

    def tell(self, event: str = "UserPromptSubmit", **more: Any) -> Said:
        return self.home.hook(self.name, self.payload(event, **more))

    def wait(self, command: str = "git push") -> subprocess.Popen[bytes]:
        return self.home.start(self.name, self.call(command), *LONG)

    def asked(self, count: int = 1) -> list[str]:
        """Return the ids of the session's requests that wait, as soon as there are `count`."""
        with until() as pause:
            while len(found := self.waiting()) < count:
                pause()
        return found

    def waiting(self) -> list[str]:
        rows = self.served.sql(
            "SELECT r.request_id FROM permission_requests r JOIN permission_context c ON c.request_id = r.request_id"
            " JOIN sessions s ON s.session_id = c.session_id"
            " WHERE r.status = 'pending' AND s.executor_session_id = ? ORDER BY r.id",
            (self.session,),
        )
        return [row[0] for row in rows]

    def told(self, columns: str = "event_type") -> list[Any]:
        rows = self.home.told(self.served, self.session, columns)
        return [row[0] if len(row) == 1 else row for row in rows]


@pytest.fixture(scope="module")
def agents(one_server: Served, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Agent]:
    """A function that makes a session of an agent, of a home that has heard of the server's rules."""

    def make(name: str = "codex", rule: dict[str, Any] = HOLD) -> Agent:
        one_server.emptied("permission_requests")
        rules(one_server, rule)
        agent = Agent(Home(tmp_path_factory.mktemp("home"), one_server.url), one_server, name)
        assert agent.tell(prompt="Go.").code == 0
        return agent

    return make


@pytest.mark.parametrize("name", ["codex", "claude-code"])
def test_a_session_is_told_and_its_calls_are_held_for_a_person(
    agents: Callable[..., Agent], name: str
) -> None:
    agent = agents(name)
    approver = agent.served.sign_in("approver")
    waiting = agent.wait()
    decide(approver, *agent.asked())
    assert agent.home.end(waiting).decision in {None, "allow"}
    waiting = agent.wait()
    decide(approver, *agent.asked(), "denied", reason="Not on a Friday.")
    said = agent.home.end(waiting)
    assert (said.code, said.decision) == (0, "deny")
    assert "Not on a Friday." in said.why
    assert sorted(agent.told()) == ["message", "post_tool", "pre_tool", "pre_tool"]
    host = agent.served.sql("SELECT hostname FROM sessions WHERE executor_session_id = ?", (agent.session,))
    assert host[0][0]


def test_a_hook_that_is_killed_is_a_no_and_one_whose_agent_ends_asks_no_longer(
    agents: Callable[..., Agent],
) -> None:
    agent = agents()
    call = HookInvocation((sys.executable, "-m", "coordinator.client.main"), agent.served.url)
    command = shlex.split(call.fail_closed_hook_command("codex", 120))
    process = agent.home.start("codex", agent.call(), command=command)
    agent.asked()
    (hook,) = children_of(process.pid)
    os.kill(hook, signal.SIGKILL)
    said = agent.home.end(process)
    assert (said.code, said.out) == (2, "")
    assert said.err.endswith(f"{HOOK_FAILED}\n")
    agent.served.emptied("permission_requests")
    process = agent.home.start("codex", agent.call("git push two"), command=command)
    agent.asked()
    process.kill()  # the shell, as an agent that ends may do; its hook is a child of nobody's then
    with until() as pause:
        while agent.waiting():
            pause()
    agent.home.end(process)
    quick = agent.home.start("codex", agent.call("ls"), command=command)
    assert agent.home.end(quick).code == 0


@pytest.mark.parametrize("name", ["codex", "claude-code"])
def test_a_call_through_a_link_is_judged_by_where_it_leads(
    agents: Callable[..., Agent], tmp_path: Path, name: str
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "shop" / "link").symlink_to(tmp_path / "kept")
    agent = agents(
        name, {"tool": "*", "touches": f"{tmp_path}/kept", "verdict": "deny", "reason": "Not there."}
    )
    call = agent.call("cat link/notes") | {"cwd": f"{tmp_path}/shop"}
    said = agent.home.hook(name, call)
    assert said.decision == "deny"
    assert "Not there." in said.why
    assert agent.home.hook(name, call | {"tool_input": {"command": "cat other/notes"}}).decision != "deny"


def test_nobody_s_answer_is_a_denial_before_the_agent_s_deadline(agents: Callable[..., Agent]) -> None:
    agent = agents()
    said = agent.home.hook("codex", agent.call(), "--timeout", "4")
    assert said.decision == "deny"
    assert agent.home.hook("codex", agent.call("ls")).out == ""


def test_a_worker_that_is_killed_frees_no_held_call(agents: Callable[..., Agent]) -> None:
    """Each of the two workers is killed under calls that wait; every call finds its question again."""
    agent = agents()
    waiting = [agent.wait(f"git push {number}") for number in range(4)]
    asked = agent.asked(4)
    for pid in agent.served.worker_pids():
        with until() as pause:
            while len(agent.served.worker_pids()) < 2:
                pause()
        subprocess.run(["kill", "-9", str(pid)], check=True)
    assert agent.asked(4) == asked
    approver = agent.served.sign_in("approver")
    for number, request_id in enumerate(asked):
        decide(approver, request_id, "denied" if number % 2 else "approved")
    decisions = [agent.home.end(one).decision for one in waiting]
    assert sorted(str(one) for one in decisions) == ["None", "None", "deny", "deny"]
    assert agent.served.sql("SELECT count(*) FROM permission_requests")[0][0] == 4


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_is_gone_and_back_answers_the_question_that_it_was_asked(
    agents: Callable[..., Agent], how: signal.Signals
) -> None:
    agent = agents("claude-code")
    waiting = agent.wait()
    asked = agent.asked()
    workers = agent.served.worker_pids()
    agent.served.stop(how)
    for pid in workers if how is signal.SIGKILL else ():
        subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)
    with until() as pause:
        while any(os.path.exists(f"/proc/{pid}") for pid in workers):
            pause()
    assert waiting.poll() is None
    agent.served.start()
    decide(agent.served.sign_in("approver"), *asked, "approved")
    assert agent.home.end(waiting).decision == "allow"
    assert sorted(agent.told()) == ["message", "pre_tool"]


def test_a_card_closes_when_a_server_comes_back_that_was_killed_beneath_a_call_which_a_rule_only_asks(
    agents: Callable[..., Agent],
) -> None:
    """The agent goes on as soon as the server is gone, and nobody comes back for the card."""
    agent = agents("claude-code", {"tool": "Bash", "pattern": "push", "verdict": "ask"})
    waiting = agent.wait()
    (request_id,) = agent.asked()
    crash(agent.served)
    assert agent.home.end(waiting).decision in {"ask", None}  # whether it had heard of the rule
    assert agent.waiting() == [request_id]
    agent.served.start()
    with until() as pause:
        while agent.waiting():
            pause()
    how = agent.served.sql(
        "SELECT r.status, c.reason FROM permission_requests r JOIN permission_context c"
        " ON c.request_id = r.request_id WHERE r.request_id = ?",
        (request_id,),
    )
    assert how == [("withdrawn", GONE)]


def test_what_happens_while_the_server_is_away_is_told_later_in_order_and_once(
    agents: Callable[..., Agent],
) -> None:
    agent = agents()
    agent.served.stop()
    for text in ("one", "two"):
        agent.tell(prompt=text)
    denied = agent.home.hook("codex", agent.call(), "--timeout", "2")
    assert denied.decision == "deny"
    free = agent.payload("PreToolUse", tool_name="Read", tool_input={}, tool_use_id="r1")
    assert agent.home.hook("codex", free).out == ""
    assert len(agent.home.kept) == 4
    agent.served.start()
    agent.tell(prompt="three")
    with until() as pause:
        while agent.home.kept:
            pause()
    told = sorted(agent.told("e.timestamp, event_type, content, error"), key=lambda row: row[0])
    words = [json.loads(content)[0]["text"] for _, kind, content, _ in told if kind == "message"]
    assert words == ["Go.", "one", "two", "three"]
    assert [kind for _, kind, *_ in told if kind != "message"] == ["pre_tool", "post_tool", "pre_tool"]
    assert "Signalbox is away" in next(error for *_, error in told if error)
    assert agent.served.sql("SELECT count(*) FROM permission_requests")[0][0] == 0


def test_an_agent_that_leaves_takes_its_question_with_it(agents: Callable[..., Agent]) -> None:
    agent = agents()
    waiting = agent.wait()
    agent.asked()
    waiting.kill()
    agent.home.end(waiting)
    with until() as pause:
        while agent.waiting():
            pause()


def test_a_hook_that_is_no_json_is_judged_by_what_is_certain_of_it(agents: Callable[..., Agent]) -> None:
    agent = agents()
    cut = json.dumps(agent.call()).encode()[:-2]
    said = agent.home.hook("codex", cut)
    assert said.decision == "deny"
    assert "Signalbox could not read this call: This is not JSON." in said.why
    other = cut.replace(b'"Bash"', b'"Write"')
    assert agent.home.hook("codex", other).out == ""
    marked = b"\xef\xbb\xbf" + json.dumps(agent.call("ls")).encode()
    assert agent.home.hook("codex", marked).out == ""
    stop = json.dumps(agent.payload("Stop", last_assistant_message="Done.")).encode()[:-3]
    assert agent.home.hook("codex", stop).code == 0
    with until() as pause:
        while "turn_end" not in agent.told():
            pause()
    agent.home.connect("http://127.0.0.1:9")
    held_file = next((agent.home.folder / ".local/state/signalbox").glob("*/held-codex.json"))
    away = settings.ClientSettings("http://127.0.0.1:9", KEYS["agent"]).server_state_folder
    moved = agent.home.folder / ".local/state/signalbox" / os.path.basename(away) / held_file.name
    moved.parent.mkdir(parents=True)
    moved.write_bytes(held_file.read_bytes())
    said = agent.home.hook("codex", cut, "--timeout", "4")
    assert said.decision == "deny"
    assert "could not read this call" in said.why
    assert agent.home.hook("codex", other, "--timeout", "4").out == ""
