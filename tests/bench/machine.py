"""What the server costs its machine: memory and processor time of its processes, read from /proc (Linux)."""

from __future__ import annotations

import contextlib
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


def tree(pid: int) -> list[int]:
    """Return a process and all that stand below it."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            found += [int(child) for child in Path(f"/proc/{one}/task/{one}/children").read_text().split()]
    return found


def processor_seconds(pids: list[int]) -> float:
    """Return the processor time that the processes have had."""
    return _ticks(pids) / TICKS


def memory_kb(pids: list[int]) -> int:
    """Return the processes' memory in KB, pages that they share counted once (PSS)."""
    total = 0
    for pid in pids:
        total += _kept(pid, "Pss:")
    return total


def own_memory_kb(pids: list[int]) -> int:
    """Return the memory in KB that the processes share with nobody (USS)."""
    return sum(_kept(pid, "Private_Clean:") + _kept(pid, "Private_Dirty:") for pid in pids)


def _kept(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(name))


def cpu_share(pids: list[int], seconds: float) -> float:
    """Return the percentage of one core that the processes use during the next `seconds`."""
    before, began = _ticks(pids), time.monotonic()
    time.sleep(seconds)
    return (_ticks(pids) - before) / TICKS / (time.monotonic() - began) * 100


def until_idle(percent: float = 10.0, *, patience: float = 120.0) -> None:
    """Wait until everything on this machine together uses less than `percent` of a core for a second.

    After `patience` seconds it says so and goes on: on such a machine no figure means much.
    """
    deadline = time.monotonic() + patience
    while (used := _used_share(1.0)) >= percent:
        if time.monotonic() > deadline:
            print(f"  the machine is not idle: {used:.0f} % of a core is in use", flush=True)
            return


def _used_share(seconds: float) -> float:
    before, began = _used_ticks(), time.monotonic()
    time.sleep(seconds)
    return (_used_ticks() - before) / TICKS / (time.monotonic() - began) * 100


def _used_ticks() -> int:
    """Return what all cores have worked: the first line of /proc/stat without `idle` and `iowait` (see proc(5))."""
    user, nice, system, _idle, _waiting, irq, softirq = Path("/proc/stat").read_text().split()[1:8]
    return sum(map(int, (user, nice, system, irq, softirq)))


def _ticks(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total
