"""The stored tools of servers: parsing of a `tools/list`, detection of changes, and existing names."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from coordinator.errors import RequestTooLarge, UnprocessableRequest
from coordinator.lib import json_bounds
from coordinator.lib.storable import is_storable_text
from coordinator.mcp.servers import calls
from coordinator.models import Grant, McpTool
from coordinator.models.mcp import EntryType

LARGEST_LISTING = 2_000_000  # characters
MOST_TOOLS = 2_000
LONGEST_NAME = 200
MAX_LISTING_PAGES = 20
MAX_DEFINITION_BYTES = 128 * 1024  # of one tool, as JSON; the largest of real servers have some 30 kB
REPLACEMENT = "\ufffd"  # replaces a lone surrogate: a server does not know its tool by that name
SEEN_WITHIN = timedelta(days=30)
# What a model acts upon; the rest (icons, _meta, ttl) may change without the tool becoming another one.
DEFINING = ("title", "description", "inputSchema", "outputSchema", "annotations")

READ_MEMBERS = {
    member: member.casefold() for member in ("name", *DEFINING)
}  # some clients read these in any case


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """One tool as a server lists it."""

    name: str
    content: dict[str, Any]

    @property
    def definition_digest(self) -> str:
        """Return the SHA-256 of the definition in canonical JSON."""
        return hash_tool_definition(self.content)


@dataclass(frozen=True, slots=True)
class SkippedTool:
    """A tool that is not taken over, and why. `position` is its place in its list, from 1."""

    position: int
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolListing:
    """A `tools/list` answer. One page of several is not `complete`: it says nothing about tools it lacks."""

    tools: list[ToolDefinition]
    complete: bool
    left_out: list[SkippedTool] = field(default_factory=list)
    cut_off: str = ""  # why the server was not asked for the rest


def hash_tool_definition(content: dict[str, Any]) -> str:
    """Return a digest of a tool definition that does not depend on the order of keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def parse_pasted_tool_listing(text: str) -> ToolListing:
    """Read a pasted `tools/list`: the JSON-RPC answer, its result, or the array of tools.

    Raises UnprocessableRequest, saying what is wrong where, or RequestTooLarge.
    """
    if len(text) > LARGEST_LISTING:
        raise RequestTooLarge(f"The list is longer than {LARGEST_LISTING} characters.")
    try:
        value = json_bounds.load_bounded_json(text)
    except (ValueError, RecursionError) as problem:
        raise UnprocessableRequest(f"This is not JSON: {problem}.") from None
    listing = parse_decoded_tool_listing(value)
    if listing.left_out:
        raise UnprocessableRequest(listing.left_out[0].reason)
    return listing


UNREADABLE_CURSOR = "The list was cut off: its cursor is no text. Tools on later pages are not known."


def skipped_page_reason_or_empty(cursor: str, cursors: Collection[str]) -> str:
    """Return why the page at `cursor` is not asked for; nothing where it is. `cursors` led to the pages so far."""
    if cursor in cursors:
        return (
            f"The list was cut off after {len(cursors) + 1} pages: its cursor stands still, so it has no end."
        )
    if len(cursors) + 1 >= MAX_LISTING_PAGES:
        return f"The list was cut off after {MAX_LISTING_PAGES} pages. Tools on later pages are not known."
    return ""


def parse_decoded_tool_listing(value: Any) -> ToolListing:
    """Read a decoded `tools/list`; a tool that cannot be taken over is left out.

    Raises UnprocessableRequest for what is none.
    """
    if isinstance(value, dict) and isinstance(value.get("error"), dict):
        raise UnprocessableRequest(
            f"The server answered with an error: {value['error'].get('message', 'no message')}."
        )
    result = value.get("result", value) if isinstance(value, dict) else {"tools": value}
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(tools, list):
        raise UnprocessableRequest("It contains no list of tools. Paste the whole answer to tools/list.")
    read, left_out = dict[int, ToolDefinition](), list[SkippedTool]()
    for position, tool in enumerate(tools, 1):
        try:
            if position > MOST_TOOLS:
                raise UnprocessableRequest(f"It lists more than {MOST_TOOLS} tools.")
            read[position] = parse_tool_definition(tool, position)
        except UnprocessableRequest as problem:
            left_out.append(SkippedTool(position, tool_name_or_position(tool, position), str(problem.detail)))
    counts = Counter(tool.name for tool in read.values())
    for position, tool in list(read.items()):
        if counts[tool.name] > 1:  # which of them an agent would call is not known
            del read[position]
            left_out.append(
                SkippedTool(position, tool.name, f"It lists two tools with the same name: {tool.name}.")
            )
    return ToolListing(list(read.values()), result.get("nextCursor") is None, left_out)


