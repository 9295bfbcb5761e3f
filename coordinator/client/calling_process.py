"""The process that called a hook's command, through shells or not: where it is gone, nobody reads the answer."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

SHELLS = frozenset({b"sh", b"ash", b"bash", b"dash", b"ksh", b"zsh", b"busybox"})
MOST_SHELLS = 4  # around the command: an agent's, and ours


class CallingProcess:
    """The process that called this command. A killed agent leaves the shells between it and the command behind."""

    def __init__(self, parent: int, agent: int, started: bytes) -> None:
        self._parent = parent
        self._agent = agent
        self._started = started

    @classmethod
    def find_agent_process(cls) -> Self:
        """Return the parent, and the nearest process above it that is no shell, as far as the system shows it."""
        parent = pid = os.getppid()
        for _ in range(MOST_SHELLS):
            process_stat = read_process_stat(pid)
            if process_stat is None:
                break
            name, above, started = process_stat
            if name not in SHELLS:
                return cls(parent, pid, started)
            pid = above
        return cls(parent, 0, b"")

    def has_agent_exited(self) -> bool:
        """Say whether it has ended."""
        if os.getppid() != self._parent:
            return True
        if not self._agent:
            return False
        process_stat = read_process_stat(self._agent)
        return process_stat is None or process_stat[2] != self._started


def read_process_stat(pid: int) -> tuple[bytes, int, bytes] | None:
    """Return a process's name, its parent, and when it was started; None for one that ended or cannot be seen."""
    if pid <= 1:
        return None
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            stat_bytes = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    name, _, rest = stat_bytes.partition(b"(")[2].rpartition(b")")
    fields = rest.split()
    if len(fields) < 20 or fields[0] in {b"Z", b"X"} or not fields[1].isdigit():
        return None
    return name, int(fields[1]), fields[19]
