"""Displays of file tools: read, write, edit, search."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from dashboard.looks.inputs import CONTENTS, PATHS, InputFields
from dashboard.looks.parts import (
    MOST_FACTS,
    CallDisplay,
    DisplayPart,
    Line,
    build_diff_part,
    build_output_parts,
    build_text_part,
    extract_output_text_or_none,
    first_string_field_or_empty,
    format_line_count,
)
from dashboard.text import diffs

SPAN = ("offset", "limit")


def build_file_read_call_display(name: str, tool_input: dict[str, Any], output: Any) -> CallDisplay | None:
    path = first_string_field_or_empty(tool_input, *PATHS)
    if not path:
        return None
    file = output.get("file") if isinstance(output, dict) else None
    text = file.get("content") if isinstance(file, dict) else extract_output_text_or_none(output)
    outputs = (
        [build_text_part(text, kind="code", filename=path_file_name(path), label="Content")]
        if isinstance(text, str)
        else build_output_parts(output)
    )
    span, fields = describe_line_range(tool_input), InputFields(tool_input)
    fields.remove_fields(*PATHS, *(SPAN if span else ()))
    return CallDisplay(
        "file",
        name,
        title=path,
        mono=True,
        path=path,
        note=span or (format_line_count(text) if isinstance(text, str) else ""),
        inputs=fields.build_remaining_parts(),
        outputs=outputs,
    )


def describe_line_range(tool_input: dict[str, Any]) -> str:
    offset, limit = tool_input.get("offset"), tool_input.get("limit")
    if not isinstance(offset, int) and not isinstance(limit, int):
        return ""
    first = offset if isinstance(offset, int) else 1
    return f"lines {first} to {first + limit - 1}" if isinstance(limit, int) else f"from line {first}"


def build_file_write_call_display(name: str, tool_input: dict[str, Any], output: Any) -> CallDisplay | None:
    path, text = (
        first_string_field_or_empty(tool_input, *PATHS),
        first_string_field_or_empty(tool_input, *CONTENTS),
    )
    if not path:
        return None
    fields = InputFields(tool_input)
    fields.remove_fields(*PATHS)
    return CallDisplay(
        "edit",
        name,
        title=path,
        mono=True,
        path=path,
        added=len(text.splitlines()),
        inputs=[*fields.pop_file_content_as_parts(path_file_name(path)), *fields.build_remaining_parts()],
        outputs=build_write_tool_result_parts(output),
    )


def build_file_edit_call_display(name: str, tool_input: dict[str, Any], output: Any) -> CallDisplay | None:
    fields = InputFields(tool_input)
    changes = fields.pop_text_changes()
    path = first_string_field_or_empty(tool_input, *PATHS)
    if not path or not changes:
        return None
    fields.remove_fields(*PATHS)
    lines = [line for before, after in changes for line in iterate_text_diff_lines(before, after)]
    return CallDisplay(
        "edit",
        name,
        title=path,
        mono=True,
        path=path,
        added=sum(sign == "+" for sign, _ in lines),
        removed=sum(sign == "-" for sign, _ in lines),
        inputs=[build_diff_part(lines), *fields.build_remaining_parts()],
        outputs=build_write_tool_result_parts(output),
    )


def iterate_text_diff_lines(old: str, new: str) -> Iterator[Line]:
    """Yield the lines of a diff with the signs ` `, `-`, `+`, and `@` between distant changes."""
    return diffs.diff_texts_with_context(old.splitlines(), new.splitlines())


def build_patch_call_display(name: str, tool_input: dict[str, Any], output: Any) -> CallDisplay | None:
    fields = InputFields(tool_input)
    text = fields.pop_first_text_field("patch", "input", "diff")
    if not text:
        return None
    lines = [parse_patch_line(line) for line in text.splitlines()]
    match = re.search(r"^(?:\*\*\* (?:Update|Add|Delete) File: |\+\+\+ (?:b/)?)(.+)$", text, re.MULTILINE)
    return CallDisplay(
        "edit",
        name,
        title=match[1] if match else "",
        mono=True,
        path=match[1] if match else "",
        added=sum(sign == "+" for sign, _ in lines),
        removed=sum(sign == "-" for sign, _ in lines),
        inputs=[build_diff_part(lines), *fields.build_remaining_parts()],
        outputs=build_write_tool_result_parts(output),
    )


def parse_patch_line(line: str) -> Line:
    if line.startswith(("+++", "---", "***", "@@")):
        return "@", line
    return (line[0], line[1:]) if line[:1] in {"+", "-", " "} else (" ", line)


def build_write_tool_result_parts(output: Any) -> list[DisplayPart]:
    """Return the output of a writing tool; empty if it only confirms what was written."""
    if isinstance(output, dict) and ({"structuredPatch", "filePath"} & output.keys()):
        return []
    return build_output_parts(output, "Answer")


def build_file_search_call_display(name: str, tool_input: dict[str, Any], output: Any) -> CallDisplay | None:
    pattern = first_string_field_or_empty(
        tool_input, "pattern", "query", "regex", "glob_pattern", "search_term"
    )
    if not pattern:
        return None
    where = first_string_field_or_empty(tool_input, "path", "target_directory", "directory")
    names = output.get("filenames") if isinstance(output, dict) else None
    content = first_string_field_or_empty(output, "content") if isinstance(output, dict) else ""
    text = extract_output_text_or_none(output)
    if isinstance(names, list) or content:
        files = [str(line) for line in names] if isinstance(names, list) else []
        search_result = content or "\n".join(files)
        outputs = [
            build_text_part(search_result, label="Results")
            if search_result
            else DisplayPart("text", "", label="No results")
        ]
        note = (
            format_line_count(content) if content else f"{len(files):,} file{'' if len(files) == 1 else 's'}"
        )
    else:
        outputs = build_output_parts(output, "Results")
        note = format_line_count(text) if text else ""
    title = f"{pattern} in {where}" if where else pattern
    fields = InputFields(tool_input)
    fields.remove_fields("pattern", "query", "path", "output_mode")
    return CallDisplay(
        "search",
        name,
        title=title,
        mono=True,
        note=note,
        inputs=fields.build_remaining_parts(),
        outputs=outputs,
    )


def build_directory_listing_call_display(
    name: str, tool_input: dict[str, Any], output: Any
) -> CallDisplay | None:
    path = first_string_field_or_empty(tool_input, "path", "directory", "relative_workspace_path")
    text, fields = extract_output_text_or_none(output), InputFields(tool_input)
    fields.remove_fields("path", "directory")
    return CallDisplay(
        "file",
        name,
        title=path or ".",
        mono=True,
        note=format_line_count(text) if text else "",
        inputs=fields.build_remaining_parts(),
        outputs=build_output_parts(output, "Entries"),
    )


def build_todo_list_call_display(
    name: str,
    tool_input: dict[str, Any],
    output: Any,  # noqa: ARG001
) -> CallDisplay | None:  # all display functions have this parameter
    items = tool_input.get("todos")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return None
    if len(items) > MOST_FACTS:
        return None
    rows = [
        (
            str(item.get("status", "pending")),
            first_string_field_or_empty(item, "content", "title", "task") or json.dumps(item),
        )
        for item in items
    ]
    done = sum(status == "completed" for status, _ in rows)
    current = next((text for status, text in rows if status == "in_progress"), "")
    return CallDisplay(
        "audit",
        name,
        title=current or f"{len(rows)} to do",
        note=f"{done} of {len(rows)} done",
        inputs=[DisplayPart("todos", rows)],
        outputs=[],
    )


def path_file_name(path: str) -> str:
    """Return the last part of a path. Its extension selects the language for highlighting."""
    return PurePosixPath(path.replace("\\", "/")).name


TOOLS = {
    **dict.fromkeys(
        ("read", "readfile", "view", "notebookread", "viewfile", "cat"), build_file_read_call_display
    ),
    **dict.fromkeys(("write", "writefile", "createfile", "savefile"), build_file_write_call_display),
    **dict.fromkeys(
        ("edit", "multiedit", "editfile", "strreplace", "notebookedit", "searchreplace"),
        build_file_edit_call_display,
    ),
    **dict.fromkeys(("applypatch", "patch"), build_patch_call_display),
    **dict.fromkeys(
        ("grep", "glob", "search", "findfiles", "grepsearch", "filesearch", "codebasesearch"),
        build_file_search_call_display,
    ),
    **dict.fromkeys(("ls", "listdir", "listfiles", "listdirectory"), build_directory_listing_call_display),
    **dict.fromkeys(("todowrite", "updateplan"), build_todo_list_call_display),
}
