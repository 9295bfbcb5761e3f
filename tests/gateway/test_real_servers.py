"""MCP servers of others, from npm, say the same through the gateway as they say directly: hosted here, or beside.

The client speaks lines on stdin and stdout, to the server itself, to `signalbox mcp SERVER` (the gateway, which hosts
the server) and to `signalbox mcp SERVER -- COMMAND` (the server beside its agent, the rules of the gateway).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agents import programs
from tests.gateway.agents import KEY, LONG_AGO, accept_command, bind, rule
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.served import ROOT, Served, Template, running

pytestmark = [pytest.mark.served, pytest.mark.real_agent]

AGENT = "agent.one"
BEGUN_WITHIN = 60.0  # seconds
WAYS = ("directly", "hosted", "beside")
CAPABILITIES = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
ANSWERS: dict[str, dict[str, Any]] = {
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "sampled"},
        "model": "scripted",
        "stopReason": "endTurn",
    },
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "roots/list": {"roots": []},
}


class Lines:
    """An MCP client on a program's stdin and stdout; it answers what the server asks, and keeps what it hears."""

    def __init__(self, *words: str, folder: Path, **environment: str) -> None:
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.heard: list[dict[str, Any]] = []
        self.number = 0

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a request, or its error."""
        self.number += 1
        number = self.number
        self.send(id=number, method=method, params=params)
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            assert line, f"the server ended before it answered {method}"
            message = json.loads(line)
            if message.get("id") == number and "method" not in message:
                found: dict[str, Any] = message.get("result", message.get("error"))
                return found
            self.heard.append(message)
            if "id" in message:
                self.send(id=message["id"], result=ANSWERS[message["method"]])

    def begin(self) -> None:
        """Begin a session; on a busy machine a server may be so slow to start that it is tried again."""
        about = {"name": "test-client", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "clientInfo": about}
        until = time.monotonic() + BEGUN_WITHIN
        while "protocolVersion" not in (said := self.ask("initialize", **params)):
            assert time.monotonic() < until, said
            time.sleep(0.5)
        self.send(method="notifications/initialized")

    def call(self, tool: str, progress: str | None = None, **arguments: Any) -> dict[str, Any]:
        meta = {} if progress is None else {"_meta": {"progressToken": progress}}
        return self.ask("tools/call", name=tool, arguments=arguments, **meta)

    def told(self, method: str) -> list[dict[str, Any]]:
        """Return what was heard of a method, its params alone."""
        return [one.get("params", {}) for one in self.heard if one.get("method") == method]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def node() -> str:
    programs.needed("mcp-everything", "mcp-filesystem")
    return programs.command("mcp-everything")[0]


@pytest.fixture(scope="module")
def box(served_template: Template, tmp_path_factory: pytest.TempPathFactory, node: str) -> Iterator[Served]:
    """A server that may start Node's programs."""
    folder = tmp_path_factory.mktemp("real") / "server"
    with running(served_template, folder, SIGNALBOX_DISCOVERY_COMMANDS=node) as served:
        bind(served, AGENT, KEY)
        yield served


def register(
    box: Served, name: str, *command: str, hosted: bool = True, writable: tuple[Path, ...] = ()
) -> None:
    """Register a server, open to all agents; one that is not hosted runs beside its agent, which knows its command.

    `writable` are folders that a hosted one may write to.
    """
    program, *more = command if hosted else ("",)
    words = (name, program, json.dumps(more), 1_767_225_600, "opt-out")
    box.sql(
        "INSERT INTO mcp_servers (name, command, args, created_at, default_policy) VALUES (?, ?, ?, ?, ?)",
        words,
    )
    if hosted:
        box.sql(
            "INSERT INTO mcp_upstreams (server_id, transport, sharing, private_network, call_seconds, enabled,"
            " changed_at, writable_folders) VALUES (?, 'stdio', 'caller', ?, 60, ?, ?, ?)",
            (name, False, True, LONG_AGO, json.dumps([str(folder) for folder in writable])),
        )
        accept_command(box, name)


