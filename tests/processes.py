"""Whether processes have ended."""

from __future__ import annotations

import os
from pathlib import Path

from tests.patience import PATIENCE, until


def is_gone(pid: int) -> bool:
    """Say whether the process has ended with all its threads: until the last one has, its connections are open.

    One that ended may still wait for its parent to ask how.
    """
    try:
        has_ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return has_ended and len(os.listdir(f"/proc/{pid}/task")) == 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def processes_naming(token: str) -> list[int]:
    """Return the processes with `token` in their command lines: those of other process namespaces have other ids."""
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and token.encode() in (entry / "cmdline").read_bytes():
                pids.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [pid for pid in pids if not is_gone(pid)]


def until_gone(*pids: int, within: float = PATIENCE) -> None:
    """Wait until all these processes have ended; `within` is in seconds."""
    until(lambda: all(map(is_gone, pids)), f"one of {pids} still runs", within=within)
