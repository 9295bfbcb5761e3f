"""Files that an agent reads and writes through the runner, in the directories that it is allowed."""

from __future__ import annotations

import io
import os
import stat
from typing import Any

from coordinator.runner.directories import AllowedDirectories
from coordinator.runner.errors import FileMissing, RunnerRefused

LARGEST = 10 << 20  # bytes


def read_text_file(directories: AllowedDirectories, params: dict[str, Any]) -> dict[str, str]:
    """Answer fs/read_text_file: `line` counts from 1, `limit` is a number of lines.

    Raises RunnerRefused, FileMissing.
    """
    path = directories.resolve_allowed_file(params.get("path"))
    line, limit = params.get("line"), params.get("limit")
    try:
        # A pipe or a device must not be waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RunnerRefused(f"{path} is not a file")
            content = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise FileMissing(f"{path} does not exist") from None
    except OSError as problem:
        raise RunnerRefused(f"{path} cannot be read: {problem.strerror}") from None
    if len(content) > LARGEST:
        raise RunnerRefused(f"{path} is larger than {LARGEST >> 20} MB")
    text = content.decode("utf-8", "replace")
    if isinstance(line, int) or isinstance(limit, int):
        first = max(1, line) - 1 if isinstance(line, int) else 0
        last = first + max(0, limit) if isinstance(limit, int) else None
        # Lines as editors count them: str.splitlines would also split at form feeds and the like.
        text = "".join(io.StringIO(text, newline="").readlines()[first:last])
    return {"content": text}


def write_text_file(directories: AllowedDirectories, params: dict[str, Any]) -> dict[str, Any]:
    """Answer fs/write_text_file; folders on the way are made. Raises RunnerRefused."""
    path = directories.resolve_allowed_file(params.get("path"))
    content = params.get("content")
    if not isinstance(content, str):
        raise RunnerRefused("content must be a string")
    data = content.encode("utf-8", "surrogatepass")
    if len(data) > LARGEST:
        raise RunnerRefused(f"The content is larger than {LARGEST >> 20} MB")
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(os.open(path, flags, 0o666), "wb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RunnerRefused(f"{path} is not a file")
            file.truncate(0)
            file.write(data)
    except OSError as problem:
        raise RunnerRefused(f"{path} cannot be written: {problem.strerror}") from None
    return {}