@contextmanager
def speaking(box: Served, way: str, name: str, command: tuple[str, ...], folder: Path) -> Iterator[Lines]:
    """Speak to a server in one of WAYS."""
    ours = (sys.executable, "-m", "coordinator.client.main", "mcp")
    words = {
        "directly": command,
        "hosted": (*ours, name),
        "beside": (*ours, f"{name}-beside", "--", *command),
    }[way]
    lines = Lines(*words, folder=folder, SIGNALBOX_URL=box.url, SIGNALBOX_KEY=KEY)
    try:
        lines.begin()
        yield lines
    finally:
        lines.close()


def everything(lines: Lines) -> dict[str, Any]:
    """Ask `server-everything` for one of each of what it has; return what it said."""
    tools = lines.ask("tools/list").get("tools", [])
    resources = lines.ask("resources/list")["resources"]
    said: dict[str, Any] = {
        "tools": sorted(tools, key=lambda one: one["name"]),
        "resources": resources,
        "templates": lines.ask("resources/templates/list"),
        "resource": lines.ask("resources/read", uri=resources[0]["uri"]),
        "prompts": lines.ask("prompts/list"),
        "prompt": lines.ask("prompts/get", name="args-prompt", arguments={"city": "Kyoto", "state": "Kyoto"}),
        "no prompt": lines.ask("prompts/get", name="nobody-has-it"),
        "level": lines.ask("logging/setLevel", level="debug"),
        "echo": lines.call("echo", message="é ☃ \u2028"),
        "sum": lines.call("get-sum", a=2, b=40),
        "wrong": lines.call("get-sum", a="two"),
        "image": lines.call("get-tiny-image"),
        "annotated": lines.call("get-annotated-message", messageType="error", includeImage=True),
        "structured": lines.call("get-structured-content", location="Chicago"),
        "links": lines.call("get-resource-links", count=2),
        "long": lines.call("trigger-long-running-operation", "mine", duration=0.4, steps=2),
        "sampled": lines.call("trigger-sampling-request", prompt="Say it", maxTokens=10),
        "elicited": lines.call("trigger-elicitation-request"),
    }
    said["progress"] = lines.told("notifications/progress")
    said["asked"] = [lines.told(method) for method in ("sampling/createMessage", "elicitation/create")]
    return said


def test_server_everything_says_the_same_directly_hosted_and_beside(
    box: Served, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    command = programs.command("mcp-everything")
    register(box, "everything", *command)
    register(box, "everything-beside", *command, hosted=False)
    said = {}
    for way in WAYS:
        with speaking(box, way, "everything", command, tmp_path) as lines:
            said[way] = everything(lines)
    directly = said.pop("directly")
    assert [one["progress"] for one in directly["progress"]] == [1, 2]
    assert "sampled" in str(directly["sampled"])
    assert "Ada" in str(directly["elicited"])
    for way, found in said.items():
        for what, wanted in directly.items():
            with subtests.test(way, what=what):
                assert found[what] == wanted


@pytest.mark.parametrize("way", ["hosted", "beside"])
def test_server_filesystem_writes_the_file_that_a_person_approved_once(
    box: Served, tmp_path: Path, way: str
) -> None:
    place = tmp_path / "files"
    place.mkdir()
    (place / "read.txt").write_text("as it is")
    place.chmod(0o777)  # a server that root starts is another user
    (place / "read.txt").chmod(0o644)
    name = f"files-{way}"
    command = (*programs.command("mcp-filesystem"), str(place))
    register(box, name, *command, writable=(place,))
    register(box, f"{name}-beside", *command, hosted=False)
    rule(box, f"mcp__{name}{'-beside' if way == 'beside' else ''}__write_file", "ask")
    with speaking(box, way, name, command, tmp_path) as lines:
        assert "write_file" in [one["name"] for one in lines.ask("tools/list")["tools"]]
        assert "as it is" in str(lines.call("read_text_file", path=str(place / "read.txt"))["content"])
        for verdict in ("approved", "denied"):
            file, content = place / f"{verdict}.txt", f"{verdict}\n"
            call: Callable[[], Any] = lambda file=file, content=content: lines.call(  # noqa: E731
                "write_file", "mine", path=str(file), content=content
            )
            waiting = InBackground(call)
            (request_id,) = pending(box)
            card = box.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
            assert str(file) in card
            assert not file.exists()
            decide(box, request_id, verdict, reason="not today")
            result = waiting.result()
            assert (file.exists(), bool(result.get("isError"))) == (
                verdict == "approved",
                verdict == "denied",
            )
        assert "not today" in str(result["content"])
