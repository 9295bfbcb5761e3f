"""Who called the command is found through shells, and noticed when it ends, reaped or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.client.calling_process import CallingProcess
from tests.client.programs import until
from tests.served import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
# Says whom it was called by, and then when that is gone; ends with its stdin at the latest.
COMMAND = """
import os, select, sys
from coordinator.client.calling_process import CallingProcess
caller = CallingProcess.find_agent_process()
print(caller._agent, flush=True)
while not caller.has_agent_exited() and not select.select([0], [], [], 0.05)[0]:
    pass
print("gone" if caller.has_agent_exited() else "there", flush=True)
"""
# Starts it through two shells, as agents do with what `signalbox connect` writes, and waits.
AGENT = """
import shlex, subprocess, sys
command = shlex.join([sys.executable, "-c", sys.argv[1]]) + " || exit 2"
subprocess.run(["/bin/sh", "-c", "/bin/sh -c " + shlex.quote(command) + "; exit"])
"""


def start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", AGENT, COMMAND],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("is_reaped", [True, False])
def test_an_agent_that_is_killed_above_shells_is_gone(is_reaped: bool) -> None:
    with start() as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        assert agent.stdout.readline() == f"{agent.pid}\n"
        agent.send_signal(signal.SIGKILL)
        if is_reaped:
            agent.wait()
        assert agent.stdout.readline() == "gone\n"


def test_an_agent_that_lives_is_there() -> None:
    with start() as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdout.readline()
        agent.stdin.close()
        agent.stdin = None
        assert agent.stdout.readline() == "there\n"


def test_another_process_with_the_same_id_is_not_the_agent() -> None:
    here = CallingProcess.find_agent_process()
    assert not here.has_agent_exited()
    assert CallingProcess(os.getppid(), os.getpid(), b"1").has_agent_exited()


def test_where_nothing_can_be_seen_only_the_parent_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.client.calling_process.read_process_stat", lambda _pid: None)
    assert not CallingProcess.find_agent_process().has_agent_exited()
    assert CallingProcess(os.getppid() + 1, 0, b"").has_agent_exited()


def test_a_name_with_parentheses_is_read(tmp_path: Path) -> None:
    program = tmp_path / "a) S (b"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "60"])
    try:
        with until() as pause:
            while not Path(f"/proc/{process.pid}/comm").read_text().startswith("a) S"):
                pause()
        from coordinator.client.calling_process import read_process_stat

        found = read_process_stat(process.pid)
        assert found is not None
        assert found[:2] == (b"a) S (b", os.getpid())
    finally:
        process.kill()
        process.wait()
