"""The real Claude Code runs a call that a rule asks about only where a person approved it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.dialects.claude_settings import WAIT
from tests.agents.real_claude import Claude, installed
from tests.claude_code.test_deciding import rules, served_form
from tests.served import Served

pytestmark = pytest.mark.served
TOUCH = "touch marker"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("claude")
    found = installed(folder)
    if found is None:
        pytest.skip("Claude Code is not on the PATH, and npm cannot install it")
    yield found
    shutil.rmtree(folder)  # a quarter of a gigabyte


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve()


@pytest.fixture
def run(program: Path, tmp_path: Path) -> Iterator[Callable[..., Claude]]:
    """Starts Claude Code, which wants to run one command."""
    started: list[Claude] = []

    def start(served: Served, command: str = TOUCH, *, wait: int = WAIT) -> Claude:
        claude = Claude(program, tmp_path / f"run{len(started)}", served, command, wait=wait)
        started.append(claude)
        return claude

    yield start
    for claude in started:
        claude.close()


def asked(served: Served) -> str:
    """Return the id of the request that waits as soon as one does."""
    deadline = time.monotonic() + 30
    while not (rows := served.sql("SELECT request_id FROM permission_requests WHERE status = 'pending'")):
        assert time.monotonic() < deadline, "nothing was asked"
        time.sleep(0.02)
    return str(rows[0][0])


def decide(served: Served, verdict: str) -> None:
    approver = served.sign_in("approver")
    form = served_form(approver, asked(served), verdict)
    assert approver.post("/ui/approvals/decide/", data=form).status_code == 200


def crash(served: Served) -> None:
    """End the server and its workers as a crash of the machine would."""
    assert served.process is not None
    for pid in (served.process.pid, *served.worker_pids()):
        os.kill(pid, signal.SIGKILL)
    served.process.wait()
    served.process = None


@pytest.mark.parametrize(("verdict", "runs"), [("approved", True), ("denied", False)])
def test_a_person_decides_whether_it_runs(
    served: Served, run: Callable[..., Claude], verdict: str, runs: bool
) -> None:
    rules(served, {"tool": "Bash", "verdict": "ask"})
    claude = run(served)
    asked(served)
    assert not claude.ran
    decide(served, verdict)
    claude.ended()
    assert claude.ran is runs


def test_silence_runs_nothing(served: Served, run: Callable[..., Claude]) -> None:
    rules(
        served,
        {"tool": "Bash", "pattern": "careful", "verdict": "ask", "wait_seconds": 1, "deny_at_deadline": True},
        {"tool": "Bash", "verdict": "ask"},
    )
    for claude in (run(served, f"{TOUCH} # careful"), run(served, wait=1)):
        assert "Nobody answered in Signalbox within 1 s." in claude.ended()[0]
        assert not claude.ran


def test_a_megabyte_runs_nothing(served: Served, run: Callable[..., Claude]) -> None:
    rules(served, {"tool": "Bash", "verdict": "ask", "wait_seconds": 1})
    claude = run(served, f"{TOUCH} # {'x' * 1_000_000}")
    assert "too large for a person to judge" in claude.ended()[0]
    assert not claude.ran


def test_a_restart_frees_no_call_that_waits(served: Served, run: Callable[..., Claude]) -> None:
    rules(served, {"tool": "Bash", "verdict": "ask"})
    claude = run(served)
    asked(served)
    served.stop()
    assert "Signalbox was restarted" in claude.ended()[0]
    assert not claude.ran


def test_after_a_crash_the_next_call_is_asked_as_ever(served: Served, run: Callable[..., Claude]) -> None:
    rules(served, {"tool": "Bash", "verdict": "ask"})
    lost = run(served)
    asked(served)
    crash(served)
    lost.ended()
    assert lost.ran  # as Claude Code's own settings allow it: README, Security, what is not promised
    served.start()
    served.sql("UPDATE permission_requests SET status = 'withdrawn'")
    claude = run(served)
    asked(served)
    assert not claude.ran
