"""The servers and tools that an agent may reach: whether it may call anything, and whether that has changed."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import Any

from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway import tool_search
from coordinator.mcp.gateway.collections import load_collection_tools
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.models import McpServer, McpTool, McpUpstream
from coordinator.policy.grants import access
from coordinator.policy.rules import tool_rules


def can_agent_reach_any_tool(agent_id: str, now: datetime) -> bool:
    """Say whether the agent may call, or ask for, a tool of some server that is switched on."""
    policy = access.load_policy_for_agents([agent_id], None, now)
    for server_id in McpServer.objects.filter(is_active=True).values_list("name", flat=True):
        tools = {"", *policy.tools_with_grants_or_changes(agent_id, server_id)}
        verdicts = policy.verdicts_by_tool_of_server(agent_id, server_id, tools, now)
        if any(not verdict.is_denied for verdict in verdicts.values()):
            return True
    return False


def load_visible_tool_rows(caller: GatewayCaller, now: datetime, *columns: str) -> list[tuple[Any, ...]]:
    """Return all tools that an agent may see: of each its server, its name and these columns."""
    rules, policy = (
        tool_rules.load_saved_tool_rules(),
        access.load_policy_for_agents([caller.agent_id], None, now),
    )
    servers = set(McpServer.objects.filter(is_active=True).values_list("name", flat=True))
    servers -= set(McpUpstream.objects.filter(enabled=False).values_list("pk", flat=True))
    tools = McpTool.objects.filter(gone_at=None, server_id__in=servers).order_by("server_id", "name")
    return [
        (server_id, tool, *values)
        for server_id, tool, *values in tools.values_list("server_id", "name", *columns)
        if deciding.can_agent_see_tool(
            rules, policy.decide_tool_access(caller.agent_id, server_id, tool, now), caller, server_id, tool
        )
    ]


def hash_visible_tools(caller: GatewayCaller, now: datetime, collection_name: str | None = None) -> str:
    """Return a digest of all tools that an agent is shown, of a collection if one is named, with their definitions."""
    collection = None if collection_name is None else load_collection_tools(collection_name)
    shown_tools = tool_search.load_tool_listing_setting(caller.agent_id)
    visible_tools = load_visible_tool_rows(caller, now, "definition_hash", "short_for", "short_description")
    if collection_name is not None:
        visible_tools = [
            tool for tool in visible_tools if collection and collection.has_tool(tool[0], tool[1])
        ]
    text = json.dumps(
        [shown_tools.listed, *(tool for tool in visible_tools if shown_tools.is_tool_shown(tool[0], tool[1]))]
    )
    return hashlib.sha256(text.encode()).hexdigest()
