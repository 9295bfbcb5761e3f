"""Paths as they are written in a call, made absolute: `..` and doubled slashes resolved, links not.

Where a symbolic link leads is known on the agent's machine alone. A path in the user's home folder is written with `~`
where it was written so, since nobody here knows that folder.
"""

from __future__ import annotations

import ntpath
import posixpath
import re

_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")
# Folders of users, as systems have them: the same file may be written with `~` or with one of these.
_HOME = re.compile(r"(?:/home/[^/]+|/Users/[^/]+|/root|/var/root|[A-Za-z]:/Users/[^/]+)(?=/|$)")


def is_windows_path(path: str) -> bool:
    return _DRIVE.match(path) is not None


def join_path(folder: str | None, path: str, is_home: bool = False) -> str | None:
    """Return an absolute path; None where it is relative to a folder that is not known.

    `is_home`: its `~` is the user's home folder, not a file of that name.
    """
    if is_windows_path(path) or (folder is not None and is_windows_path(folder) and not path.startswith("/")):
        joined = ntpath.normpath(ntpath.join(folder or "", path)) if folder or is_windows_path(path) else path
        return joined.replace("\\", "/")
    if path.startswith("/"):
        return normalize_path(path)
    if is_home:
        plain = posixpath.normpath(path)
        return plain if plain == "~" or plain.startswith("~/") else None
    if folder is None:
        return None
    return normalize_path(f"{folder}/{path}")


def normalize_path(path: str) -> str | None:
    """Return a path without `.`, `..` and doubled slashes; None where it climbs out of the home folder."""
    plain = posixpath.normpath(path)
    if path.startswith("~"):
        return plain if plain == "~" or plain.startswith("~/") else None
    return f"/{plain.lstrip('/')}" if plain.startswith("//") else plain


def with_home_as_tilde(path: str) -> str:
    """Return a path with the folder of a user as `~`."""
    return _HOME.sub("~", path, count=1)


def is_in_folder(path: str, folder: str) -> bool:
    """Say whether a path is a folder or lies below it. Both are absolute."""
    if folder == "/":
        return path.startswith("/")
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