def tool_name_or_position(tool: Any, index: int) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return (
        name[:LONGEST_NAME] if isinstance(name, str) and is_storable_text(name) and name else f"tool {index}"
    )


def parse_tool_definition(tool: Any, index: int) -> ToolDefinition:
    if not isinstance(tool, dict):
        raise UnprocessableRequest(f"Tool {index} is no object that can be read.")
    name = tool.get("name")
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
        raise UnprocessableRequest(f"Tool {index} needs a name of at most {LONGEST_NAME} characters.")
    for key in tool:
        if key not in READ_MEMBERS and key.casefold() in READ_MEMBERS.values():
            raise UnprocessableRequest(
                f"{name}: it spells {key[:LONGEST_NAME]} with other capitals than MCP."
            )
    for key, kind in (
        ("title", str),
        ("description", str),
        ("inputSchema", dict),
        ("outputSchema", dict),
        ("annotations", dict),
    ):
        if tool.get(key) is not None and not isinstance(tool[key], kind):
            raise UnprocessableRequest(f"{name}: its {key} must be {'text' if kind is str else 'an object'}.")
    for key in ("inputSchema", "outputSchema"):
        kinds = (tool.get(key) or {}).get("type", "object")
        if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
            raise UnprocessableRequest(f"{name}: its {key} must have the type object.")
    content = {key: tool[key] for key in DEFINING if tool.get(key) is not None}
    try:
        text = json.dumps([name, content], ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (ValueError, RecursionError):
        text, size = "", None
    if size is None or "\\u0000" in text.replace("\\\\", "") or REPLACEMENT in name:
        raise UnprocessableRequest(
            f"Tool {index} holds a NUL character, a lone surrogate or a number that JSON has no form for."
        )
    if size > MAX_DEFINITION_BYTES:
        raise UnprocessableRequest(
            f"{name}: its definition is larger than {MAX_DEFINITION_BYTES // 1024} KiB."
        )
    return ToolDefinition(name, content)


def build_definition_content(tool: McpTool) -> dict[str, Any]:
    """Return the stored definition in the words of `tools/list`."""
    columns = {
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
    }
    return {key: value for key, value in columns.items() if value is not None}


def accepted_and_current_definition_lines(tool: McpTool) -> tuple[list[str], list[str]]:
    """Return the lines of the accepted and of the present definition, to be compared."""
    return indented_json_lines(tool.accepted or {}), indented_json_lines(build_definition_content(tool))


def indented_json_lines(value: Any) -> list[str]:
    """Return JSON with a line for each value, and texts broken at their own lines."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).replace("\\n", "\n").splitlines()


def collect_tool_names_by_server(
    server_ids: Collection[str], *, seen_by: datetime | None = None
) -> dict[str, list[str]]:
    """Return every tool name of these servers: listed, named by a grant and, with `seen_by`, recently called."""
    names_by_server: dict[str, set[str]] = {name: set() for name in server_ids}
    listed = McpTool.objects.filter(server_id__in=server_ids).values_list("server_id", "name")
    granted = (
        Grant.objects.filter(entry_type=EntryType.TOOL_GRANT, server_id__in=server_ids)
        .exclude(tool_name__isnull=True)
        .values_list("server_id", "tool_name")
        .distinct()
    )
    recently_called_tools = (
        find_recently_called_server_tools(server_ids, seen_by) if seen_by is not None else ()
    )
    for server_id, tool in (*listed, *granted, *recently_called_tools):
        if tool:
            names_by_server[server_id].add(tool)
    return {server_id: sorted(names) for server_id, names in names_by_server.items()}


def find_recently_called_server_tools(server_ids: Iterable[str], now: datetime) -> set[tuple[str, str]]:
    """Return the server and name of every tool that sessions of the last 30 days called."""
    return {
        (call.server_id, call.tool_name)
        for call in calls.list_tool_call_counts_since(now - SEEN_WITHIN, server_ids)
    }
