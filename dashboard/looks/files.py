"""Files: read, written, edited, searched."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from dashboard.looks.inputs import CONTENTS, PATHS, Fields
from dashboard.looks.parts import (
    MOST_FACTS,
    Line,
    Look,
    Part,
    diff_part,
    lines_of,
    output_parts,
    string,
    text_of,
    text_part,
)
from dashboard.text import diffs

SPAN = ("offset", "limit")


def read(name: str, given: dict[str, Any], came: Any) -> Look | None:
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
    span, fields = _span(given), Fields(given)
    fields.leave_out(*PATHS, *(SPAN if span else ()))
    return Look(
        "file",
        name,
        title=path,
        mono=True,
        path=path,
        note=span or (lines_of(text) if isinstance(text, str) else ""),
        inputs=fields.others(),
        outputs=outputs,
    )


def _span(given: dict[str, Any]) -> str:
    offset, limit = given.get("offset"), given.get("limit")
    if not isinstance(offset, int) and not isinstance(limit, int):
        return ""
    first = offset if isinstance(offset, int) else 1
    return f"lines {first} to {first + limit - 1}" if isinstance(limit, int) else f"from line {first}"


def write(name: str, given: dict[str, Any], came: Any) -> Look | None:
    path, text = string(given, *PATHS), string(given, *CONTENTS)
    if not path:
        return None
    fields = Fields(given)
    fields.leave_out(*PATHS)
    return Look(
        "edit",
        name,
        title=path,
        mono=True,
        path=path,
        added=len(text.splitlines()),
        inputs=[*fields.content(short_name(path)), *fields.others()],
        outputs=_said(came),
    )


def edit(name: str, given: dict[str, Any], came: Any) -> Look | None:
    fields = Fields(given)
    changes = fields.changes()
    path = string(given, *PATHS)
    if not path or not changes:
        return None
    fields.leave_out(*PATHS)
    lines = [line for before, after in changes for line in diff(before, after)]
    return Look(
        "edit",
        name,
        title=path,
        mono=True,
        path=path,
        added=sum(sign == "+" for sign, _ in lines),
        removed=sum(sign == "-" for sign, _ in lines),
        inputs=[diff_part(lines), *fields.others()],
        outputs=_said(came),
    )


def diff(old: str, new: str) -> Iterator[Line]:
    """Yield the lines of both texts with ` `, `-`, `+` or, between distant changes, `@`."""
    return diffs.hunks(old.splitlines(), new.splitlines())


def patch(name: str, given: dict[str, Any], came: Any) -> Look | None:
    fields = Fields(given)
    text = fields.take("patch", "input", "diff")
    if not text:
        return None
    lines = [_patch_line(line) for line in text.splitlines()]
    named = re.search(r"^(?:\*\*\* (?:Update|Add|Delete) File: |\+\+\+ (?:b/)?)(.+)$", text, re.MULTILINE)
    return Look(
        "edit",
        name,
        title=named[1] if named else "",
        mono=True,
        path=named[1] if named else "",
        added=sum(sign == "+" for sign, _ in lines),
        removed=sum(sign == "-" for sign, _ in lines),
        inputs=[diff_part(lines), *fields.others()],
        outputs=_said(came),
    )


def _patch_line(line: str) -> Line:
    if line.startswith(("+++", "---", "***", "@@")):
        return "@", line
    return (line[0], line[1:]) if line[:1] in {"+", "-", " "} else (" ", line)


def _said(came: Any) -> list[Part]:
    """Return a writing tool's answer where it says more than that it worked."""
    if isinstance(came, dict) and ({"structuredPatch", "filePath"} & came.keys()):
        return []
    return output_parts(came, "Answer")


def search(name: str, given: dict[str, Any], came: Any) -> Look | None:
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
        outputs = [text_part(found, label="Results") if found else Part("text", "", label="No results")]
        note = lines_of(content) if content else f"{len(files):,} file{'' if len(files) == 1 else 's'}"
    else:
        outputs = output_parts(came, "Results")
        note = lines_of(text) if text else ""
    title = f"{pattern} in {where}" if where else pattern
    fields = Fields(given)
    fields.leave_out("pattern", "query", "path", "output_mode")
    return Look(
        "search",
        name,
        title=title,
        mono=True,
        note=note,
        inputs=fields.others(),
        outputs=outputs,
    )


def listing(name: str, given: dict[str, Any], came: Any) -> Look | None:
    path = string(given, "path", "directory", "relative_workspace_path")
    text, fields = text_of(came), Fields(given)
    fields.leave_out("path", "directory")
    return Look(
        "file",
        name,
        title=path or ".",
        mono=True,
        note=lines_of(text) if text else "",
        inputs=fields.others(),
        outputs=output_parts(came, "Entries"),
    )


def todos(name: str, given: dict[str, Any], came: Any) -> Look | None:  # noqa: ARG001 # every look has it
    items = given.get("todos")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return None
    if len(items) > MOST_FACTS:
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
