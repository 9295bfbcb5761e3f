"""Which files a call's input names: by the names that tools give their arguments, and in patches."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from coordinator.search.text import unescape_cut_json

READ_UP_TO = 100_000  # characters of an input; of a longer one the beginning is read, where paths stand
MOST_PATHS = 50  # of one call
LONGEST = 1_000
# Claude Code (file_path, notebook_path), the MCP filesystem server (path, paths, source, destination), and others.
NAMES = (
    "file_path", "notebook_path", "path", "paths", "filename", "target_file", "filePath", "absolute_path",
    "source_path", "destination_path",
)  # fmt: skip
_PATCHES = ("patch", "input", "diff", "command")
_IN_PATCH = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_IN_CUT = re.compile(rf'"(?:{"|".join(NAMES)})"\s*:\s*"((?:[^"\\]|\\.){{1,{LONGEST}}})"')
_CUT_LOOKED_AT = 2_000


def extract_paths_from_stored_input(stored: str | None, directory: str | None) -> list[str]:
    """Return the paths that a stored input names; relative ones are taken from the session's directory."""
    if not stored:
        return []
    try:
        decoded = json.loads(stored)
    except (ValueError, RecursionError):
        text = unescape_cut_json(stored)
        cut_paths = [unescape_cut_json(path) for path in _IN_CUT.findall(stored[:_CUT_LOOKED_AT])[:1]]
        return normalize_paths_in_directory([*cut_paths, *_IN_PATCH.findall(text)], directory)
    return normalize_paths_in_directory(iterate_paths_in_tool_input(decoded), directory)


def iterate_paths_in_tool_input(tool_input: Any) -> Iterator[str]:
    if isinstance(tool_input, str):
        yield from _IN_PATCH.findall(tool_input)
    if not isinstance(tool_input, dict):
        return
    for name in NAMES:
        values = tool_input.get(name)
        yield from (
            value for value in (values if isinstance(values, list) else [values]) if isinstance(value, str)
        )
    for name in _PATCHES:
        values = tool_input.get(name)
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, str):
                yield from _IN_PATCH.findall(value)


def normalize_paths_in_directory(named: Any, directory: str | None) -> list[str]:
    paths = dict.fromkeys(
        make_path_absolute_if_possible(path.strip(), directory)
        for path in named
        if looks_like_path(path.strip())
    )
    return list(paths)[:MOST_PATHS]


def looks_like_path(text: str) -> bool:
    return (
        0 < len(text) <= LONGEST and text.isprintable() and "://" not in text and text not in (".", "..", "/")
    )


def make_path_absolute_if_possible(path: str, directory: str | None) -> str:
    is_relative = not path.startswith(("/", "~", "\\", "$")) and path[1:2] != ":"
    if is_relative and directory and directory.startswith("/") and directory.isprintable():
        return posixpath.normpath(posixpath.join(directory, path))
    return path
