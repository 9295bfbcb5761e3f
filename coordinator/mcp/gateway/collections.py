"""Collections: chosen tools of several servers, served at `/mcp/collections/NAME`.

A collection decides only what its address serves. What an agent may see and call there, its grants and the rules decide
as at `/mcp`.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.mcp.gateway.call_limits import WHOLE_SERVER
from coordinator.mcp.gateway.tool_search import filter_valid_server_tool_pairs
from coordinator.mcp.servers.names import COLLECTION_PREFIX, ServerTool
from coordinator.models import ToolCollection


@dataclass(frozen=True, slots=True)
class CollectionTools:
    """The tools of a collection. `tools` are servers and tools, with WHOLE_SERVER for all tools of a server."""

    name: str
    tools: frozenset[ServerTool]

    @property
    def endpoint_name(self) -> str:
        """Return the name of its address, which distinguishes sessions that were begun there."""
        return f"{COLLECTION_PREFIX}{self.name}"

    def has_tool(self, server_id: str, tool: str) -> bool:
        """Say whether its address serves a tool, as far as the agent may see it."""
        return not self.tools.isdisjoint({(server_id, tool), (server_id, WHOLE_SERVER)})

    def has_tool_of_server(self, server_id: str) -> bool:
        return any(server_id == chosen_server for chosen_server, _ in self.tools)


def load_collection_tools(name: str) -> CollectionTools | None:
    """Return the tools of a collection; None where there is none of this name."""
    row = ToolCollection.objects.filter(pk=name).first()
    return None if row is None else CollectionTools(row.name, filter_valid_server_tool_pairs(row.tools))
