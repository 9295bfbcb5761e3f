"""Whether the data folder has room, and is its owner's alone."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.template.defaultfilters import filesizeformat

from coordinator.doctor import Check, fail, ok, warn

LEAST_ROOM = 200 * 1024 * 1024  # bytes; below it a burst of events may fill the disk
GOOD_ROOM = 2 * 1024 * 1024 * 1024


def examine(database_bytes: int) -> Iterator[Check]:
    """Yield the checks of the folder that SIGNALBOX_DATA_DIR names."""
    yield _room(database_bytes)
    yield _permissions(Path(settings.DATA_DIR))


def _room(database_bytes: int) -> Check:
    usage = shutil.disk_usage(settings.DATA_DIR)
    said = f"{filesizeformat(usage.free)} of {filesizeformat(usage.total)} free".replace("\xa0", " ")
    remedy = "Make room, or prune: python manage.py prune --dry-run"
    if usage.free < LEAST_ROOM:
        return fail("disk", f"Only {said}: events will be refused when it is full.", remedy)
    # A backup, or a table's remake in a migration, needs as much again as the database has.
    if usage.free < max(GOOD_ROOM, database_bytes):
        return warn("disk", f"{said}; a backup here may not fit.", remedy)
    return ok("disk", f"{said} in {settings.DATA_DIR}")


def _permissions(folder: Path) -> Check:
    key = folder / "secret_key"
    if key.exists() and _for_others(key):
        return fail("permissions", f"Others may read {key}, and sign in as anybody.", f"chmod 600 {key}")
    if _for_others(folder):
        return warn("permissions", f"Others on this machine may look into {folder}.", f"chmod 700 {folder}")
    return ok("permissions", "the data folder is its owner's alone")


def _for_others(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
