"""What the server costs its machine: memory and processor time of its processes, read from /proc (Linux)."""

from __future__ import annotations

import os
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def listeners(port: int) -> list[int]:
    """Return the processes on this machine that listen on `port`, with their parents that do."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if Path(table).exists():
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[1].endswith(f":{port:04X}") and fields[3] == "0A":
                    inodes.add(f"socket:[{fields[9]}]")
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and _holds(folder, inodes)
    ]


def _holds(folder: Path, inodes: set[str]) -> bool:
    try:
        return any(os.readlink(handle) in inodes for handle in (folder / "fd").iterdir())
    except OSError:
        return False


def memory_kb(pids: list[int]) -> int:
    """Return the processes' memory in KB, pages that they share counted once (PSS)."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total


def cpu_share(pids: list[int], seconds: float) -> float:
    """Return the percentage of one core that the processes use during the next `seconds`."""
    before, began = _ticks(pids), time.monotonic()
    time.sleep(seconds)
    return (_ticks(pids) - before) / TICKS / (time.monotonic() - began) * 100


def _ticks(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total
