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

from coordinator.lib import process_metrics as meters

# What `meters.snapshot` returns, the writer's `pid`, and `gauges`: what it holds, by name.
Figures = dict[str, Any]


def metrics_folder() -> Path:
    return Path(settings.DATA_DIR) / "metrics"


def remove_all_worker_metrics() -> None:
    """Remove the files of an earlier server; call it before the first worker starts."""
    for path in metrics_folder().glob("*"):
        path.unlink(missing_ok=True)


def new_worker_metrics_path() -> Path:
    """Return a file for this worker. A process id may come again: its first owner's counts are not overwritten."""
    return metrics_folder() / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.json"


def write_metrics_file(path: Path, gauges: dict[str, float]) -> None:
    """Write what this process counted and holds; readers see the old figures or the new, never half. Raises OSError."""
    text = json.dumps(meters.snapshot_metrics() | {"pid": os.getpid(), "gauges": gauges})
    fresh = path.with_suffix(f".{threading.get_ident()}.new")
    path.parent.mkdir(mode=0o700, exist_ok=True)
    fresh.write_text(text)
    fresh.replace(path)


def read_all_metrics_files() -> list[Figures]:
    """Return every worker's figures; of workers that have ended without the gauges (`sum_worker_gauge`)."""
    metric_files = []
    for path in sorted(metrics_folder().glob("*.json")):
        with suppress(OSError, ValueError):  # removed while we look
            decoded = json.loads(path.read_text())
            if not is_process_alive(decoded["pid"]):
                decoded["gauges"] = {}
            metric_files.append(decoded)
    return metric_files


def sum_worker_gauge(figures: list[Figures], gauge: str) -> float:
    """Return the sum of what the workers hold."""
    return float(sum(worker["gauges"].get(gauge, 0) for worker in figures))


def is_process_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
