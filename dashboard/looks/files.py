"""Files: read, written, edited, searched."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from dashboard.looks.parts import (
    SHOW_CHARACTERS,
    SHOW_LINES,
    Look,
    Part,
    is_whole,
    lines_of,
    output_parts,
    rest,
    string,
    text_of,
    text_part,
)

SPAN = ("offset", "limit")
PATHS = ("file_path", "path", "notebook_path", "filename", "target_file")
DiffLine = tuple[str, str]
# Comparing is quadratic at worst; beyond this an edit is shown as what went and what came.
DIFF_UP_TO = 2_000


def read(name: str, given: dict[str, Any], came: Any) -> Look | None:
    """A file's text, coloured by its name."""
    path = string(given, *PATHS)
    if not path:
        return None
    file = came.get("file") if isinstance(came, dict) else None
    text = file.get("content") if isinstance(file, dict) else text_of(came)
    outputs = (
        [text_part(text, kind="code", filename=short_name(path), label="Content")]
        if isinstance(text, str)
        else output_parts(came)
    )
    span = _span(given)
    return Look(
        "file",
        name,
        title=path,
        mono=True,
        note=span or (lines_of(text) if isinstance(text, str) else ""),
        inputs=rest(given, *PATHS, *(SPAN if span else ())),
        outputs=outputs,
    )


def _span(given: dict[str, Any]) -> str:
    offset, limit = given.get("offset"), given.get("limit")
    if not isinstance(offset, int) and not isinstance(limit, int):
        return ""
    first = offset if isinstance(offset, int) else 1
    return f"lines {first} to {first + limit - 1}" if isinstance(limit, int) else f"from line {first}"


def write(name: str, given: dict[str, Any], came: Any) -> Look | None:
    """A file written whole."""
    path, text = string(given, *PATHS), string(given, "content", "contents", "text")
    if not path:
        return None
    inputs = [text_part(text, kind="code", filename=short_name(path), label="Content")] if text else []
    return Look(
        "edit",
        name,
        title=path,
        mono=True,
        added=len(text.splitlines()),
        inputs=inputs + rest(given, *PATHS, "content", "contents", "text"),
        outputs=_said(came),
    )


def edit(name: str, given: dict[str, Any], came: Any) -> Look | None:
    """A change to a file, as a diff."""
    path = string(given, *PATHS)
    changes = given.get("edits") if isinstance(given.get("edits"), list) else [given]
    if not path or not all(_is_change(change) for change in changes or []):
        return None
    lines = [line for change in changes or [] for line in diff(_old(change), _new(change))]
    inputs = [diff_part(lines)]
    if given.get("replace_all"):
        inputs.append(Part("facts", [("replace_all", "true")], label="Also"))
    return Look(
        "edit",
        name,
        title=path,
        mono=True,
        added=sum(sign == "+" for sign, _ in lines),
        removed=sum(sign == "-" for sign, _ in lines),
        inputs=inputs,
        outputs=_said(came),
    )


def _is_change(change: Any) -> bool:
    return isinstance(change, dict) and bool(_old(change) or _new(change))


def _old(change: dict[str, Any]) -> str:
    return string(change, "old_string", "old_str", "old_text", "oldText")


def _new(change: dict[str, Any]) -> str:
    return string(change, "new_string", "new_str", "new_text", "newText", "new_source")


def diff(old: str, new: str) -> Iterator[DiffLine]:
    """Yield the lines of both texts with ` `, `-`, `+` or, between distant changes, `@`."""
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > DIFF_UP_TO:
        yield from (("-", line) for line in before)
        yield from (("+", line) for line in after)
        return
    groups = difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(3)
    for number, group in enumerate(groups):
        if number:
            yield "@", "…"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from ((" ", line) for line in before[i1:i2])
            else:
                yield from (("-", line) for line in before[i1:i2])
                yield from (("+", line) for line in after[j1:j2])


def diff_part(lines: list[DiffLine], label: str = "Change") -> Part:
    """Return a diff, shortened to what a row shows."""
    if is_whole():
        return Part("diff", lines, label=label)
    shown: list[DiffLine] = []
    room = SHOW_CHARACTERS
    for sign, line in lines[:SHOW_LINES]:
        if room <= 0:
            break
        shown.append((sign, line[:room]))
        room -= len(line)
    cut = len(shown) < len(lines) or room < 0
    return Part("diff", shown, label=label, cut=cut)


