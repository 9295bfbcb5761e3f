"""Tool search: the tools that an agent's model is shown, and the two by which it finds and calls the others.

This is about the size of the model's context alone. What an agent may call, its grants and the rules decide: a call by
`call_tool` becomes a call of the tool that it names before anything judges it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from coordinator.mcp.protocol import messages
from coordinator.mcp.protocol.messages import INVALID_PARAMS, McpMessage, UnreadableMessage
from coordinator.mcp.servers.names import CALL_TOOL, FIND_TOOLS, ServerTool
from coordinator.models import AgentToolListing
from coordinator.models.mcp import ListedTools

BYTES_PER_TOKEN = 4  # an estimate: what models count differs
DEFAULT_FOUND_TOOLS, MAX_FOUND_TOOLS = 8, 25
MAX_FOUND_BYTES = 128 * 1024
MAX_QUERY_LENGTH = 1_000
NAME_POINTS, PART_POINTS, TEXT_POINTS = 6, 3, 1  # a word is one of the name, a part of it, or somewhere else
SEARCH_TOOLS: tuple[dict[str, Any], ...] = (
    {
        "name": FIND_TOOLS,
        "description": "Find tools of the MCP servers that are open to you. Returns definitions of the tools that fit "
        f"best. Call one with {CALL_TOOL}.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "What the tool shall do, in a few words. Empty: the names of all tools.",
                },
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND_TOOLS},
            },
            "required": ["query"],
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": CALL_TOOL,
        "description": f"Call a tool that {FIND_TOOLS} returned.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": f"The tool's name as {FIND_TOOLS} returned it."},
                "arguments": {"type": "object", "description": "The tool's arguments, by its inputSchema."},
            },
            "required": ["name"],
        },
    },
)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class ShownTools:
    """Which tools an agent's model is shown."""

    listed: ListedTools = ListedTools.ALL
    chosen: frozenset[ServerTool] = frozenset()

    def is_tool_shown(self, server_id: str, tool: str) -> bool:
        """Say whether a tool that the agent may see is listed, or can be found."""
        return self.listed is not ListedTools.CHOSEN or (server_id, tool) in self.chosen


def load_tool_listing_setting(agent_id: str) -> ShownTools:
    """Return which tools the agent's model is shown: all where nobody chose, or the choice cannot be read."""
    row = AgentToolListing.objects.filter(pk=agent_id).first()
    if row is None or row.listed not in ListedTools.values:
        return ShownTools()
    return ShownTools(ListedTools(row.listed), filter_valid_server_tool_pairs(row.tools))


def filter_valid_server_tool_pairs(value: Any) -> frozenset[ServerTool]:
    """Return the servers and tools of a stored list of pairs; what is none is left out."""
    return frozenset(
        (pair[0], pair[1])
        for pair in (value if isinstance(value, list) else [])
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(name, str) for name in pair)
    )


def estimate_tokens_of_definition(definition: Mapping[str, Any]) -> int:
    """Return about how many tokens a tool's definition takes in a model's context."""
    return -(-len(_encode(definition)) // BYTES_PER_TOKEN)


def unwrap_call_tool_message(message: McpMessage) -> McpMessage:
    """Return a call by `call_tool` as the call of the tool that it names, with its arguments as the bytes that came.

    Raises UnreadableMessage.
    """
    arguments = message.params.get("arguments")
    name = arguments.get("name") if isinstance(arguments, dict) else None
    if not isinstance(arguments, dict) or not isinstance(name, str) or set(arguments) - {"name", "arguments"}:
        raise UnreadableMessage(INVALID_PARAMS, f"{CALL_TOOL} takes the name of a tool and its arguments.")
    if not isinstance(arguments.get("arguments", {}), dict):
        raise UnreadableMessage(INVALID_PARAMS, "The arguments of the tool must be an object.")
    fields = _fields(message.raw)
    params = _fields(fields["params"])
    inner = _fields(params["arguments"])
    params = params | {"name": inner["name"], "arguments": inner.get("arguments", msgspec.Raw(b"{}"))}
    return messages.parse_mcp_message(_encode(fields | {"params": msgspec.Raw(_encode(params))}))


class SearchableTool(msgspec.Struct):
    """What a search looks at of a tool."""

    name: str
    title: Any = None
    description: Any = None
    inputSchema: Any = None  # as the protocol spells it

    def score_match_with_query(self, words: Sequence[str]) -> int:
        """Return how well the tool fits the words of a query; 0 for not at all."""
        name = self.name.casefold()
        name_words = set(split_words(self.name))
        schema = self.inputSchema if isinstance(self.inputSchema, dict) else {}
        properties = schema.get("properties")
        text = f"{self.title} {self.description} {list(properties) if isinstance(properties, dict) else ''}".casefold()
        return sum(
            NAME_POINTS
            if word in name_words
            else PART_POINTS
            if word in name
            else TEXT_POINTS * (word in text)
            for word in words
        )


_found_tool = msgspec.json.Decoder(SearchableTool).decode


def split_words(text: str) -> list[str]:
    """Return the words of a query or a name, also of one in camel case."""
    return re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).casefold())


def find_tools(tools: Sequence[bytes], query: str, limit: int, unreachable: Sequence[str]) -> dict[str, Any]:
    """Return the result of `find_tools`: the definitions that fit a query best, or all names for an empty one.

    `tools` are the definitions that the agent may see. `unreachable` are the servers whose tools are not among them.
    """
    words = split_words(query[:MAX_QUERY_LENGTH])
    decoded = [(_found_tool(tool), tool) for tool in tools]
    note = f" These servers cannot be reached just now: {', '.join(unreachable)}." if unreachable else ""
    if not words:
        names = "\n".join(tool.name for tool, _ in decoded)
        return build_text_tool_result(f"{len(decoded)} tools.{note}\n{names}"[:MAX_FOUND_BYTES])
    ranked = sorted(
        ((tool.score_match_with_query(words), tool.name, raw) for tool, raw in decoded),
        key=lambda item: (-item[0], item[1]),
    )
    fitting = [raw for score, _, raw in ranked if score > 0]
    definitions: list[bytes] = []
    for raw in fitting[: min(max(limit, 1), MAX_FOUND_TOOLS)]:
        if definitions and sum(map(len, definitions)) + len(raw) > MAX_FOUND_BYTES:
            break
        definitions.append(raw)
    about = f"{len(definitions)} of {len(fitting)} tools that fit, of {len(decoded)} in all.{note}"
    listed = b"[" + b",".join(definitions) + b"]"
    return build_text_tool_result(f"{about}\n{listed.decode()}")


def build_text_tool_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}
