"""Parses the output of `git diff`: the lines of each file, with their signs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dashboard.text.diffs import Marked

BEGINS = "diff --git "
_ESCAPED = re.compile(r"\\([0-7]{3}|.)")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def diff_lines_by_path(diff: str) -> dict[str, list[str]]:
    """Return the lines of each file in a diff by its path, starting at the first `@@`.

    A file that was renamed has its new path.
    """
    lines_by_file: dict[str, list[str]] = {}
    for part in walk_file_diffs(diff.split("\n")):
        head, lines = split_diff_head(part)
        path = find_diff_path(head)
        if path:
            lines_by_file.setdefault(path, []).extend(lines)
    return lines_by_file


def walk_signed_lines(lines: list[str]) -> Iterator[Marked]:
    """Yield the lines of a diff with their signs: ` `, `-`, `+`, or `@` for hunk headers and git's notes."""
    for line in lines:
        if line.startswith("@@"):
            yield "@", line
        elif line[:1] in {"+", "-", " "}:
            yield line[0], line[1:]
        elif line:
            yield "@", line.removeprefix("\\ ")


def walk_file_diffs(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines of each file.

    Content lines have a sign, so they are never taken for the start of a file.
    """
    part: list[str] = []
    for line in lines:
        if line.startswith(BEGINS) and part:
            yield part
            part = []
        part.append(line)
    if part:
        yield part


def split_diff_head(part: list[str]) -> tuple[list[str], list[str]]:
    at = next((number for number, line in enumerate(part) if line.startswith("@@")), len(part))
    return part[:at], part[at:]


def find_diff_path(head: list[str]) -> str:
    """Return the path that the head of a file's diff names, or "" if it cannot be determined."""
    paths_by_mark: dict[str, str] = {}
    for line in head[1:]:
        for word in ("+++ ", "--- ", "rename to ", "copy to "):
            if line.startswith(word):
                paths_by_mark.setdefault(word, unquote_git_path(line.removeprefix(word)))
    for word in ("rename to ", "copy to "):
        if word in paths_by_mark:
            return paths_by_mark[word]
    for word in ("+++ ", "--- "):
        if paths_by_mark.get(word, "/dev/null") != "/dev/null":
            return paths_by_mark[word][2:]
    return (
        repeated_diff_path_or_empty(head[0].removeprefix(BEGINS))
        if head and head[0].startswith(BEGINS)
        else ""
    )


def repeated_diff_path_or_empty(text: str) -> str:
    """Return the path in `a/PATH b/PATH`."""
    before, after = text[: len(text) // 2], text[len(text) // 2 + 1 :]
    before, after = unquote_git_path(before), unquote_git_path(after)
    return after[2:] if before[2:] == after[2:] else ""


def unquote_git_path(path: str) -> str:
    """Return a path without git's quotes. A path with spaces is unquoted and ends at a tab."""
    if not (path.startswith('"') and path.endswith('"') and len(path) > 1):
        return path.partition("\t")[0]
    unescaped = _ESCAPED.sub(
        lambda sign: chr(int(sign[1], 8)) if len(sign[1]) == 3 else _LETTERS.get(sign[1], sign[1]), path[1:-1]
    )
    try:
        return unescaped.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return unescaped
