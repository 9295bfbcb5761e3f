"""How a tool call is displayed: an icon, a one-line title, and its input and output as parts.

Each family of tools (shell, files, search, web, agents, MCP) has one module; unknown tools get a default
display. Timelines, search results and approval cards use the same displays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordinator.sessions.timeline import StoredValue
from dashboard.looks import files, mcp, shell, subagents, web
from dashboard.looks.parts import (
    CallDisplay,
    DisplayPart,
    build_error_part,
    build_output_parts,
    build_value_parts,
)

__all__ = ["CallDisplay", "DisplayPart", "build_call_display", "build_output_parts"]

FAMILIES = {**shell.TOOLS, **files.TOOLS, **web.TOOLS, **subagents.TOOLS}


def build_call_display(
    tool_name: str | None, tool_input: StoredValue | None, tool_output: StoredValue | None, error: str | None
) -> CallDisplay:
    """Return the display of a call. Its values may have any shape; none causes an error."""
    name = tool_name or "tool"
    input_value = tool_input.value if tool_input else None
    output_value = tool_output.value if tool_output else None
    draw = FAMILIES.get(name.lower().replace("_", "").replace("-", ""))
    find_display = None
    if name.startswith("mcp__"):
        find_display = mcp.build_mcp_call_display(name, input_value, output_value)
    elif draw and isinstance(input_value, dict):
        find_display = draw(name, input_value, output_value)
    if find_display is None:
        find_display = build_display_of_unknown_tool(name, input_value, output_value)
    if error is not None:
        find_display = replace(
            find_display,
            outputs=[build_error_part(error), *find_display.outputs],
            note=first_nonblank_line_cut_short(error),
        )
    return find_display


def build_display_of_unknown_tool(name: str, tool_input: Any, output: Any) -> CallDisplay:
    """Return the display of a tool that no family knows."""
    return CallDisplay(
        icon="tool",
        name=name,
        title=mcp.first_line_of_main_argument(tool_input),
        inputs=build_value_parts(tool_input),
        outputs=build_output_parts(output),
    )


def first_nonblank_line_cut_short(text: str) -> str:
    """Return the first line of the text that is not blank, cut to 160 characters."""
    return next((line.strip()[:160] for line in text.splitlines() if line.strip()), "")
