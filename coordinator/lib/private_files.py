"""Folders and files that only this process's user may access: created so, repaired if they are ours, else refused.

A user who reads the database or the secret key can sign in as anybody, and one who writes in a folder above can put
their own in its place. So a folder's whole path is checked: each folder on it may be changed by root, by us, or by
the owner of the program's own code (who controls us anyway).
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from coordinator.lib.installation import CODE

FOLDER, FILE = 0o700, 0o600
OTHERS = 0o077


class PathNotPrivate(Exception):
    """Somebody else could read or replace it, and we cannot change that. The text says what to do."""


def ensure_private_folder(path: Path) -> None:
    """Make the folder, or take every right to it from others. Raises PathNotPrivate, OSError."""
    path.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    require_path_owned_by_user(path.resolve())
    require_unreplaceable_path(path)
    revoke_permissions_of_others(path.resolve(), FOLDER)


def make_file_private(path: Path) -> None:
    """Take every right to a file from others; nothing where it is not there. Raises PathNotPrivate, OSError."""
    if path.is_symlink():
        require_unreplaceable_path(path)
    if path.exists():
        revoke_permissions_of_others(path.resolve(), FILE)


def make_tree_private(path: Path) -> None:
    """Close everything below a folder, and the folder last: one that is closed already is skipped."""
    if not path.is_dir() or not stat.S_IMODE(path.stat().st_mode) & OTHERS:
        return
    for base, _folders, files in os.walk(path, topdown=False):
        for name in files:
            make_file_private(Path(base, name))
        revoke_permissions_of_others(Path(base).resolve(), FOLDER)


def revoke_permissions_of_others(path: Path, mode: int) -> None:
    """Set `mode` on what others have a right to. Raises PathNotPrivate."""
    require_path_owned_by_user(path)
    if not path.stat().st_mode & OTHERS:
        return
    path.chmod(mode)
    if path.stat().st_mode & OTHERS:
        raise PathNotPrivate(
            f"Other users can access {path}, and its file system has no permissions. Choose a folder on another disk."
        )


def require_path_owned_by_user(path: Path) -> None:
    owner = path.stat().st_uid
    if owner != os.geteuid():
        name = os_user_name_or_number(owner)
        raise PathNotPrivate(
            f"{path} belongs to {name}, and this process runs as {os_user_name_or_number(os.geteuid())}. "
            f"Run it as {name}, or give the whole folder to the user that runs Signalbox (chown -R)."
        )


def require_unreplaceable_path(path: Path) -> None:
    """Raise PathNotPrivate where somebody else could put another file or folder in the place of `path`."""
    absolute = path.absolute()
    ways = dict.fromkeys((*absolute.parents, *absolute.resolve().parents))
    for above in ways:
        if not (CODE.is_relative_to(above) and not above.is_symlink()) and (
            folder_problem := find_folder_permission_problem(above)
        ):
            raise PathNotPrivate(
                f"Others could replace {path}: {above} {folder_problem}. {suggest_folder_permission_fix(above)}"
            )
    for folder in (absolute, *absolute.parents):
        if folder.is_symlink() and folder.lstat().st_uid not in trusted_os_user_ids():
            raise PathNotPrivate(
                f"{folder} is a link that {os_user_name_or_number(folder.lstat().st_uid)} made. Remove it."
            )


def close_parent_folder_to_others(path: Path) -> None:
    """Raise PathNotPrivate where somebody else could replace `path`, or put a file next to it: SQLite trusts its own.

    A folder of ours that others may write to is closed.
    """
    folder = path.resolve().parent
    status = folder.stat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        folder.chmod(stat.S_IMODE(status.st_mode) & ~0o022)
    elif status.st_mode & stat.S_ISVTX and status.st_mode & 0o022:
        raise PathNotPrivate(f"Everybody can write to {folder}. Choose a folder of your own.")
    require_unreplaceable_path(path)


def find_folder_permission_problem(above: Path) -> str | None:
    """Return why others can replace files in a folder, as in `/srv is writable for everybody`, or None."""
    status = above.stat()
    if status.st_uid not in trusted_os_user_ids():
        return f"belongs to {os_user_name_or_number(status.st_uid)}"
    if status.st_mode & stat.S_ISVTX:  # as in /tmp, each may replace their own alone
        return None
    if status.st_mode & stat.S_IWOTH:
        return "is writable for everybody"
    if status.st_mode & stat.S_IWGRP and (
        other_user_ids := list_group_user_ids(status.st_gid) - {os.geteuid(), 0}
    ):
        return f"is writable for {os_user_name_or_number(min(other_user_ids))}, by its group"
    return None


def suggest_folder_permission_fix(above: Path) -> str:
    if above.stat().st_uid in {os.geteuid(), 0}:
        return f"Run `chmod go-w {above}`, or choose another folder."
    return "Choose a folder inside one that belongs to root or to you."


def list_group_user_ids(gid: int) -> set[int]:
    """Return the ids of the users in a group, as their own group or as one more."""
    uids = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == gid}
    try:
        names = grp.getgrgid(gid).gr_mem
    except KeyError:
        return uids
    for name in names:
        try:
            uids.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            continue
    return uids


def trusted_os_user_ids() -> set[int]:
    trusted = {0, os.geteuid(), CODE.stat().st_uid}
    return trusted | {unmapped_root_uid()} - {-1}


def unmapped_root_uid() -> int:
    """Return the user id that the host's root has in a rootless container; -1 outside of one."""
    try:
        maps_whole_range = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
        return -1 if maps_whole_range else int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return -1


def os_user_name_or_number(uid: int) -> str:
    """Return a user's name, or their number where they have none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
