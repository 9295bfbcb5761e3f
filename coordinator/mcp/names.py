"""Which registered MCP server and tool a call means: agents rename servers and tools before they call them.

A call is named `mcp__server__tool`, or `mcp__plugin_<plugin>_<server>__tool` for the server of a plugin. In both
names each character other than letters, digits, _ and - stands as _, so a call may fit several servers.

What an agent calls through Signalbox's own gateway is named `mcp__signalbox__server__tool`, and means that server's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PREFIX = "mcp__"
GATEWAY = "signalbox"  # as `signalbox connect` calls it in agents' settings
PLUGIN = "plugin_"
# Claude Code also joins the underscores in the names of the servers that an account on claude.ai brings along.
ACCOUNT = "claude.ai "
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")

Place = tuple[str, str]  # a server and a tool


def name_in_calls(name: str) -> str:
    """Return a server's or tool's name as it is written in calls."""
    return _NOT_IN_NAMES.sub("_", name)


def spellings(server_id: str) -> set[str]:
    """Return the names under which a server is called."""
    name = name_in_calls(server_id)
    joined = re.sub(r"_+", "_", name).strip("_") if server_id.startswith(ACCOUNT) else ""
    return {one for one in (name, joined) if one}


def places(call: str, server_ids: Iterable[str]) -> list[Place]:
    """Return which of `server_ids`, with which tool, the call means: those of the longest name that fits."""
    if not call.startswith(PREFIX):
        return []
    names = [(server_id, name) for server_id in server_ids for name in spellings(server_id)]
    inner = behind_gateway(call)
    if inner is not None and all(name != GATEWAY for _, name in names):
        call = inner
    rest = call[len(PREFIX) :]
    found = [(len(name), server_id, tool) for server_id, name in names for tool in _tools(rest, name)]
    longest = max((length for length, _, _ in found), default=0)
    return sorted({(server_id, tool) for length, server_id, tool in found if length == longest})


def behind_gateway(call: str) -> str | None:
    """Return the call that is meant where one goes through Signalbox's gateway, else None."""
    rest = call.removeprefix(f"{PREFIX}{GATEWAY}__")
    return f"{PREFIX}{rest}" if rest != call and "__" in rest else None


def _tools(rest: str, server: str) -> list[str]:
    """Return the tools that `rest` may name on a server called `server`: its own, or those of a plugin's."""
    beginnings = [0] if rest.startswith(f"{server}__") else []
    if rest.startswith(PLUGIN):
        # The plugin's name stands between; it ends where the server's begins, before any `__`.
        first = rest.find("__", len(PLUGIN))
        at = rest.find(f"_{server}__", len(PLUGIN) + 1)
        while 0 <= at <= first:
            beginnings.append(at + 1)
            at = rest.find(f"_{server}__", at + 1)
    tools = (rest[at + len(server) + 2 :] for at in beginnings)
    return [tool for tool in tools if tool]
