"""The workers' metrics: each worker of this machine writes its counts to a file, and any of them reads all."""

from __future__ import annotations

import json
import os
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings

from coordinator.lib import meters

# What `meters.snapshot` returns, the writer's `pid`, and `gauges`: what it holds, by name.
Figures = dict[str, Any]


def folder() -> Path:
    return Path(settings.DATA_DIR) / "metrics"


def forget_earlier_workers() -> None:
    """Remove the files of an earlier server; call it before the first worker starts."""
    for path in folder().glob("*"):
        path.unlink(missing_ok=True)


def own_file() -> Path:
    """Return a file for this worker. A process id may come again: its first owner's counts are not overwritten."""
    return folder() / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.json"


def write(path: Path, gauges: dict[str, float]) -> None:
    """Write what this process counted and holds; readers see the old figures or the new, never half. Raises OSError."""
    text = json.dumps(meters.snapshot() | {"pid": os.getpid(), "gauges": gauges})
    fresh = path.with_suffix(f".{threading.get_ident()}.new")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    fresh.write_text(text)
    fresh.replace(path)


def read() -> list[Figures]:
    """Return every worker's figures; of workers that have ended without the gauges (`held`)."""
    found = []
    for path in sorted(folder().glob("*.json")):
        with suppress(OSError, ValueError):  # removed while we look
            one = json.loads(path.read_text())
            if not _is_alive(one["pid"]):
                one["gauges"] = {}
            found.append(one)
    return found


def held(found: list[Figures], gauge: str) -> float:
    """Return the sum of what the workers hold."""
    return float(sum(one["gauges"].get(gauge, 0) for one in found))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
