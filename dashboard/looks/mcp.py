"""Displays of tools of MCP servers: `mcp__server__tool`."""

from __future__ import annotations

from typing import Any

from dashboard.looks.parts import (
    CallDisplay,
    build_output_parts,
    build_value_parts,
    extract_output_text_or_none,
    format_line_count,
)

# Names of the main argument in tools, the best first.
TELLING = (
    "title",
    "query",
    "name",
    "url",
    "path",
    "file_path",
    "command",
    "message",
    "text",
    "prompt",
    "id",
    "key",
    "sql",
)


def build_mcp_call_display(name: str, tool_input: Any, output: Any) -> CallDisplay:
    """Return the display of an MCP tool: its server as a tag, its main argument as the title."""
    server, _, tool = name.removeprefix("mcp__").partition("__")
    text = extract_output_text_or_none(output)
    return CallDisplay(
        icon="mcp",
        name=tool or server,
        server=server if tool else "",
        title=first_line_of_main_argument(tool_input),
        note=summarize_mcp_output(text),
        inputs=build_value_parts(tool_input),
        outputs=build_output_parts(output),
    )


def first_line_of_main_argument(arguments: Any) -> str:
    """Return the first line of the main argument, by which this call differs from others of its tool."""
    if not isinstance(arguments, dict):
        return arguments.strip().partition("\n")[0][:200] if isinstance(arguments, str) else ""
    lowered = {str(key).lower(): value for key, value in arguments.items()}
    telling = (lowered[key] for key in TELLING if isinstance(lowered.get(key), str) and lowered[key].strip())
    telling_value = next(telling, None) or next(
        (v for v in arguments.values() if isinstance(v, str) and v.strip()), ""
    )
    return telling_value.strip().partition("\n")[0][:200]


def summarize_mcp_output(text: str | None) -> str:
    if not text or not text.strip():
        return ""
    lines = text.strip().splitlines()
    return lines[0][:120] if len(lines) == 1 else format_line_count(text)
