"""Checks that the data folder has room and is private, and that decoders of foreign content are confined."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from coordinator.lib import installation, private_files, sizes
from coordinator.operations.doctor import CheckResult, failed_check, passed_check, shared_user, warning_check
from coordinator.sandbox import system_calls

LEAST_ROOM = 200 * 1024 * 1024  # bytes; below it a burst of events may fill the disk
GOOD_ROOM = 2 * 1024 * 1024 * 1024


def check_data_folder_and_isolation(database_bytes: int) -> Iterator[CheckResult]:
    """Yield the checks of the folder that SIGNALBOX_DATA_DIR names."""
    yield check_disk_space(database_bytes)
    yield check_folder_permissions(Path(settings.DATA_DIR))
    yield check_agents_use_another_user()
    yield check_code_not_writable_by_others()
    yield check_decoder_sandbox()


def check_disk_space(database_bytes: int) -> CheckResult:
    usage = shutil.disk_usage(settings.DATA_DIR)
    space_text = f"{sizes.format_byte_count(usage.free)} of {sizes.format_byte_count(usage.total)} free"
    remedy = "Make room, or prune: signalbox manage prune --dry-run"
    if usage.free < LEAST_ROOM:
        return failed_check("disk", f"Only {space_text}: events will be refused when it is full.", remedy)
    # A backup, or a table's remake in a migration, needs as much again as the database has.
    if usage.free < max(GOOD_ROOM, database_bytes):
        return warning_check("disk", f"{space_text}; a backup here may not fit.", remedy)
    return passed_check("disk", f"{space_text} in {settings.DATA_DIR}")


def check_folder_permissions(folder: Path) -> CheckResult:
    key = folder / "secret_key"
    if key.exists() and is_accessible_to_others(key):
        return failed_check(
            "permissions", f"Other users can read {key}, and with it forge what it signs.", f"chmod 600 {key}"
        )
    if is_accessible_to_others(folder):
        return warning_check("permissions", f"Other users can look into {folder}.", f"chmod 700 {folder}")
    return passed_check("permissions", "only its owner can open the data folder")


def check_agents_use_another_user() -> CheckResult:
    """Say whether agents can be expected to work as the user that runs Signalbox."""
    uid = Path(settings.DATA_DIR).stat().st_uid
    if shared_user_problem := shared_user.find_shared_user_problem(uid):
        return warning_check("agents", shared_user_problem, shared_user.REMEDY)
    return passed_check(
        "agents",
        f"no sign that agents run as {private_files.os_user_name_or_number(uid)}, the user that runs Signalbox",
    )


def check_code_not_writable_by_others() -> CheckResult:
    """Say whether somebody else can change the code that runs: they would have all that it has."""
    uid = Path(settings.DATA_DIR).stat().st_uid
    for folder in (installation.CODE, *installation.CODE.parents):
        owner = folder.stat().st_uid
        folder_problem = (
            f"belongs to {private_files.os_user_name_or_number(owner)}"
            if owner not in {0, uid}
            else private_files.find_folder_permission_problem(folder)
        )
        if folder_problem:
            return warning_check(
                "program",
                f"Others can change Signalbox's program: {folder} {folder_problem}.",
                f"chown -R root {installation.CODE}, and chmod go-w what is above it.",
            )
    return passed_check("program", "nobody else can change the program")


def check_decoder_sandbox() -> CheckResult:
    """Say whether code that breaks out of a decoder is kept from files, the network and other processes."""
    if system_calls.is_seccomp_available():
        return passed_check(
            "sandbox", "the decoders of foreign content cannot open files or connections (seccomp)"
        )
    return warning_check(
        "sandbox",
        "This system cannot block system calls: only resource limits protect the decoders of foreign content.",
        "Run Signalbox on 64-bit Linux (x86-64 or ARM) with seccomp.",
    )


def is_accessible_to_others(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
