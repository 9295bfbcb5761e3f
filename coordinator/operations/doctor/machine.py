"""Whether the data folder has room and is private, and whether decoders of foreign content are confined."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from coordinator.lib import private_files, sizes
from coordinator.operations.doctor import Check, fail, ok, shared_user, warn
from coordinator.sandbox import system_calls

LEAST_ROOM = 200 * 1024 * 1024  # bytes; below it a burst of events may fill the disk
GOOD_ROOM = 2 * 1024 * 1024 * 1024


def examine(database_bytes: int) -> Iterator[Check]:
    """Yield the checks of the folder that SIGNALBOX_DATA_DIR names."""
    yield _room(database_bytes)
    yield _permissions(Path(settings.DATA_DIR))
    yield agents_apart()
    yield _program()
    yield _sandbox()


def _room(database_bytes: int) -> Check:
    usage = shutil.disk_usage(settings.DATA_DIR)
    said = f"{sizes.in_words(usage.free)} of {sizes.in_words(usage.total)} free"
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
        return fail(
            "permissions", f"Other users can read {key}, and with it forge what it signs.", f"chmod 600 {key}"
        )
    if _for_others(folder):
        return warn("permissions", f"Other users can look into {folder}.", f"chmod 700 {folder}")
    return ok("permissions", "only its owner can open the data folder")


def agents_apart() -> Check:
    """Say whether agents can be expected to work as the user that runs Signalbox."""
    uid = Path(settings.DATA_DIR).stat().st_uid
    if found := shared_user.problem(uid):
        return warn("agents", found, shared_user.REMEDY)
    return ok(
        "agents", f"no sign that agents run as {private_files.name_of(uid)}, the user that runs Signalbox"
    )


def _program() -> Check:
    """Say whether somebody else can change the code that runs: they would have all that it has."""
    uid = Path(settings.DATA_DIR).stat().st_uid
    for place in (private_files.CODE, *private_files.CODE.parents):
        owner = place.stat().st_uid
        why = (
            f"belongs to {private_files.name_of(owner)}"
            if owner not in {0, uid}
            else private_files.changeable(place)
        )
        if why:
            return warn(
                "program",
                f"Others can change Signalbox's program: {place} {why}.",
                f"chown -R root {private_files.CODE}, and chmod go-w what is above it.",
            )
    return ok("program", "nobody else can change the program")


def _sandbox() -> Check:
    """Say whether code that breaks out of a decoder is kept from files, the network and other processes."""
    if system_calls.available():
        return ok("sandbox", "the decoders of foreign content cannot open files or connections (seccomp)")
    return warn(
        "sandbox",
        "This system cannot block system calls: only resource limits protect the decoders of foreign content.",
        "Run Signalbox on 64-bit Linux (x86-64 or ARM) with seccomp.",
    )


def _for_others(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
