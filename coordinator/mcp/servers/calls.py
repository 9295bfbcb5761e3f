"""Counts of MCP tool calls by agent and tool, from recorded events (`mcp__server__tool`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Q

from coordinator.lib import instants
from coordinator.mcp.servers.names import (
    PREFIX,
    ServerTool,
    find_server_tools_meant_by_call,
    name_in_calls,
)
from coordinator.models import Event, McpTool
from coordinator.models.agent_names import load_linked_agents_by_name
from coordinator.models.gateway import BY_GATEWAY


@dataclass(frozen=True, slots=True)
class ToolCallCount:
    """How often one agent called one tool, and when last. `agent_id` is None where no agent has the name."""

    agent_name: str
    agent_id: str | None
    server_id: str
    tool_name: str
    count: int
    last: datetime


def find_called_server_and_tool(call: str, server_ids: Iterable[str]) -> tuple[str, str] | None:
    """Return which of `server_ids` and which tool `mcp__server__tool` names, or None. The longest name wins."""
    called_tools = find_server_tools_meant_by_call(call, server_ids)
    return called_tools[0] if called_tools else None


def list_tool_call_counts_since(start: datetime, server_ids: Iterable[str]) -> list[ToolCallCount]:
    """Return the calls that were received from `start` on, of these servers, by agent and tool."""
    servers, rows = list(server_ids), list(iterate_call_counts_by_agent(start))
    agents = load_linked_agents_by_name(agent_name for agent_name, *_ in rows)
    listed_names = load_listed_names_by_called_tool(servers)
    call_counts = []
    for agent_name, call, count, last in rows:
        server_tool = find_called_server_and_tool(call, servers)
        if server_tool is not None:
            agent = agents.get(agent_name)
            server_id, tool = server_tool[0], listed_names.get(server_tool, server_tool[1])
            call_counts.append(
                ToolCallCount(agent_name, agent.agent_id if agent else None, server_id, tool, count, last)
            )
    return call_counts


def load_listed_names_by_called_tool(server_ids: Iterable[str]) -> dict[ServerTool, str]:
    """Return the listed name of each tool that agents rename before they call it, by server and name in calls.

    A tool is left out where another one of its server has that name in calls: which of both is called is not known.
    """
    listed_names: dict[ServerTool, list[str]] = {}
    tools = McpTool.objects.filter(server_id__in=list(server_ids)).values_list("server_id", "name")
    for server_id, name in tools:
        listed_names.setdefault((server_id, name_in_calls(name)), []).append(name)
    return {called: names[0] for called, names in listed_names.items() if len(names) == 1}


def count_unknown_server_calls(start: datetime, server_ids: Iterable[str]) -> dict[str, int]:
    """Return how often servers were called from `start` on that are not among these, by the name in the calls."""
    servers, counts_by_server = list(server_ids), dict[str, int]()
    for _, call, count, _ in iterate_call_counts_by_agent(start):
        name, _, tool = call[len(PREFIX) :].partition("__")
        if tool and find_called_server_and_tool(call, servers) is None:
            counts_by_server[name] = counts_by_server.get(name, 0) + count
    return dict(sorted(counts_by_server.items()))


def iterate_call_counts_by_agent(start: datetime) -> Iterator[tuple[str, str, int, datetime]]:
    """Yield agent name, call, how often and when last, from the events received since `start`."""
    called = Event.objects.filter(
        context__received_at__gte=start, tool_name__gte=PREFIX, tool_name__lt="mcp_`"
    )
    rows = called.values_list("session__agent_name", "tool_name").annotate(
        # An executor may report a call's beginning, its end, or both, and the gateway may report the end, too.
        begun=Count("pk", filter=Q(event_type="pre_tool")),
        ended=Count("pk", filter=Q(event_type="post_tool") & ~Q(context__source=BY_GATEWAY)),
        passed=Count("pk", filter=Q(event_type="post_tool", context__source=BY_GATEWAY)),
        last=Max("context__instant_us"),
    )
    for agent_name, call, begun, ended, passed, last in rows:
        yield agent_name or "", call, max(begun, ended, passed), instants.instant_from_microseconds(last)
