"""What an agent may reach of all servers: whether it may call anything, and whether that has changed."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime

from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.models import McpServer, McpTool, McpUpstream
from coordinator.policy.grants import access
from coordinator.policy.rules import tool_rules


def has_reachable_tool(agent_id: str, now: datetime) -> bool:
    """Say whether the agent may call, or ask for, a tool of some server that is switched on."""
    policy = access.load_policy_for_agents([agent_id], None, now)
    for server_id in McpServer.objects.filter(is_active=True).values_list("name", flat=True):
        tools = {"", *policy.tools_with_grants(agent_id, server_id)}
        verdicts = policy.decide_tools_of_server(agent_id, server_id, tools, now)
        if any(not verdict.is_denied for verdict in verdicts.values()):
            return True
    return False


def hash_visible_tools(caller: GatewayCaller, now: datetime) -> str:
    """Return a digest of all tools that an agent may see, and of their definitions."""
    rules, policy = (
        tool_rules.load_saved_tool_rules(),
        access.load_policy_for_agents([caller.agent_id], None, now),
    )
    servers = set(McpServer.objects.filter(is_active=True).values_list("name", flat=True))
    servers -= set(McpUpstream.objects.filter(enabled=False).values_list("pk", flat=True))
    tools = McpTool.objects.filter(gone_at=None, server_id__in=servers).order_by("server_id", "name")
    visible_tools = [
        (server_id, tool, definition)
        for server_id, tool, definition in tools.values_list("server_id", "name", "definition_hash")
        if deciding.can_agent_see_tool(
            rules, policy.decide_tool_access(caller.agent_id, server_id, tool, now), caller, server_id, tool
        )
    ]
    return hashlib.sha256(json.dumps(visible_tools).encode()).hexdigest()
