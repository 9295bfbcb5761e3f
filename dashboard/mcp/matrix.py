"""The matrix of agents and tools: its rows and columns, and the window of cells that a screen shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.cache import cache
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from coordinator.mcp.servers import tools as mcp_tools
from coordinator.models.agent_names import agent_labels_by_id
from coordinator.policy.grants import access
from dashboard.mcp.access_sheet import describe_verdict_source, list_agent_ids_including_unknown

MOST_ROWS, MOST_COLUMNS = 60, 80
ROWS, COLUMNS = 30, 40
SEEN_TOOLS_CACHE_SECONDS = 60  # the names of called tools are cached, since a query reads the events
WHOLE_SERVER = ""  # the column for what is no tool: resources, prompts, completions, sampling
WHOLE_SERVER_LABEL = "resources, prompts, sampling"
SIGNS = {access.ALLOW: "\N{CHECK MARK}", access.ASK: "?", access.DENY: "\N{MULTIPLICATION SIGN}"}
MARKS = {
    access.TOOL_GRANT: "own",
    access.SERVER_GRANT: "server",
    access.DEFAULT_POLICY: "default",
    access.UNKNOWN_SERVER: "unknown",
}


@dataclass(frozen=True, slots=True)
class MatrixAxes:
    """All rows and columns that match the filters: agents, and tools as (server, tool).

    The column of WHOLE_SERVER is the first one of each server.
    """

    agents: list[str]
    tools: list[tuple[str, str]]

    @property
    def number_of_tools(self) -> int:
        return sum(1 for _, tool in self.tools if tool != WHOLE_SERVER)


@dataclass(frozen=True, slots=True)
class ServerColumnGroup:
    """Adjacent columns of one server. The server may be unknown, named only by grants."""

    server_id: str
    span: int
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class VisibleMatrix:
    """The visible window of the matrix, which begins at `row` and `column`."""

    axes: MatrixAxes
    row: int
    column: int
    agents: list[str]
    tools: list[tuple[str, str]]
    matrix: access.Matrix
    labels: Mapping[str, str]

    @property
    def column_groups(self) -> list[ServerColumnGroup]:
        groups: list[list[Any]] = []
        for server_id, tool in self.tools:
            if groups and groups[-1][0] == server_id:
                groups[-1][1] += 1
            else:
                unknown = bool(self.agents) and self.matrix[self.agents[0], server_id][tool].is_unknown
                groups.append([server_id, 1, unknown])
        return [ServerColumnGroup(*group_fields) for group_fields in groups]

    @property
    def iterate_rendered_agent_rows(self) -> Iterable[tuple[str, str, SafeString]]:
        """Yield each agent's id, its label and its rendered cells.

        The cells are rendered in Python, because a template loop over a thousand of them is too slow.
        """
        for agent in self.agents:
            cells = (self.draw_matrix_cell(agent, server, tool) for server, tool in self.tools)
            yield agent, self.labels.get(agent, agent), mark_safe("".join(cells))  # noqa: S308 - every part is escaped

    def draw_matrix_cell(self, agent: str, server: str, tool: str) -> str:
        verdict = self.matrix[agent, server][tool]
        word = verdict.decision
        changed = " changed" if verdict.changed_at else ""
        label = escape(f"{word}: {describe_verdict_source(verdict)}")
        return (
            f'<td class="{word} {MARKS[verdict.source]}{changed}" data-s="{escape(server)}" data-t="{escape(tool)}">'
            f'<button type="button" title="{label}" aria-label="{label}" tabindex="-1">{SIGNS[word]}'
            "</button></td>"
        )


def load_filtered_matrix_axes(
    now: datetime, *, agents: str = "", tools: str = "", server: str = "", only: str = ""
) -> MatrixAxes:
    """Return the rows and columns that contain the words of the filters.

    `only="granted"` keeps agents that have a grant on one of the servers.
    """
    labels = agent_labels_by_id()
    names = [
        name
        for name in list_agent_ids_including_unknown()
        if contains_all_words(f"{name} {labels.get(name, '')}", agents)
    ]
    servers = [server] if server else list(access.load_default_policies_by_server(now))
    by_server = load_tool_names_by_server(servers, now)
    columns = [
        (name, tool)
        for name in servers
        for tool in [WHOLE_SERVER, *by_server[name]]
        if contains_all_words(f"{name} {tool or WHOLE_SERVER_LABEL}", tools)
    ]
    if only == "granted":
        granted_slots = set(access.load_policy_for_agents(None, servers, now).slots)
        names = [one for one in names if any((one, name) in granted_slots for name in servers)]
    return MatrixAxes(names, columns)


def load_tool_names_by_server(servers: list[str], now: datetime) -> dict[str, list[str]]:
    key = f"mcp-seen:{hash(tuple(servers))}"
    cached_tools = cache.get(key)
    if cached_tools is None:
        cached_tools = mcp_tools.find_recently_called_server_tools(servers, now)
        cache.set(key, cached_tools, SEEN_TOOLS_CACHE_SECONDS)
    tools_by_server = {
        name: set(tools) for name, tools in mcp_tools.collect_tool_names_by_server(servers).items()
    }
    for name, tool in cached_tools:
        if name in tools_by_server:
            tools_by_server[name].add(tool)
    return {name: sorted(tools) for name, tools in tools_by_server.items()}


def contains_all_words(text: str, words: str) -> bool:
    return all(word in text.lower() for word in words.lower().split())


def load_matrix_window(
    axes: MatrixAxes,
    now: datetime,
    *,
    row: int = 0,
    column: int = 0,
    rows: int = ROWS,
    columns: int = COLUMNS,
) -> VisibleMatrix:
    """Return the window of cells at `row` and `column`. Makes four queries, whatever the matrix's size."""
    row = min(max(row, 0), max(len(axes.agents) - 1, 0))
    column = min(max(column, 0), max(len(axes.tools) - 1, 0))
    agents = axes.agents[row : row + min(rows, MOST_ROWS)]
    tools = axes.tools[column : column + min(columns, MOST_COLUMNS)]
    by_server: dict[str, list[str]] = {}
    for server_id, tool in tools:
        by_server.setdefault(server_id, []).append(tool)
    matrix = access.resolve_access_matrix(agents, by_server, now)
    return VisibleMatrix(axes, row, column, agents, tools, matrix, agent_labels_by_id())
