"""Signalbox's MCP gateway as an agent is given it when its session opens: its address, and a key of the agent's own.

The key comes from the server for this one process of the agent, and ends with it. It is never the runner's, and it
is only in the message to the agent: not in its environment, not in a file, not in anything that is logged.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coordinator.runner.environment import SESSION
from coordinator.runner.errors import ServerRefused
from coordinator.runner.server import SignalboxServer

log = logging.getLogger("signalbox.runner")

NAME = "signalbox"  # as agents know it, and as rules read `mcp__signalbox__server__tool`
TOO_OLD = 404  # a server without this endpoint


@dataclass(frozen=True, slots=True)
class AgentGateway:
    """Where the gateway is, as which agent it is called, and with which key ("" where the server asks for none)."""

    url: str
    session_id: str
    agent_id: str
    key: str = field(repr=False)

    def build_gateway_server_entry(self, capabilities: dict[str, Any]) -> dict[str, Any]:
        """Return it as one of `mcpServers`: over HTTP where the agent says that it can, else `signalbox mcp`."""
        kinds = capabilities.get("mcpCapabilities")
        if isinstance(kinds, dict) and kinds.get("http"):
            own = (
                {"Authorization": f"Bearer {self.key}"} if self.key else {"X-Signalbox-Agent": self.agent_id}
            )
            headers = format_name_value_pairs({"X-Signalbox-Session": self.session_id, **own})
            return {"type": "http", "name": NAME, "url": f"{self.url}/mcp", "headers": headers}
        command, *arguments = find_signalbox_client_command()
        env = {
            "SIGNALBOX_URL": self.url,
            "SIGNALBOX_KEY": self.key,
            "SIGNALBOX_AGENT": self.agent_id,
            SESSION: self.session_id,
        }
        if arguments:  # not installed: the package is found where this runner found it
            env["PYTHONPATH"] = str(Path(__file__).parents[2])
        return {
            "name": NAME,
            "command": command,
            "args": [*arguments, "mcp"],
            "env": format_name_value_pairs(env),
        }


async def fetch_agent_gateway_or_none(
    server: SignalboxServer, url: str, session_id: str, agent: str
) -> AgentGateway | None:
    """Return the gateway for an agent that is about to start; None where it gets none. Raises Unreachable."""
    try:
        access = await server.post_to_session_endpoint(session_id, "gateway", agent=agent)
    except ServerRefused as problem:
        if problem.status != TOO_OLD:
            log.warning("The agent of session %s gets no MCP gateway: %s", session_id, problem)
        return None
    key, agent_id = access.get("key"), access.get("agent_id")
    if not isinstance(key, str) or not isinstance(agent_id, str):
        return None
    return AgentGateway(url, session_id, agent_id, key)


def find_signalbox_client_command() -> tuple[str, ...]:
    sibling = os.path.join(os.path.dirname(sys.executable), "signalbox")
    return (sibling,) if os.access(sibling, os.X_OK) else (sys.executable, "-m", "coordinator.client.main")


def format_name_value_pairs(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]
