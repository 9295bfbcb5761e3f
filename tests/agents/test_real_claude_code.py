"""The real Claude Code runs a call that a rule asks about only where a person approved it: with pasted http hooks."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.dialects.claude_settings import WAIT
from tests.agents import programs
from tests.agents.connected import paste
from tests.agents.real_agents import Home, Run
from tests.claude_code.test_deciding import rules, served_form
from tests.patience import PATIENCE
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
TOUCH = "touch marker"


@pytest.fixture(scope="module", autouse=True)
def program() -> None:
    programs.needed("claude-code")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts Claude Code, which wants to run one command."""
    started: list[Run] = []

    def start(served: Served, command: str = TOUCH, *, wait: int = WAIT) -> Run:
        home = Home("claude-code", tmp_path / f"run{len(started)}")
        paste(home, served, wait=wait)
        started.append(home.starts(command))
        return started[-1]

    yield start
    for run in started:
        run.close()
        run.home.close()


def ran(run: Run) -> bool:
    """Say whether the command of a run that has ended, or waits, made its file."""
    return run.home.ran("marker")


def told(run: Run) -> str:
    """Wait until the run has ended and return what its model was told of the call."""
    return json.dumps(run.ended()[-1]["messages"][-1])


def asked(served: Served) -> str:
    """Return the id of the request that waits as soon as one does."""
    deadline = time.monotonic() + PATIENCE
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
    served: Served, run: Callable[..., Run], verdict: str, runs: bool
) -> None:
    rules(served, {"tool": "Bash", "verdict": "ask"})
    claude = run(served)
    asked(served)
    assert not ran(claude)
    decide(served, verdict)
    claude.ended()
    assert ran(claude) is runs


def test_silence_runs_nothing(served: Served, run: Callable[..., Run]) -> None:
    rules(
        served,
        {"tool": "Bash", "pattern": "careful", "verdict": "ask", "wait_seconds": 1, "deny_at_deadline": True},
        {"tool": "Bash", "verdict": "ask"},
    )
    for claude in (run(served, f"{TOUCH} # careful"), run(served, wait=1)):
        assert "Nobody answered in Signalbox within 1 s." in told(claude)
        assert not ran(claude)


def test_a_megabyte_runs_nothing(served: Served, run: Callable[..., Run]) -> None:
    rules(served, {"tool": "Bash", "verdict": "ask", "wait_seconds": 1})
    claude = run(served, f"{TOUCH} # {'x' * 1_000_000}")
    assert "too large for a person to judge" in told(claude)
    assert not ran(claude)


def test_a_restart_frees_no_call_that_waits_and_after_a_crash_the_next_is_asked_as_ever(
    serve: Callable[..., Served], run: Callable[..., Run]
) -> None:
    served = serve()
    rules(served, {"tool": "Bash", "verdict": "ask"})
    claude = run(served)
    asked(served)
    served.stop()
    assert "Signalbox was restarted" in told(claude)
    assert not ran(claude)
    served.start()
    served.sql("UPDATE permission_requests SET status = 'withdrawn'")
    lost = run(served)
    asked(served)
    crash(served)
    lost.ended()
    assert ran(lost)  # as Claude Code's own settings allow it: .docs/security.md, what is not promised
    served.start()
    served.sql("UPDATE permission_requests SET status = 'withdrawn'")
    claude = run(served)
    asked(served)
    assert not ran(claude)
