"""A small process that ends what agents leave behind, also when the runner itself is killed: it outlives the runner.

The runner writes a line `+PID` for each process that it starts (each leads a group of its own) and `-PID` when it has
ended. When the pipe closes, the runner is gone: all that is left of those groups, and all else that carries the
runner's mark in its environment, is asked to end and, a little later, killed. Standard library alone: it is started
without any site and stays small.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

GRACE = 1.5  # seconds between being asked to end and being killed


def find_pids_by_environment_tag(mark: str, besides: int = 0) -> set[int]:
    """Return the processes whose environment holds `mark`; none where the system does not show it."""
    marked_pids: set[int] = set()
    sign = mark.encode()
    try:
        names = os.listdir("/proc")
    except OSError:
        return marked_pids
    for name in names:
        if not name.isdigit() or int(name) in {besides, os.getpid()}:
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if sign in file.read(1 << 20):
                    marked_pids.add(int(name))
        except OSError:
            continue
    return marked_pids


def signal_processes_and_check_reached(groups: set[int], processes: set[int], number: int) -> bool:
    """Send a signal to groups and processes; returns whether any was there."""
    reached = False
    for send, targets in ((os.killpg, groups), (os.kill, processes)):
        for target in targets:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(target, number)
                reached = True
    return reached


def terminate_processes(groups: set[int], mark: str) -> None:
    """End groups and marked processes: asked first, ended after GRACE."""
    if not signal_processes_and_check_reached(groups, find_pids_by_environment_tag(mark), signal.SIGTERM):
        return
    until = time.monotonic() + GRACE
    while time.monotonic() < until and (
        signal_processes_and_check_reached(groups, set(), 0) or find_pids_by_environment_tag(mark)
    ):
        time.sleep(0.05)
    signal_processes_and_check_reached(groups, find_pids_by_environment_tag(mark), signal.SIGKILL)


def wait_and_end_runner_processes(mark: str) -> None:
    """Read what the runner says until it is gone, then end what it left."""
    groups: set[int] = set()
    unread_bytes = b""
    while part := os.read(0, 4096):
        *lines, unread_bytes = (unread_bytes + part).split(b"\n")
        for line in lines:
            number = int(line[1:])
            if line[:1] == b"+":
                groups.add(number)
            else:
                groups.discard(number)
    terminate_processes(groups, mark)


if __name__ == "__main__":
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(stop, signal.SIG_IGN)
    wait_and_end_runner_processes(sys.argv[1])
