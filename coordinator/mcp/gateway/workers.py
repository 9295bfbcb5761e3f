"""Names of the processes that run or hold calls, by which others on the machine know whether they are alive."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path


def get_own_worker_name() -> str:
    """Return this process's name: host, number, and when it was started (process ids are reused)."""
    return f"{platform.node()}:{os.getpid()}:{read_start_ticks_or_empty(os.getpid())}"


def is_worker_known_to_have_ended(worker: str | None) -> bool:
    """Say whether the process is known not to run any more. Of one on another machine nothing is known."""
    process_id, _, started = (worker or "").rpartition(":")
    host, _, number = process_id.rpartition(":")
    if host != platform.node() or not number.isdigit():
        return False
    return read_start_ticks_or_empty(int(number)) != started


def is_worker_known_to_run(worker: str | None) -> bool:
    """Say whether the process is known to run. Of one on another machine nothing is known."""
    process_id, _, started = (worker or "").rpartition(":")
    host, _, number = process_id.rpartition(":")
    return (
        host == platform.node()
        and bool(started)
        and number.isdigit()
        and read_start_ticks_or_empty(int(number)) == started
    )


def read_start_ticks_or_empty(number: int) -> str:
    """Return when a process was started, in the system's own count; nothing where it does not run."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    return ""