def patch(name: str, given: dict[str, Any], came: Any) -> Look | None:
    """A change given as a patch text."""
    text = string(given, "patch", "input", "diff")
    if not text:
        return None
    lines = [_patch_line(line) for line in text.splitlines()]
    named = re.search(r"^(?:\*\*\* (?:Update|Add|Delete) File: |\+\+\+ (?:b/)?)(.+)$", text, re.MULTILINE)
    return Look(
        "edit",
        name,
        title=named[1] if named else "",
        mono=True,
        added=sum(sign == "+" for sign, _ in lines),
        removed=sum(sign == "-" for sign, _ in lines),
        inputs=[diff_part(lines)],
        outputs=_said(came),
    )


def _patch_line(line: str) -> DiffLine:
    if line.startswith(("+++", "---", "***", "@@")):
        return "@", line
    return (line[0], line[1:]) if line[:1] in {"+", "-", " "} else (" ", line)


def _said(came: Any) -> list[Part]:
    """Return a writing tool's answer where it says more than that it worked."""
    if isinstance(came, dict) and ({"structuredPatch", "filePath"} & came.keys()):
        return []
    return output_parts(came, "Answer")


def search(name: str, given: dict[str, Any], came: Any) -> Look | None:
    """A search in files, by name or by content."""
    pattern = string(given, "pattern", "query", "regex", "glob_pattern", "search_term")
    if not pattern:
        return None
    where = string(given, "path", "target_directory", "directory")
    names = came.get("filenames") if isinstance(came, dict) else None
    content = string(came, "content") if isinstance(came, dict) else ""
    text = text_of(came)
    if isinstance(names, list) or content:
        files = [str(line) for line in names] if isinstance(names, list) else []
        found = content or "\n".join(files)
        outputs = [text_part(found, label="Found") if found else Part("text", "", label="Nothing found")]
        note = lines_of(content) if content else f"{len(files):,} file{'' if len(files) == 1 else 's'}"
    else:
        outputs = output_parts(came, "Found")
        note = lines_of(text) if text else ""
    title = f"{pattern} in {where}" if where else pattern
    return Look(
        "search",
        name,
        title=title,
        mono=True,
        note=note,
        inputs=rest(given, "pattern", "query", "path", "output_mode"),
        outputs=outputs,
    )


def listing(name: str, given: dict[str, Any], came: Any) -> Look | None:
    """What a directory holds."""
    path = string(given, "path", "directory", "relative_workspace_path")
    text = text_of(came)
    return Look(
        "file",
        name,
        title=path or ".",
        mono=True,
        note=lines_of(text) if text else "",
        inputs=rest(given, "path", "directory"),
        outputs=output_parts(came, "Entries"),
    )


def todos(name: str, given: dict[str, Any], came: Any) -> Look | None:  # noqa: ARG001 # every look has it
    """An agent's own list of what is to do."""
    items = given.get("todos")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return None
    rows = [
        (str(item.get("status", "pending")), string(item, "content", "title", "task") or json.dumps(item))
        for item in items
    ]
    done = sum(status == "completed" for status, _ in rows)
    current = next((text for status, text in rows if status == "in_progress"), "")
    return Look(
        "audit",
        name,
        title=current or f"{len(rows)} to do",
        note=f"{done} of {len(rows)} done",
        inputs=[Part("todos", rows)],
        outputs=[],
    )


def short_name(path: str) -> str:
    """Return the last part of a path, by which code is coloured."""
    return PurePosixPath(path.replace("\\", "/")).name


TOOLS = {
    **dict.fromkeys(("read", "readfile", "view", "notebookread", "viewfile", "cat"), read),
    **dict.fromkeys(("write", "writefile", "createfile", "savefile"), write),
    **dict.fromkeys(("edit", "multiedit", "editfile", "strreplace", "notebookedit", "searchreplace"), edit),
    **dict.fromkeys(("applypatch", "patch"), patch),
    **dict.fromkeys(
        ("grep", "glob", "search", "findfiles", "grepsearch", "filesearch", "codebasesearch"), search
    ),
    **dict.fromkeys(("ls", "listdir", "listfiles", "listdirectory"), listing),
    **dict.fromkeys(("todowrite", "updateplan"), todos),
}
