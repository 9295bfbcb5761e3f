"""The matrix of agents and tools: which lines there are, and the window of cells that a screen shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.cache import cache
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from coordinator.mcp import tools as mcp_tools
from coordinator.policy import access
from dashboard.mcp.access_sheet import agent_ids, source_words

MOST_ROWS, MOST_COLUMNS = 60, 80
ROWS, COLUMNS = 30, 40
SEEN_KEPT = 60  # seconds for which the names of called tools are kept: they are read from the events
SIGNS = {access.ALLOW: "\N{CHECK MARK}", access.ASK: "?", access.DENY: "\N{MULTIPLICATION SIGN}"}
MARKS = {
    access.TOOL_GRANT: "own",
    access.SERVER_GRANT: "server",
    access.DEFAULT_POLICY: "default",
    access.UNKNOWN_SERVER: "unknown",
}


@dataclass(frozen=True, slots=True)
class Axes:
    """Every row and column that the filters leave: agents, and tools as (server, tool)."""

    agents: list[str]
    tools: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring columns of one server, which may be one that only grants name."""

    server_id: str
    span: int
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class VisibleMatrix:
    """What is shown of the matrix: from `row` and `column` on."""

    axes: Axes
    row: int
    column: int
    agents: list[str]
    tools: list[tuple[str, str]]
    matrix: access.Matrix

    @property
    def groups(self) -> list[Group]:
        found: list[list[Any]] = []
        for server_id, tool in self.tools:
            if found and found[-1][0] == server_id:
                found[-1][1] += 1
            else:
                unknown = bool(self.agents) and self.matrix[self.agents[0], server_id][tool].is_unknown
                found.append([server_id, 1, unknown])
        return [Group(*one) for one in found]

    @property
    def lines(self) -> Iterable[tuple[str, SafeString]]:
        """Yield each agent with its cells, drawn: a thousand cells are too many for a template's loop."""
        for agent in self.agents:
            cells = (self._cell(agent, server, tool) for server, tool in self.tools)
            yield agent, mark_safe("".join(cells))  # noqa: S308 - every part is escaped in _cell

    def _cell(self, agent: str, server: str, tool: str) -> str:
        verdict = self.matrix[agent, server][tool]
        word = verdict.decision
        changed = " changed" if verdict.changed_at else ""
        label = escape(f"{word}: {source_words(verdict)}")
        return (
            f'<td class="{word} {MARKS[verdict.source]}{changed}" data-s="{escape(server)}" data-t="{escape(tool)}">'
            f'<button type="button" title="{label}" aria-label="{label}" tabindex="-1">{SIGNS[word]}'
            "</button></td>"
        )


def axes_of(now: datetime, *, agents: str = "", tools: str = "", server: str = "", only: str = "") -> Axes:
    """Return the rows and columns that the words leave; `only` keeps agents with an allow or a deny of their own."""
    names = [one for one in agent_ids() if _fits(one, agents)]
    servers = [server] if server else list(access.named_servers(now))
    by_server = tool_names(servers, now)
    columns = [(name, tool) for name in servers for tool in by_server[name] if _fits(f"{name} {tool}", tools)]
    if only == "granted":
        named = set(access.load(None, servers, now).slots)
        names = [one for one in names if any((one, name) in named for name in servers)]
    return Axes(names, columns)


def tool_names(servers: list[str], now: datetime) -> dict[str, list[str]]:
    key = f"mcp-seen:{hash(tuple(servers))}"
    seen = cache.get(key)
    if seen is None:
        seen = mcp_tools.seen_tools(servers, now)
        cache.set(key, seen, SEEN_KEPT)
    found = {name: set(tools) for name, tools in mcp_tools.names_by_server(servers).items()}
    for name, tool in seen:
        if name in found:
            found[name].add(tool)
    return {name: sorted(tools) for name, tools in found.items()}


def _fits(text: str, words: str) -> bool:
    return all(word in text.lower() for word in words.lower().split())


def window_of(
    axes: Axes, now: datetime, *, row: int = 0, column: int = 0, rows: int = ROWS, columns: int = COLUMNS
) -> VisibleMatrix:
    """Return the cells from `row` and `column` on: three queries, whatever the size of the whole."""
    row = min(max(row, 0), max(len(axes.agents) - 1, 0))
    column = min(max(column, 0), max(len(axes.tools) - 1, 0))
    agents = axes.agents[row : row + min(rows, MOST_ROWS)]
    tools = axes.tools[column : column + min(columns, MOST_COLUMNS)]
    by_server: dict[str, list[str]] = {}
    for server_id, tool in tools:
        by_server.setdefault(server_id, []).append(tool)
    matrix = access.resolve_many(agents, by_server, now)
    return VisibleMatrix(axes, row, column, agents, tools, matrix)
