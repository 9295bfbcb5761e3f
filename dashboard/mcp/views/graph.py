"""Grants as a graph: which agent may use which server, and which of its tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from coordinator.identity.declarations import require_safe
from coordinator.models import Grant, McpServer
from coordinator.models.agent_names import LinkedAgent, agent_labels_by_id, load_linked_agents_by_name
from coordinator.models.mcp import GrantWord
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.looks.charts import LinkGraph, OutlineNode, build_link_graph
from dashboard.mcp.access_sheet import list_agent_ids_including_unknown

MOST_GRANTS = 60  # a graph with more is unreadable
MIXED = "mixed"


@require_safe
@require_viewer_role
def show_grant_graph(request: HtmxHttpRequest) -> HttpResponse:
    """Draw the grants that have not ended, of all agents and servers, or of one agent or server."""
    agent, server = (request.GET.get(name, "")[:300] for name in ("agent", "server"))
    rows = Grant.objects.not_ended(timezone.now()).exclude(entry_type=Grant.EntryType.CAPABILITY)
    rows = rows.filter(agent_id=agent) if agent else rows
    rows = rows.filter(server_id=server) if server else rows
    grants = list(rows.order_by("agent_id", "server_id", "tool_name", "id")[: MOST_GRANTS + 1])
    more = rows.count() - MOST_GRANTS if len(grants) > MOST_GRANTS else 0
    grants = grants[:MOST_GRANTS]
    linked = load_linked_agents_by_name(grant.agent_id for grant in grants)
    context = {
        "agent": agent,
        "server": server,
        "agents": list_agent_ids_including_unknown(),
        "servers": list(McpServer.objects.exclude(name=None).order_by("name").values_list("name", flat=True)),
        "grants": grants,
        "more": more,
        "tones": [*GrantWord.values, MIXED],
        "agent_labels": agent_labels_by_id(),
        "graph": build_grant_graph(grants, linked),
        "outline": build_grant_outline(grants, linked),
    }
    return render(request, "mcp/graph.html", context)


def build_grant_graph(grants: Sequence[Grant], linked: dict[str, LinkedAgent]) -> LinkGraph:
    """Return the graph of agents, servers and tools. A linked agent's name is shown only for its own id."""
    agents: dict[Any, tuple[str, str]] = {}
    servers: dict[Any, tuple[str, str]] = {}
    tools: dict[Any, tuple[str, str]] = {}
    own_words: dict[tuple[Any, Any], str] = {}
    tool_words: dict[tuple[Any, Any], set[str]] = {}
    for grant in grants:
        agents[grant.agent_id] = (
            find_agent_label(grant.agent_id, linked),
            build_sheet_url(agent=grant.agent_id),
        )
        servers[grant.server_id] = (grant.server_id, build_sheet_url(server=grant.server_id))
        pair = (grant.agent_id, grant.server_id)
        if grant.tool_name is None:
            own_words[pair] = grant.effective_permission
        else:
            own_words.setdefault(pair, "")
            tool = (grant.server_id, grant.tool_name)
            tools[tool] = (grant.tool_name, build_sheet_url(server=grant.server_id, tool=grant.tool_name))
            tool_words.setdefault((grant.server_id, tool), set()).add(grant.effective_permission)
    ordered_tools = dict(sorted(tools.items()))
    links = [
        (
            (0, agent_id),
            (1, server_id),
            css_tone_of_permissions([word] if word else []),
            f"{agent_id} on {server_id}: {word or 'single tools'}",
        )
        for (agent_id, server_id), word in own_words.items()
    ] + [
        (
            (1, server_id),
            (2, tool),
            css_tone_of_permissions(words),
            f"{tool[1]} of {server_id}: {', '.join(sorted(words))}",
        )
        for (server_id, tool), words in tool_words.items()
    ]
    return build_link_graph([agents, dict(sorted(servers.items())), ordered_tools], links)


def build_grant_outline(grants: Sequence[Grant], linked: dict[str, LinkedAgent]) -> list[OutlineNode]:
    """Return the agents of these grants as a nested list, with their servers and the named tools."""
    agents: dict[str, OutlineNode] = {}
    servers: dict[tuple[str, str], OutlineNode] = {}
    for grant in grants:
        if grant.agent_id not in agents:
            label = find_agent_label(grant.agent_id, linked)
            agents[grant.agent_id] = OutlineNode(label, build_sheet_url(agent=grant.agent_id))
        pair = (grant.agent_id, grant.server_id)
        if pair not in servers:
            url = build_sheet_url(server=grant.server_id)
            servers[pair] = OutlineNode(grant.server_id, url, "none", "single tools")
            agents[grant.agent_id].children.append(servers[pair])
        word = grant.effective_permission
        if grant.tool_name is None:
            servers[pair].tone, servers[pair].note = css_tone_of_permissions([word]), word
        else:
            url = build_sheet_url(server=grant.server_id, tool=grant.tool_name)
            servers[pair].children.append(
                OutlineNode(grant.tool_name, url, css_tone_of_permissions([word]), word)
            )
    return list(agents.values())


def find_agent_label(agent_id: str, linked: dict[str, LinkedAgent]) -> str:
    agent = linked.get(agent_id)
    return agent.agent_name if agent is not None and agent.agent_id == agent_id else agent_id


def css_tone_of_permissions(words: Sequence[str] | set[str]) -> str:
    """Return the CSS class of a line with these permissions.

    It is "none" for a line without permissions, which only leads to the tools.
    """
    grant_words = set(GrantWord.values)
    if not words:
        return "none"
    word, *other_words = words
    return MIXED if other_words or word not in grant_words else word


def build_sheet_url(**query: str) -> str:
    return f"{reverse('mcp:sheet')}?{urlencode(query)}"
