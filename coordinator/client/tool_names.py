"""Names of MCP tools, the same for every agent; used by the server and by the program on agents' machines.

Agents name such calls in their own ways, some with the server's and the tool's name as people wrote them. Rules and
grants know one name: `mcp__server__tool`, in which each character other than letters, digits, _ and - becomes _.
"""

from __future__ import annotations

PREFIX = "mcp__"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def escape_tool_name(name: str) -> str:
    """Return a server's or tool's name as it is written in calls."""
    return "".join(sign if sign in _PLAIN else "_" for sign in name)


def build_mcp_call_name(server: str, tool: str) -> str:
    """Return the name of a call of this server's tool."""
    return f"{PREFIX}{escape_tool_name(server)}__{escape_tool_name(tool)}"
