"""Resolution of a call's name to a registered MCP server and tool: agents rename both before they call them.

A call is named `mcp__server__tool`, or `mcp__plugin_<plugin>_<server>__tool` for the server of a plugin. In both
names each character other than letters, digits, _ and - is replaced by _, so a call may fit several servers.

What an agent calls through Signalbox's own gateway is named `mcp__signalbox__server__tool`, and means that server's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from coordinator.client import tool_names
from coordinator.errors import UnprocessableRequest

PREFIX = tool_names.PREFIX
name_in_calls = tool_names.escape_tool_name
COLLECTION_PREFIX = "collections/"  # how the addresses of collections of tools begin, after `/mcp/`
GATEWAY = "signalbox"  # as `signalbox connect` calls it in agents' settings
PLUGIN = "plugin_"
# The gateway's own two tools, by which an agent finds and calls those that its model is not shown.
FIND_TOOLS, CALL_TOOL = "find_tools", "call_tool"
# Claude Code also joins the underscores in the names of the servers that an account on claude.ai brings along.
ACCOUNT = "claude.ai "

ServerTool = tuple[str, str]  # a server and a tool


def server_call_name_spellings(server_id: str) -> set[str]:
    """Return the names under which a server is called."""
    name = name_in_calls(server_id)
    joined = re.sub(r"_+", "_", name).strip("_") if server_id.startswith(ACCOUNT) else ""
    return {spelling for spelling in (name, joined) if spelling}


def find_shadowing_server(server_id: str, tool: str, server_ids: Iterable[str]) -> str | None:
    """Return the other one of `server_ids` that a call of this tool is read as; None where it can mean no other.

    Tool `b__run` of server `a` and tool `run` of server `a__b` are both called `a__b__run`: the longer name has it.
    """
    own = name_in_calls(server_id)
    call = f"{own}__{name_in_calls(tool)}"
    for other in server_ids:
        longer = (name for name in server_call_name_spellings(other) if len(name) > len(own))
        if other != server_id and any(list_tools_meant_on_server(call, name) for name in longer):
            return other
    return None


def find_server_tools_meant_by_call(call: str, server_ids: Iterable[str]) -> list[ServerTool]:
    """Return which of `server_ids`, with which tool, the call means: those of the longest name that fits.

    One that may have gone through the gateway means what it names there, and a server that has our name as well.
    """
    if not call.startswith(PREFIX):
        return []
    names = [(server_id, name) for server_id in server_ids for name in server_call_name_spellings(server_id)]
    inner = unwrap_gateway_call_or_none(call)
    return sorted(
        {
            *find_tools_with_longest_server_name(call, names),
            *(find_tools_with_longest_server_name(inner, names) if inner else ()),
        }
    )


def find_tools_with_longest_server_name(call: str, names: Iterable[tuple[str, str]]) -> set[ServerTool]:
    rest = call[len(PREFIX) :]
    matching_names = [
        (len(name), server_id, tool)
        for server_id, name in names
        for tool in list_tools_meant_on_server(rest, name)
    ]
    longest = max((length for length, _, _ in matching_names), default=0)
    return {(server_id, tool) for length, server_id, tool in matching_names if length == longest}


def is_reserved_gateway_server_name(server_id: str) -> bool:
    """Say whether a server of this name would be taken for our gateway, or for one of the servers behind it.

    The address of one whose name begins with `collections/` is that of a collection.
    """
    return server_id.startswith(COLLECTION_PREFIX) or any(
        name == GATEWAY or name.startswith(f"{GATEWAY}__") for name in server_call_name_spellings(server_id)
    )


def refuse_reserved_gateway_name(server_id: str) -> None:
    """Raise UnprocessableRequest for such a name."""
    if is_reserved_gateway_server_name(server_id):
        raise UnprocessableRequest(
            f"A server cannot be called {server_id!r}: Signalbox's own tools and addresses have such names."
        )


def unwrap_gateway_call_or_none(call: str) -> str | None:
    """Return the call that is meant where one goes through Signalbox's gateway, else None."""
    rest = call.removeprefix(f"{PREFIX}{GATEWAY}__")
    return f"{PREFIX}{rest}" if rest != call and "__" in rest else None


def server_call_prefix_or_empty(call: str, server_ids: Iterable[str]) -> str:
    """Return what calls of the tools of this call's server begin with; nothing where it is none of `server_ids`."""
    rest = call.removeprefix(PREFIX)
    if rest == call:
        return ""
    names = {name for server_id in server_ids for name in server_call_name_spellings(server_id)}
    ends = (
        (len(name), start + len(name) + 2)
        for name in names
        for start in find_server_name_positions(rest, name)
    )
    _, end = max(ends, default=(0, 0))
    return f"{PREFIX}{rest[:end]}" if end else ""


def is_prefix_of_other_server_calls(begun: str, server_ids: Iterable[str]) -> bool:
    """Say whether `begun`, which names a server of its own, begins calls of one of `server_ids` with a longer name."""
    rest = begun.removeprefix(PREFIX)
    if rest == begun or "__" not in rest:
        return False
    starts = [0]
    if rest.startswith(PLUGIN):
        starts += [
            at for at in range(len(PLUGIN) + 2, rest.find("__", len(PLUGIN)) + 2) if rest[at - 1] == "_"
        ]
    begins = [f"{name}__" for server_id in server_ids for name in server_call_name_spellings(server_id)]
    return any(
        other_name != rest[at:] and other_name.startswith(rest[at:]) for at in starts for other_name in begins
    )


def list_tools_meant_on_server(rest: str, server: str) -> list[str]:
    """Return the tools that `rest` may name on a server called `server`: its own, or those of a plugin's."""
    tools = (rest[start + len(server) + 2 :] for start in find_server_name_positions(rest, server))
    return [tool for tool in tools if tool]


def find_server_name_positions(rest: str, server: str) -> list[int]:
    """Return where in `rest` the server's name may begin: in front, or behind a plugin's, in which is no `__`."""
    starts = [0] if rest.startswith(f"{server}__") else []
    if rest.startswith(PLUGIN):
        first = rest.find("__", len(PLUGIN))
        at = rest.find(f"_{server}__", len(PLUGIN) + 1)
        while 0 <= at <= first:
            starts.append(at + 1)
            at = rest.find(f"_{server}__", at + 1)
    return starts
