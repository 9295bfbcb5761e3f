"""Paths as they are written in a call, made absolute: `..` and doubled slashes resolved, links not.

Where a symbolic link leads is known on the agent's machine alone: `signalbox hook` reports it (`PathLinks`). A path in
the user's home folder is written with `~` where it was written so, since nobody here knows that folder.
"""

from __future__ import annotations

import ntpath
import posixpath
import re
from dataclasses import dataclass
from typing import Any

_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")
# Folders of users, as systems have them: the same file may be written with `~` or with one of these.
_HOME = re.compile(r"(?:/home/[^/]+|/Users/[^/]+|/root|/var/root|[A-Za-z]:/Users/[^/]+)(?=/|$)")


def is_windows_path(path: str) -> bool:
    return _DRIVE.match(path) is not None


def resolve_absolute_path(folder: str | None, path: str, is_home: bool = False) -> str | None:
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


def replace_home_with_tilde(path: str) -> str:
    """Return a path with the folder of a user as `~`."""
    return _HOME.sub("~", path, count=1)


# Folders that hold everybody's files, or many projects: none of them is the project of an agent.
_WIDE_FOLDERS = frozenset(
    """
    / ~ /home /Users /etc /usr /usr/local /var /tmp /opt /srv /mnt /media /bin /sbin /lib /boot /dev /proc /sys /run
    /private /private/tmp /private/etc /private/var /Volumes /Library /System /Applications
    """.split()  # noqa: SIM905 - one word of a list a word of the text
)
_DRIVE_ROOT = re.compile(r"[A-Za-z]:[\\/]*(Users|Windows|Program Files)?[\\/]*", re.IGNORECASE)


def is_home_or_system_folder(path: str) -> bool:
    """Say whether a folder is the home folder of a user, or one that holds many of them or the system."""
    plain = replace_home_with_tilde(path.rstrip("/") or "/")
    return plain in _WIDE_FOLDERS or _DRIVE_ROOT.fullmatch(path) is not None


def is_in_folder(path: str, folder: str) -> bool:
    """Say whether a path is a folder or is below it. Both are absolute."""
    if folder == "/":
        return path.startswith("/")
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


MAX_LINKS = 100
LONGEST_PATH = 4096  # characters


@dataclass(frozen=True, slots=True)
class PathLinks:
    """The symbolic links on the way to a call's paths, as `signalbox hook` found them (client.real_paths).

    pairs: each link, absolute, and the real path behind it; the longest links first.
    is_complete: whether all words of the call were looked at.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    is_complete: bool = True

    def real_path(self, path: str) -> str:
        """Return the path behind an absolute path, or one that begins with `~`."""
        for link, real in self.pairs:
            folder = replace_home_with_tilde(link) if path.startswith("~") else link
            if is_in_folder(path, folder):
                return f"{real.rstrip('/')}{path[len(folder.rstrip('/')) :]}" or "/"
        return path


def parse_reported_symlinks_or_none(value: Any) -> PathLinks | None:
    """Return the links that a hook names; None where it names none. What cannot be read makes them incomplete."""
    if value is None:
        return None
    links = value.get("links") if isinstance(value, dict) else None
    if not isinstance(links, list):
        return PathLinks(is_complete=False)
    pairs = [
        tuple(pair) for pair in links[:MAX_LINKS] if isinstance(pair, list) and is_link_target_pair(pair)
    ]
    is_complete = value.get("complete") is True and len(pairs) == len(links)
    return PathLinks(tuple(sorted(pairs, key=lambda pair: -len(pair[0]))), is_complete)


def is_link_target_pair(pair: list[Any]) -> bool:
    """Say whether both, a link and its real path, are absolute paths without `..`."""
    return len(pair) == 2 and all(
        isinstance(path, str)
        and len(path) <= LONGEST_PATH
        and (path.startswith("/") or is_windows_path(path))
        and (path == normalize_path(path) or is_windows_path(path))
        for path in pair
    )
