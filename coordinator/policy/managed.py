"""What the grants say of a call by its name: which MCP servers are managed, and what becomes of those that are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from coordinator.mcp.names import PREFIX, ServerTool, name_in_calls, places
from coordinator.models import Grant, McpServer
from coordinator.models.mcp import DefaultPolicy
from coordinator.policy.access import SERVER_GRANT, TOOL_GRANT, Policy, Verdict, unknown


@dataclass(frozen=True, slots=True)
class ManagedServers:
    """The registered MCP servers, by name with their default policy; `granted` are servers that only grants name.

    `strict`: something is denied, so a call that fits none is denied, under whatever name it comes.
    """

    servers: Mapping[str, str] = field(default_factory=dict)
    granted: frozenset[str] = frozenset()
    strict: bool = False

    def places(self, call: str) -> list[ServerTool]:
        """Return the servers and tools that the call means: registered ones, else those that grants name."""
        return places(call, self.servers) or places(call, self.granted)

    def place(self, call: str) -> ServerTool | None:
        """Return one of `places`, else the names in the call; None for a built-in tool."""
        server_id, separator, tool = call.removeprefix(PREFIX).partition("__")
        if not call.startswith(PREFIX) or not (separator and server_id and tool):
            return None
        return next(iter(self.places(call)), (server_id, tool))

    def may_deny(self, call: str | None) -> bool:
        """Say whether grants may deny the call, whose name is None where it is not known."""
        if call is None:
            return self.strict
        return call.startswith(PREFIX) and (self.strict or bool(self.places(call)))

    def verdict(self, policy: Policy, call: str, agent_id: str, at: datetime) -> Verdict | None:
        """Return the strictest that the grants in `policy` say of the call.

        None where they say nothing: a built-in tool, or a server that nobody manages where nothing is denied.
        """
        if not call.startswith(PREFIX):
            return None
        verdicts = [
            policy.verdict(agent_id, server_id, tool, at)
            for server_id, name in self.places(call)
            for tool in _named_like(policy, agent_id, server_id, name)
        ]
        if verdicts:
            return min(verdicts, key=_leniency)
        server_id = call[len(PREFIX) :].partition("__")[0]
        return unknown(server_id) if self.strict else None


def _named_like(policy: Policy, agent_id: str, server_id: str, tool: str) -> list[str]:
    """Return the tools in rows with this name in calls, else the name itself."""
    return [name for name in policy.tools(agent_id, server_id) if name_in_calls(name) == tool] or [tool]


def _leniency(verdict: Verdict) -> int:
    """Order verdicts: denied, asked, allowed by default (the agent's own prompt stays in charge), by a grant."""
    if not verdict.allowed:
        return 1 if verdict.asks else 0
    return 2 if verdict.grant is None else 3


def load(now: datetime) -> ManagedServers:
    servers = dict(McpServer.objects.exclude(name=None).values_list("name", "default_policy"))
    grants = Grant.objects.filter(entry_type__in=[TOOL_GRANT, SERVER_GRANT]).standing(now)
    named = set(grants.values_list("server_id", flat=True).distinct())
    closed = any(default != DefaultPolicy.OPT_OUT for default in servers.values())
    return ManagedServers(servers, frozenset(named - servers.keys()), closed or bool(named))
