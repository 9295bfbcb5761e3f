"""Files of agents' settings: read with what must be kept of them, and written whole or not at all."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass

from coordinator.client.settings import make_private_folder

LARGEST = 4 << 20
WRITABLE = 0o222


class FileRefused(Exception):
    """A file is left as it is; the text says which and why."""


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """A file as it was found: `content` is None where there is none. `target` is its path with links followed."""

    path: str
    target: str
    content: bytes | None
    mode: int = 0o600

    @property
    def decoded_text(self) -> str:
        """The content as text, a byte order mark kept. Raises FileRefused where it is not UTF-8."""
        try:
            return (self.content or b"").decode("utf-8")
        except UnicodeDecodeError:
            raise FileRefused(f"{self.path} is not UTF-8. Nothing was changed.") from None


def read_file_snapshot(path: str) -> FileSnapshot:
    """Return the file. Raises FileRefused where it is something else than a readable file of a settings file's size."""
    target = os.path.realpath(path)
    try:
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return FileSnapshot(path, target, None)
    except OSError as problem:
        raise FileRefused(f"{path} cannot be read: {problem.strerror}.") from None
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        raise FileRefused(f"{path} is not a file.")
    with open(descriptor, "rb") as file:
        if about.st_size > LARGEST:
            raise FileRefused(f"{path} is larger than {LARGEST >> 20} MB.")
        return FileSnapshot(path, target, file.read(LARGEST + 1), stat.S_IMODE(about.st_mode))


def key_write_problem_or_empty(path: str, home: str) -> str:
    """Return why no key may be written to the file, "" where one may.

    A file reached by a link, or in a git repository, is stored and shown elsewhere too: a key would go with it.
    """
    base = home if path.startswith(home + os.sep) else os.path.dirname(path)
    plain = os.path.join(os.path.realpath(base), os.path.relpath(path, base))
    target = os.path.realpath(path)
    if target != plain:
        return f"a link leads to {target}, so the key is not written there"
    repository = find_git_repository(target)
    return (
        f"it lies in the git repository {repository}, so the key is not written there" if repository else ""
    )


def find_git_repository(path: str) -> str | None:
    """Return the folder of the git repository that a file is in; None where it is in none."""
    folder = os.path.dirname(os.path.realpath(path))
    while not os.path.lexists(os.path.join(folder, ".git")):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return None
    return folder


def require_replaceable_file(snapshot: FileSnapshot) -> None:
    """Raise FileRefused where the file or its folder may not be written, or is not ours to replace."""
    if snapshot.content is None:
        folder = nearest_existing_folder(os.path.dirname(snapshot.target))
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
            raise FileRefused(f"{snapshot.path} cannot be created: you may not write to {folder}.")
        return
    about = os.stat(snapshot.target)
    if not snapshot.mode & WRITABLE or not os.access(snapshot.target, os.W_OK):
        raise FileRefused(f"{snapshot.path} is read-only. Make it writable, then try again.")
    if about.st_uid != os.geteuid():
        raise FileRefused(f"{snapshot.path} belongs to another user. Run this as that user.")
    if about.st_nlink > 1:
        raise FileRefused(f"{snapshot.path} has several hard links, which a safe replacement would break.")
    if not os.access(os.path.dirname(snapshot.target), os.W_OK | os.X_OK):
        raise FileRefused(f"{snapshot.path} cannot be replaced: you may not write to its folder.")


def write_or_delete_unchanged_file(
    snapshot: FileSnapshot, content: bytes | None, mode: int | None = None
) -> list[str]:
    """Write the file, or delete it (None), if it still is as it was found. Return the folders that were made.

    It keeps its mode unless there is another to set.

    Raises FileRefused where it has changed meanwhile, and OSError.
    """
    mode = snapshot.mode if mode is None else mode
    if read_file_snapshot(snapshot.path).content != snapshot.content:
        raise FileRefused(f"{snapshot.path} has changed meanwhile. Try again.")
    if content is None:
        with suppress(FileNotFoundError):
            os.unlink(snapshot.target)
        return []
    folder = os.path.dirname(snapshot.target)
    missing_folders = list_missing_folders(folder)
    make_private_folder(folder)
    aside = os.path.join(folder, f".{os.path.basename(snapshot.target)}.signalbox-{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(aside, snapshot.target)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise
    return missing_folders


def remove_empty_folders(folders: list[str]) -> None:
    """Remove those of these folders that are empty, the innermost first."""
    for folder in sorted(folders, key=len, reverse=True):
        with suppress(OSError):
            os.rmdir(folder)


def list_missing_folders(folder: str) -> list[str]:
    missing = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def nearest_existing_folder(folder: str) -> str:
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return folder
