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


def until_gone(*pids: int, within: float = PATIENCE) -> None:
    """Wait until all these processes have ended; `within` is in seconds."""
    until(lambda: all(map(is_gone, pids)), f"one of {pids} still runs", within=within)
