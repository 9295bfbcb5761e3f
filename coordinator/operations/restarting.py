"""The protocol by which `manage.py restart` asks a running `serve` to restart, and learns the outcome.

It sends SIGHUP to the process that the first line of `serve.lock` names. That process writes the second line:

    restarting      since it received the signal
    (no line)       while the new code starts, in the same process
    ready TIME      the new code answers, since that time
    failed TIME     the new code cannot be started, so the old server goes on

The caller waits for a `ready` or `failed` line that was not there before, or for the lock to be free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from coordinator.operations.startup import LOCK_FILE

RESTARTING, READY, FAILED = "restarting", "ready", "failed"
POLL_SECONDS = 0.05


class NotRestarted(Exception):
    """The server was not restarted. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """The process that serves a data folder, and the `outcome` of its last start ("" while it starts)."""

    pid: int
    outcome: str

    @property
    def is_settled(self) -> bool:
        return self.outcome.startswith((READY, FAILED))


def write_start_outcome_to_lock_file(lock: IO[str], outcome: str) -> None:
    """Write how this server's start or restart went into the lock file that it holds."""
    when = "" if outcome == RESTARTING else f" {time.time_ns()}"
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n{outcome}{when}\n")
    lock.flush()


def restart_server_and_wait(folder: Path) -> None:
    """Restart the server that runs on a data folder, and return once the new code answers. Raises NotRestarted."""
    before = wait_for_new_start_outcome(folder, None)
    try:
        os.kill(before.pid, signal.SIGHUP)
    except ProcessLookupError:
        raise build_no_server_error(folder) from None
    except PermissionError:
        raise NotRestarted(
            f"The server (process {before.pid}) is another user's. Ask as that user."
        ) from None
    after = wait_for_new_start_outcome(folder, before.outcome)
    if after.outcome.startswith(FAILED):
        raise NotRestarted("The new server did not start, so the old one goes on. It printed why.")


def wait_for_new_start_outcome(folder: Path, known_outcome: str | None) -> RunningServer:
    """Wait until the server has an outcome other than the `known_outcome` one. Raises NotRestarted where it ends."""
    while True:
        server = find_running_server(folder)
        if server is None:
            raise (
                build_no_server_error(folder)
                if known_outcome is None
                else NotRestarted("The server has ended.")
            )
        if server.is_settled and server.outcome != known_outcome:
            return server
        time.sleep(POLL_SECONDS)


def find_running_server(folder: Path) -> RunningServer | None:
    """Return the server that holds the folder's lock; None where none does. Raises NotRestarted for an old version."""
    try:
        file = (folder / LOCK_FILE).open()
    except OSError:
        return None
    with file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        text = file.read()
    pid, end, outcome = text.partition("\n")
    if pid and not end:
        raise NotRestarted(
            f"The server that runs (process {pid}) is older than this command. Stop it and start it again, this once."
        )
    return RunningServer(int(pid or 0), outcome.strip())


def build_no_server_error(folder: Path) -> NotRestarted:
    return NotRestarted(f"No server runs on {folder}. Start one with `signalbox serve`.")
