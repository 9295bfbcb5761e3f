"""The directories in which agents may work: those that the runner is allowed, with every symlink resolved."""

from __future__ import annotations

import os
from collections.abc import Iterable

from coordinator.runner.errors import RunnerRefused


class AllowedDirectories:
    """The allowed directories; a work tree that the runner made for a session is one more, for that session.

    `private` are files and folders in them that agents are not given through us: keys, and what is Signalbox's own.
    """

    def __init__(self, directories: Iterable[str], private: Iterable[str] = ()) -> None:
        self._directories = tuple(os.path.realpath(directory) for directory in directories)
        self._private = tuple(os.path.realpath(private_path) for private_path in private)

    @property
    def default_allowed_directory(self) -> str:
        return self._directories[0]

    def with_additional_allowed_directory(self, directory: str) -> AllowedDirectories:
        """Return the places and one directory more."""
        return AllowedDirectories((*self._directories, directory), self._private)

    def resolve_allowed_directory(self, named: str | None) -> str:
        """Return the real path of a directory to work in; none named: the first. Raises RunnerRefused."""
        if not named:
            return self.default_allowed_directory
        path = os.path.realpath(os.path.expanduser(named))
        if not self.is_path_allowed(path):
            raise RunnerRefused(
                f"{named} is not in a directory that this runner is allowed ({', '.join(self._directories)})."
                " Choose one of those, or start the runner with --directory."
            )
        if not os.path.isdir(path):
            raise RunnerRefused(f"{named} is not a directory on this machine.")
        return path

    def resolve_allowed_file(self, named: object) -> str:
        """Return the real path of a file that an agent reads or writes through us. Raises RunnerRefused."""
        if not isinstance(named, str) or not os.path.isabs(named) or "\0" in named:
            raise RunnerRefused("The path must be absolute.")
        path = os.path.realpath(named)
        if not self.is_path_allowed(path):
            raise RunnerRefused(f"{named} is not in a directory that this runner is allowed.")
        return path

    def is_path_allowed(self, path: str) -> bool:
        """The innermost folder around a path decides: a work tree is in the runner's own folder."""
        return innermost_folder_length(path, self._directories) > innermost_folder_length(path, self._private)


def innermost_folder_length(path: str, folders: Iterable[str]) -> int:
    """Return the length of the longest of the folders that holds a path, 0 where none does."""
    return max((len(folder) for folder in folders if is_inside_folder(folder, path)), default=0)


def is_inside_folder(folder: str, path: str) -> bool:
    """Say whether a path is a folder or is below it; both are real paths."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
