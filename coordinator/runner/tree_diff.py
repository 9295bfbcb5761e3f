"""Differences between two trees of a shadow repository: the files with their counts, and the diff, both bounded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coordinator.runner.git import GitFailed
from coordinator.runner.snapshots import ShadowRepository

MOST_FILES = 2_000
MOST_DIFF = 512 * 1024  # bytes
LONG = 4_000  # lines: a file in which more changed is left out of the diff where there are others
MOST_LEFT_OUT = 100
HOW = (
    "-r",
    "--relative",
    "-M",
    "-l400",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--ignore-submodules=all",
)
ALIKE = ("--ignore-cr-at-eol",)  # a checkout may have other line ends than its repository


@dataclass(frozen=True, slots=True)
class TreeDifference:
    """`files`: {path, status, added, removed, binary, from?}; `diff` as git writes it; `truncated`: there is more."""

    files: list[dict[str, Any]]
    diff: str
    truncated: bool


def build_git_tree_difference(shadow: ShadowRepository, before: str, after: str) -> TreeDifference:
    """Return what differs. Raises GitFailed."""
    if before == after:
        return TreeDifference([], "", truncated=False)
    diff_output, cut = shadow.run_git_returning_truncation(
        "diff-tree", "-z", "--raw", "--numstat", *HOW, *ALIKE, before, after, "--", ".", most=4 * MOST_DIFF
    )
    files = list(iterate_changed_files(diff_output.split(b"\0")[: -1 if cut else None]))
    truncated = cut or len(files) > MOST_FILES
    files = files[:MOST_FILES]
    try:
        diff, was_cut = read_tree_diff_and_truncation(shadow, before, after, files)
    except GitFailed:  # a blob that the repository has thrown away since
        diff, was_cut = "", True
    return TreeDifference(files, diff, truncated or was_cut)


def iterate_changed_files(fields: list[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the files that git names, those of the raw lines with the counts of the lines after them."""
    parts = iter(fields)
    changes_by_path: dict[bytes, dict[str, Any]] = {}
    for part in parts:
        if part.startswith(b":"):
            modes, status = part.split(b" ")[:2], part.split(b" ")[-1][:1].decode()
            path = next(parts, b"")
            moved = path if status in "RC" else None
            path = next(parts, b"") if moved is not None else path
            changes_by_path[path] = build_changed_file_entry(path, status, moved, modes)
        elif part:
            added, removed, path = part.split(b"\t", 2)
            if not path:
                next(parts, b"")
                path = next(parts, b"")
            set_line_counts_or_binary(changes_by_path.get(path), added, removed)
    yield from changes_by_path.values()


def build_changed_file_entry(
    path: bytes, status: str, moved: bytes | None, modes: list[bytes]
) -> dict[str, Any]:
    file: dict[str, Any] = {
        "path": path.decode("utf-8", "replace"),
        "status": status,
        "added": 0,
        "removed": 0,
        "binary": False,
    }
    if moved is not None:
        file["from"] = moved.decode("utf-8", "replace")
    before, after = modes[0].lstrip(b":").decode(), modes[1].decode()
    if status in "MRC" and before != after:
        file["mode"] = after
    return file


def set_line_counts_or_binary(file: dict[str, Any] | None, added: bytes, removed: bytes) -> None:
    if file is None:
        return
    if added == b"-":
        file["binary"] = True
    else:
        file["added"], file["removed"] = int(added), int(removed)


def read_tree_diff_and_truncation(
    shadow: ShadowRepository, before: str, after: str, files: list[dict[str, Any]]
) -> tuple[str, bool]:
    """Return the diff as text, and whether something of it is left out."""
    long = [file["path"] for file in files if file["added"] + file["removed"] > LONG]
    left_out = long[:MOST_LEFT_OUT] if 0 < len(long) < len(files) and "\ufffd" not in "".join(long) else []
    diff_output, cut = shadow.run_git_returning_truncation(
        "diff-tree",
        "-p",
        *HOW,
        *ALIKE,
        before,
        after,
        "--",
        ".",
        *(f":(exclude,literal){path}" for path in left_out),
        most=MOST_DIFF,
    )
    diff, was_cut = truncate_diff_and_check_cut(diff_output.decode("utf-8", "replace"), cut)
    return diff, was_cut or bool(left_out)


def truncate_diff_and_check_cut(text: str, cut: bool) -> tuple[str, bool]:
    """Return as many whole lines as may be sent: control signs take six bytes each in JSON."""
    while len(json.dumps(text)) > 2 * MOST_DIFF:
        text, cut = text[: len(text) // 2], True
    return (text[: text.rfind("\n") + 1] if cut else text), cut
