"""Agents that a machine's settings name by their command: asked what they can do before they are offered."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator.runner import guarded_processes, probing, startable
from coordinator.runner.context import RunnerContext
from coordinator.runner.directories import AllowedDirectories
from coordinator.runner.options import AgentOptions, RunnerOptions
from coordinator.runner.outbox import OutboxCapacity
from coordinator.runner.server import SignalboxServer
from coordinator.runner.session_records import SessionRecordStore
from tests.processes import until_gone
from tests.runner.driving import AGENT, KEY
from tests.served import ROOT

pytestmark = pytest.mark.one_engine

ANSWER = """
import json, os, sys, time
told = {told!r}
before = {before!r}
def answer(line):
    message = json.loads(line)
    return json.dumps({{"jsonrpc": "2.0", "id": message["id"], **told}})
open("pid", "w").write(str(os.getpid()))
open("environ", "w").write(json.dumps(dict(os.environ)))
sys.stdout.write(before); sys.stdout.flush()
for line in sys.stdin:
    if told:
        print(answer(line), flush=True)
time.sleep(0 if told else 600)
"""
HELLO = {"protocolVersion": 1, "agentCapabilities": {}}


def probe(work: Path, *commands: tuple[str, ...]) -> RunnerContext:
    """Return what a runner of this machine would offer, with these agents by their commands."""
    wanted = {f"a{number}": AgentOptions(command=command) for number, command in enumerate(commands)}
    agents, missing = startable.find_startable_and_missing_agents(wanted, str(work))
    options = RunnerOptions("http://127.0.0.1:1", KEY, (str(work),), str(work / "state"), passes=("MY_*",))
    guard = guarded_processes.ProcessGuard()

    async def ask() -> RunnerContext:
        around = RunnerContext(
            options=options,
            server=SignalboxServer(options.url, KEY),
            guard=guard,
            directories=AllowedDirectories(options.directories, ()),
            memory=SessionRecordStore(options.state),
            capacity=OutboxCapacity(),
            environ={"PATH": os.environ["PATH"], "SIGNALBOX_KEY": KEY, "MY_KEY": "m", "OTHER": "x"},
            agents=agents,
            missing=[one for one in missing if one["is_configured"]],
        )
        await probing.probe_and_keep_answering_agents(around)
        await around.server.close_server_http_client()
        return around

    try:
        return asyncio.run(ask())
    finally:
        guard.close_process_guard()


def script(
    work: Path, told: dict[str, Any] | None, before: str = "", name: str = "agent.py"
) -> tuple[str, ...]:
    (work / name).write_text(ANSWER.format(told=told, before=before))
    return (sys.executable, str(work / name))


def reason(around: RunnerContext) -> str:
    assert around.agents == []
    ((missing),) = around.missing
    assert missing["is_configured"]
    return str(missing["how"])


def test_what_an_agent_says_of_itself_is_offered_and_its_command_is_not(work: Path) -> None:
    around = probe(work, (sys.executable, AGENT))
    (agent,) = around.agents
    offer = agent.build_agent_offer()
    assert offer == {
        "name": "a0",
        "title": "a0",
        "version": "7",
        "abilities": {
            "images": True,
            "audio": False,
            "files": False,
            "resumes": True,
            "forks": True,
            "mcp_over_http": True,
            "logins": [],
        },
    }
    assert AGENT not in json.dumps(offer)


def test_ways_to_sign_in_are_named(work: Path) -> None:
    methods = [{"id": "oauth", "name": "Log in with X"}, {"id": "api-key"}, 3, {"name": ["x"]}]
    around = probe(work, script(work, {"result": {**HELLO, "authMethods": methods}}))
    assert around.agents[0].build_agent_offer()["abilities"]["logins"] == ["Log in with X", "api-key"]


def test_it_is_started_without_our_key_and_ended(work: Path) -> None:
    probe(work, script(work, {"result": HELLO}))
    environ = json.loads((work / "environ").read_text())
    assert environ["MY_KEY"] == "m"
    assert "OTHER" not in environ
    assert "SIGNALBOX_SESSION" not in environ
    assert KEY not in json.dumps(environ)
    until_gone(int((work / "pid").read_text()))


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"error": {"code": -32603, "message": "No model is configured"}}, "refuses to begin: No model"),
        ({"error": {"code": -32000, "message": "Authentication required"}}, "Sign in to a0 on the runner"),
        ({"result": {"protocolVersion": 9}}, "speaks version 9 of the protocol, and Signalbox 1"),
        ({"result": {}}, "speaks version None of the protocol"),
        ({"result": [1]}, "speaks version None of the protocol"),
    ],
)
def test_an_agent_that_does_not_begin_is_not_offered_and_says_why(
    told: dict[str, Any], words: str, work: Path
) -> None:
    assert words in reason(probe(work, script(work, told)))


def test_one_that_hangs_is_ended_and_says_so_and_keeps_no_other_back(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "ANSWER_WAIT_SECONDS", 3.0)
    around = probe(work, script(work, None), (sys.executable, AGENT))
    assert [agent.name for agent in around.agents] == ["a1"]
    assert around.missing[0]["how"] == "a0 did not answer initialize within 3 s."
    until_gone(int((work / "pid").read_text()))


def test_one_that_prints_something_else_says_so(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "ANSWER_WAIT_SECONDS", 3.0)
    around = probe(work, script(work, None, "Welcome to the agent!\n> "))
    assert "does its command lack an option?" in reason(around)
    around = probe(work, (sys.executable, "-c", "print('usage: agent [--acp]')"))
    assert "ended by itself" in reason(around)
    around = probe(work, (sys.executable, AGENT, "garbage"))
    assert "cannot be understood" in reason(around)


def test_a_greeting_before_the_protocol_does_no_harm(work: Path) -> None:
    assert probe(work, script(work, {"result": HELLO}, "Welcome!\n")).agents


def test_a_program_that_is_not_there_says_so(work: Path) -> None:
    assert "There is no program 'no-such-agent'" in reason(probe(work, ("no-such-agent", "--acp")))


@pytest.mark.parametrize(
    "told",
    [
        {"agentCapabilities": 3},
        {"agentCapabilities": {"promptCapabilities": [], "loadSession": "yes"}, "authMethods": {}},
        {"agentInfo": {"version": 7}, "agentCapabilities": {"sessionCapabilities": "x"}},
    ],
)
def test_odd_answers_are_no_abilities(told: dict[str, Any]) -> None:
    abilities = probing.parse_agent_abilities(told)
    assert not any(value for value in abilities.values())
    assert probing.reported_agent_version(told) == ""


def test_the_list_of_agents_asks_them_too(work: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "coordinator.client.main",
            "runner",
            "--list",
            "--directory",
            str(work),
            "--agent",
            f"mine={sys.executable} {AGENT}",
            "--agent",
            "cat=cat /no/such/file",
        ],
        env={"PATH": "/usr/bin:/bin", "HOME": str(work), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "found    mine 7 (images, resumes, forks, mcp over http)" in done.stdout
    assert "missing  cat: cat ended by itself, with exit code 1" in done.stdout
