"""Whether anything at the gateway is open to an agent at all."""

from __future__ import annotations

from datetime import datetime

from coordinator.models import McpServer
from coordinator.policy import access


def is_open(agent_id: str, now: datetime) -> bool:
    """Say whether the agent may call, or ask for, a tool of some server that is switched on."""
    policy = access.load([agent_id], None, now)
    for server_id in McpServer.objects.filter(is_active=True).values_list("name", flat=True):
        tools = {"", *policy.tools(agent_id, server_id)}
        verdicts = policy.row_of_verdicts(agent_id, server_id, tools, now)
        if any(not verdict.denied for verdict in verdicts.values()):
            return True
    return False
