"""What the agents' own tools do, by the names under which each agent calls them.

A rule speaks of a kind as `kind:command`, and then holds for every agent; it may stand among names, as in
`kind:write|mcp__files__*`. MCP servers' tools are of no kind: nobody knows what they do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIX = "kind:"
EVERY_TOOL = "*"


@dataclass(frozen=True, slots=True)
class ToolKind:
    """What some tools do, in words, and their names."""

    title: str
    tools: tuple[str, ...]


def build_tool_kind(title: str, tools: str) -> ToolKind:
    return ToolKind(title, tuple(tools.split()))


# Of each agent that has a dialect, in its present and its known earlier versions; `think` and the like do nothing.
KINDS = {
    "command": build_tool_kind(
        "Run a command",
        "Bash Monitor PowerShell bash powershell run_shell_command Shell shell exec_command local_shell"
        " developer__shell monitor background_process",
    ),
    "read": build_tool_kind(
        "Read a file",
        "Read NotebookRead read read_file read_many_files view view_image developer__read_image",
    ),
    "write": build_tool_kind(
        "Write, move or delete a file",
        "Write Edit MultiEdit NotebookEdit Delete Move StrReplace apply_patch write_file replace write edit multiedit"
        " patch create str_replace_editor notebook_edit developer__write developer__edit developer__text_editor",
    ),
    "search": build_tool_kind(
        "Search files",
        "Grep Glob LS grep glob list grep_search search_file_content list_directory SemanticSearch developer__tree",
    ),
    "fetch": build_tool_kind("Fetch a web page", "WebFetch webfetch web_fetch"),
    "web-search": build_tool_kind("Search the web", "WebSearch websearch web_search google_web_search"),
}


def split_rule_tool_names(names: str) -> list[str]:
    """Return the names that a rule writes in one text: `Edit|Write`, `Edit, Write`."""
    return [name.strip() for name in re.split(r"[|,]", names) if name.strip()]


def expand_tool_kinds(names: str) -> list[str]:
    """Return the same with the tools of each kind in the kind's place; a kind that there is not stays as it is."""
    tools: list[str] = []
    for name in split_rule_tool_names(names):
        kind = KINDS.get(parse_tool_kind(name) or "")
        tools += kind.tools if kind is not None else (name,)
    return tools


def find_unknown_tool_kinds(names: str) -> list[str]:
    """Return the kinds that a rule speaks of and that there are not."""
    return [
        name
        for name in split_rule_tool_names(names)
        if (kind := parse_tool_kind(name)) is not None and kind not in KINDS
    ]


def parse_tool_kind(name: str) -> str | None:
    return name.removeprefix(PREFIX).strip() if name.startswith(PREFIX) else None
