"""The state of a directory in a git work tree as a tree object, without a trace in its repository.

Trees and new blobs are written to a repository of the runner's own, which borrows the objects of the real one. The
real one's settings, hooks, filters and index are not used: of its index a copy is read, which knows most of the files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import zlib
from dataclasses import dataclass

from coordinator.runner.git import GitFailed, run_git

MOST_INDEX = 128 * 1024 * 1024  # bytes
MOST_OF_A_FILE = 2 * 1024 * 1024  # bytes; of a larger one it is only seen that it changed
MOST_READ = 64 * 1024 * 1024  # bytes of all files in a snapshot
MOST_FILES = 20_000  # files that git does not know as they are
MOST_EXCLUDES = 1024 * 1024
FILE, PROGRAM, LINK = "100644", "100755", "120000"


@dataclass(frozen=True, slots=True)
class GitWorkTree:
    """A directory in a git work tree, and where its repository keeps what it knows."""

    directory: str
    top: str
    objects: str
    index: str
    excludes: str
    format: str

    @classmethod
    def require_work_tree_of_directory(cls, directory: str) -> GitWorkTree:
        """Return the place. Raises GitFailed where it is in no work tree, or git refuses it."""
        tree_output = run_git(
            "rev-parse",
            "--path-format=absolute",
            "--show-toplevel",
            "--git-path",
            "objects",
            "--git-path",
            "index",
            "--git-path",
            "info/exclude",
            "--show-object-format",
            directory=directory,
        ).decoded_git_output.split("\n")
        if len(tree_output) != 5:
            raise GitFailed("the work tree's path has a line break in it")
        return cls(directory, *tree_output)


class ShadowRepository:
    """A repository for the snapshots of one place, in a folder of the runner's own. Blocks: call it in a thread."""

    def __init__(self, work_tree: GitWorkTree, folder: str) -> None:
        """Raises OSError."""
        self._work_tree = work_tree
        self._folder = folder
        self._index = os.path.join(folder, "index")
        self._variables = {
            "GIT_DIR": folder,
            "GIT_WORK_TREE": work_tree.top,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        os.makedirs(os.path.join(folder, "objects", "info"), mode=0o700, exist_ok=True)
        for name in ("refs", "info"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        is_sha1 = work_tree.format == "sha1"
        extension = "" if is_sha1 else f"[extensions]\n\tobjectFormat = {work_tree.format}\n"
        self._write_repository_file("HEAD", "ref: refs/heads/none\n")
        self._write_repository_file(
            "config", f"[core]\n\trepositoryformatversion = {int(not is_sha1)}\n{extension}"
        )
        self._write_repository_file("objects/info/alternates", f"{work_tree.objects}\n")
        self._left = 0

    def _write_repository_file(self, name: str, text: str) -> None:
        with open(os.path.join(self._folder, name), "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)

    def run_git_in_shadow_repository(
        self, *words: str, input_bytes: bytes = b"", most: int | None = None
    ) -> bytes:
        """Run git on this repository and the place's files; return its answer. Raises GitFailed."""
        return self.run_git_returning_truncation(*words, input_bytes=input_bytes, most=most)[0]

    def run_git_returning_truncation(
        self, *words: str, input_bytes: bytes = b"", most: int | None = None
    ) -> tuple[bytes, bool]:
        """As `run_git`, and say whether the answer was cut."""
        more = {} if most is None else {"most": most}
        settings = ("-c", "core.quotePath=false", "-c", "core.untrackedCache=false")
        answer = run_git(
            *words,
            directory=self._work_tree.directory,
            input_bytes=input_bytes,
            variables=self._variables,
            settings=settings,
            **more,
        )
        return answer.output, answer.cut

    def write_directory_snapshot_tree(self) -> str:
        """Return the name of the tree with the present files. Raises GitFailed and OSError."""
        self._copy_git_index_and_excludes()
        deleted_paths, other, cut = self.list_deleted_and_changed_files()
        if cut or len(other) > MOST_FILES:
            raise GitFailed("there are too many files that git does not know to compare them")
        prefix = os.path.relpath(self._work_tree.directory, self._work_tree.top)
        inside = b"" if prefix == "." else os.fsencode(prefix) + b"/"
        self._left = MOST_READ
        zero = b"0" * (40 if self._work_tree.format == "sha1" else 64)
        lines = [b"0 %b\t%b%b" % (zero, inside, path) for path in deleted_paths]
        for path in other:
            if index_entry := self._store_blob_and_build_index_entry(path):
                lines.append(
                    b"%b %b\t%b%b" % (*(entry_text.encode() for entry_text in index_entry), inside, path)
                )
        if lines:
            self.run_git_in_shadow_repository(
                "update-index", "-z", "--index-info", input_bytes=b"\0".join(lines) + b"\0"
            )
        return self.run_git_in_shadow_repository("write-tree", "--missing-ok").decode().strip()

    def _copy_git_index_and_excludes(self) -> None:
        """Start with a copy of the work tree's index, as old as it, and with what it excludes."""
        with open(os.path.join(self._folder, "info", "exclude"), "wb") as own_file:
            for path in (git_excludes_path_or_empty(self._work_tree.top), self._work_tree.excludes):
                if path and os.path.isfile(path):
                    with open(path, "rb") as user_file:
                        own_file.write(user_file.read(MOST_EXCLUDES) + b"\n")
        for stale_file in (self._index, f"{self._index}.lock"):
            if os.path.exists(stale_file):
                os.remove(stale_file)
        if os.path.isfile(self._work_tree.index):
            if os.path.getsize(self._work_tree.index) > MOST_INDEX:
                raise GitFailed("the work tree's index is too large")
            shutil.copy2(
                self._work_tree.index, self._index
            )  # git decides by its age which entries it may trust

    def list_deleted_and_changed_files(self) -> tuple[list[bytes], list[bytes], bool]:
        """Return the files that are gone, those that are not as the index has them, and whether there are more."""
        status_output, cut = self.run_git_returning_truncation(
            "ls-files",
            "-z",
            "-t",
            "-v",
            "--cached",
            "--modified",
            "--deleted",
            "--others",
            "--exclude-standard",
        )
        deleted_paths, other = set(), set()
        for line in status_output.split(b"\0"):
            tag, path = line[:1], line[2:]
            if tag == b"R":
                deleted_paths.add(path)
            elif tag and tag != b"H" and not path.endswith(b"/"):  # a folder is a repository of its own
                other.add(path)
        return sorted(deleted_paths), sorted(other - deleted_paths), cut

    def _store_blob_and_build_index_entry(self, path: bytes) -> tuple[str, str] | None:
        """Return a file's mode and the name of its blob, None for what git keeps no content of."""
        full_path = os.path.join(os.fsencode(self._work_tree.directory), path)
        try:
            file_status = os.lstat(full_path)
            if stat.S_ISLNK(file_status.st_mode):
                return LINK, self._store_git_blob(os.readlink(full_path))
            if not stat.S_ISREG(file_status.st_mode):
                return None
            mode = PROGRAM if file_status.st_mode & stat.S_IXUSR else FILE
            return mode, self._store_git_blob(self._read_content_or_size_marker(full_path, file_status))
        except FileNotFoundError:
            return None
        except OSError as problem:
            return FILE, self._store_git_blob(b"\0cannot be read: %b" % str(problem.errno).encode())

    def _read_content_or_size_marker(self, path: bytes, file_status: os.stat_result) -> bytes:
        """Return a file's content; of what is too large, what changes when it changes."""
        if file_status.st_size <= min(MOST_OF_A_FILE, self._left):
            # Should it have become a pipe since, nobody waits for it.
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                content = file.read(MOST_OF_A_FILE + 1)
            if len(content) <= MOST_OF_A_FILE:
                self._left -= len(content)
                return content
        return b"\0too large to compare: %d bytes at %d" % (file_status.st_size, file_status.st_mtime_ns)

    def _store_git_blob(self, content: bytes) -> str:
        """Keep a content as git does, and return its name."""
        blob = b"blob %d\0%b" % (len(content), content)
        name = hashlib.new(self._work_tree.format, blob, usedforsecurity=False).hexdigest()
        folder = os.path.join(self._folder, "objects", name[:2])
        path = os.path.join(folder, name[2:])
        if not os.path.exists(path):
            os.makedirs(folder, exist_ok=True)
            aside = f"{path}.new"
            with open(aside, "wb") as file:
                file.write(zlib.compress(blob, 1))
            os.replace(aside, path)
        return name


def git_excludes_path_or_empty(directory: str) -> str:
    """Return the file in which the runner's user names what no repository shall see; "" where there is none."""
    try:
        git_output = run_git(
            "config", "--global", "--path", "core.excludesFile", directory=directory
        ).decoded_git_output
    except GitFailed:
        return ""
    return git_output
