"""Verdicts of the grants on a call by its name: which MCP servers are managed, and how calls of others are treated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from coordinator.mcp.servers.names import PREFIX, ServerTool, find_server_tools_meant_by_call, name_in_calls
from coordinator.models import Grant, McpServer
from coordinator.models.mcp import DefaultPolicy
from coordinator.policy.grants.access import (
    SERVER_GRANT,
    TOOL_GRANT,
    AccessPolicy,
    Verdict,
    build_unknown_server_denial,
)


@dataclass(frozen=True, slots=True)
class ManagedServers:
    """The registered MCP servers, by name with their default policy; `granted` are servers that only grants name.

    `strict`: something is denied, so a call that fits none is denied, under whatever name it comes.
    """

    servers: Mapping[str, str] = field(default_factory=dict)
    granted: frozenset[str] = frozenset()
    strict: bool = False

    def find_server_tools_of_call(self, call: str) -> list[ServerTool]:
        """Return the servers and tools that the call means: registered ones, else those that grants name."""
        return find_server_tools_meant_by_call(call, self.servers) or find_server_tools_meant_by_call(
            call, self.granted
        )

    def resolve_server_tool_of_call(self, call: str) -> ServerTool | None:
        """Return one of `find_server_tools_meant_by_call`, else the names in the call; None for a built-in tool."""
        server_id, separator, tool = call.removeprefix(PREFIX).partition("__")
        if not call.startswith(PREFIX) or not (separator and server_id and tool):
            return None
        return next(iter(self.find_server_tools_of_call(call)), (server_id, tool))

    def can_grants_deny_call(self, call: str | None) -> bool:
        """Say whether grants may deny the call, whose name is None where it is not known."""
        if call is None:
            return self.strict
        return call.startswith(PREFIX) and (self.strict or bool(self.find_server_tools_of_call(call)))

    def decide_call_by_grants(
        self, policy: AccessPolicy, call: str, agent_id: str, at: datetime
    ) -> Verdict | None:
        """Return the strictest that the grants in `policy` say of the call.

        None where they say nothing: a built-in tool, or a server that nobody manages where nothing is denied.
        """
        if not call.startswith(PREFIX):
            return None
        verdicts = [
            policy.decide_tool_access(agent_id, server_id, tool, at)
            for server_id, name in self.find_server_tools_of_call(call)
            for tool in list_tool_names_matching_call(policy, agent_id, server_id, name)
        ]
        if verdicts:
            return min(verdicts, key=verdict_leniency_sort_key)
        server_id = call[len(PREFIX) :].partition("__")[0]
        return build_unknown_server_denial(server_id) if self.strict else None


def list_tool_names_matching_call(
    policy: AccessPolicy, agent_id: str, server_id: str, tool: str
) -> list[str]:
    """Return the tools in rows with this name in calls, else the name itself."""
    return [
        name
        for name in policy.tools_with_grants_or_changes(agent_id, server_id)
        if name_in_calls(name) == tool
    ] or [tool]


def verdict_leniency_sort_key(verdict: Verdict) -> int:
    """Order verdicts: denied, asked, allowed by default (the agent's own prompt stays in charge), by a grant."""
    if not verdict.is_allowed:
        return 1 if verdict.requires_approval else 0
    return 2 if verdict.grant is None else 3


def load_managed_servers(now: datetime) -> ManagedServers:
    servers = dict(McpServer.objects.exclude(name=None).values_list("name", "default_policy"))
    grants = Grant.objects.filter(entry_type__in=[TOOL_GRANT, SERVER_GRANT]).not_ended(now)
    granted_servers = set(grants.values_list("server_id", flat=True).distinct())
    closed = any(default != DefaultPolicy.OPT_OUT for default in servers.values())
    return ManagedServers(
        servers, frozenset(granted_servers - servers.keys()), closed or bool(granted_servers)
    )
