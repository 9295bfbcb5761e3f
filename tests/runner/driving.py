"""A runner of this process, or of its own, for tests: with the scripted agent as its only one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coordinator.runner import guarded_processes
from coordinator.runner.context import RunnerContext
from coordinator.runner.directories import AllowedDirectories
from coordinator.runner.options import RunnerOptions
from coordinator.runner.outbox import OutboxCapacity
from coordinator.runner.program import Runner
from coordinator.runner.server import SignalboxServer
from coordinator.runner.session_records import SessionRecordStore
from coordinator.runner.startable import StartableAgent
from tests.patience import PATIENCE
from tests.served import ROOT

AGENT = str(Path(__file__).with_name("scripted_agent.py"))
KEY = "sbx_the-runners-own-key"


@contextmanager
def runner_here(url: str, work: Path, how: str = "", **more: Any) -> Iterator[Runner]:
    """Run a runner in a thread of this process. `how`: see scripted_agent; `more`: options, and habits of the agent."""
    habits = {name: more.pop(name, False) for name in ("opens_once_a_minute", "keeps_commands")}
    options = RunnerOptions(
        url=url, key=KEY, directories=(str(work),), state=str(work.parent / "state"), hostname="here", **more
    )
    agent = StartableAgent("scripted", "Scripted", (sys.executable, AGENT), "7", {"SCRIPTED": how}, **habits)
    ready = threading.Event()
    found: list[Any] = []
    guard = guarded_processes.ProcessGuard()

    async def live() -> None:
        around = RunnerContext(
            options=options,
            server=SignalboxServer(url, KEY),
            guard=guard,
            directories=AllowedDirectories(options.directories, options.private),
            memory=SessionRecordStore(options.state),
            capacity=OutboxCapacity(),
            environ={"PATH": os.environ["PATH"], "SIGNALBOX_KEY": KEY, "OTHER": "x", "HOME": str(work)},
            agents=[agent],
            missing=[{"name": "codex", "title": "Codex", "how": "npm install codex"}],
        )
        runner = Runner(around)
        found.extend([runner, asyncio.get_running_loop()])
        ready.set()
        await runner.work_until_stop()

    thread = threading.Thread(target=asyncio.run, args=(live(),))
    thread.start()
    ready.wait()
    runner, loop = found
    try:
        yield runner
    finally:
        loop.call_soon_threadsafe(runner.request_runner_stop)
        thread.join(PATIENCE)
        guard.close_process_guard()
        assert not thread.is_alive()


@contextmanager
def runner_apart(
    url: str,
    work: Path,
    hostname: str = "there",
    *,
    log: Path | None = None,
    patience: float = PATIENCE,
    **environ: str,
) -> Iterator[subprocess.Popen[str]]:
    """Run the program itself, as on another machine.

    `log`: a file for what it says; else its `stdout` is a pipe. `patience`: seconds that it may take to end.
    """
    settings = work.parent / "runner.toml"
    settings.write_text(
        f'at_once = 20\n[agents.scripted]\ntitle = "Scripted"\ncommand = ["{sys.executable}", "{AGENT}"]\n'
        f'[agents.older]\ntitle = "Older"\ncommand = ["{sys.executable}", "{AGENT}", "older"]\n'
    )
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(work.parent),
        "PYTHONPATH": str(ROOT),
        "SIGNALBOX_URL": url,
        "SIGNALBOX_KEY": KEY,
        **environ,
    }
    words = ["runner", "--directory", str(work), "--config", str(settings), "--hostname", hostname]
    program = subprocess.Popen(
        [sys.executable, "-m", "coordinator.client.main", *words],
        env=env,
        stdout=log.open("w") if log else subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield program
    finally:
        if program.poll() is None:
            program.send_signal(signal.SIGTERM)
        program.communicate(timeout=patience)
