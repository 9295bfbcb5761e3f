"""Kinds of the agents' own tools, by the names under which each agent calls them.

A rule names a kind as `kind:command`, and then holds for every agent; it may be listed among names, as in
`kind:write|mcp__files__*`. MCP servers' tools are of no kind: nobody knows what they do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from coordinator.calls.tools import TOOLS

PREFIX = "kind:"
EVERY_TOOL = "*"


@dataclass(frozen=True, slots=True)
class ToolKind:
    """What some tools do, in words, and their names."""

    title: str
    tools: tuple[str, ...]


_TITLES = {
    "command": "Run a command",
    "read": "Read a file",
    "write": "Write, move or delete a file",
    "search": "Search files",
    "fetch": "Fetch a web page",
    "web-search": "Search the web",
}
KINDS = {
    name: ToolKind(title, tuple(tool for tool, traits in TOOLS.items() if traits.kind == name))
    for name, title in _TITLES.items()
}


def split_rule_tool_names(names: str) -> list[str]:
    """Return the names that a rule writes in one text: `Edit|Write`, `Edit, Write`."""
    return [name.strip() for name in re.split(r"[|,]", names) if name.strip()]


def expand_tool_kinds(names: str) -> list[str]:
    """Return the same with the tools of each kind in the kind's place; a kind that there is not stays as it is."""
    tools: list[str] = []
    for name in split_rule_tool_names(names):
        kind = KINDS.get(tool_kind_name_or_none(name) or "")
        tools += kind.tools if kind is not None else (name,)
    return tools


def find_unknown_tool_kinds(names: str) -> list[str]:
    """Return the kinds that a rule speaks of and that there are not."""
    return [
        name
        for name in split_rule_tool_names(names)
        if (kind := tool_kind_name_or_none(name)) is not None and kind not in KINDS
    ]


def tool_kind_name_or_none(name: str) -> str | None:
    return name.removeprefix(PREFIX).strip() if name.startswith(PREFIX) else None
