"""Filtering of a page of tools to those that an agent may call or ask for, each as the bytes received."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from coordinator.errors import UnprocessableRequest
from coordinator.lib.json_bounds import replace_lone_surrogates
from coordinator.mcp.servers.tools import (
    DEFINING,
    UNREADABLE_CURSOR,
    ToolDefinition,
    ToolListing,
    parse_decoded_tool_listing,
)

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class UnreadableListing(Exception):
    """What should be an answer to tools/list cannot be understood, so none of it is passed on."""


@dataclass(frozen=True, slots=True)
class ToolListingPage:
    """One answer to tools/list. `raw` holds each tool's own bytes, in the order of `listing.tools`."""

    answer: dict[str, msgspec.Raw]
    result: dict[str, msgspec.Raw]
    raw: list[bytes]
    listing: ToolListing

    @property
    def next_cursor(self) -> str | None:
        """Return where the next page begins; None after the last."""
        return read_next_cursor(self.result)


def parse_listing_page_unless_error(body: bytes) -> ToolListingPage | None:
    """Read an answer to tools/list; None for an error, which passes as it is. Raises UnreadableListing."""
    try:
        answer = _fields(replace_lone_surrogates(body))
        refuse_keys_differing_in_case(answer, "result")
        if "error" in answer and "result" not in answer:
            return None
        result = _fields(answer["result"])
        refuse_keys_differing_in_case(result, "tools")
        items = [bytes(item) for item in _items(result["tools"])]
        listing = parse_decoded_tool_listing(
            {"tools": [decode_tool_or_none(item) for item in items], "nextCursor": read_next_cursor(result)}
        )
        positions = {tool.position for tool in listing.left_out}
        raw = [item for place, item in enumerate(items, 1) if place not in positions]
    except (
        KeyError,
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
        UnprocessableRequest,
    ) as problem:
        detail = problem.detail if isinstance(problem, UnprocessableRequest) else "it cannot be read as MCP"
        raise UnreadableListing(f"The server's list of tools was held back: {detail}") from None
    page = ToolListingPage(answer, result, raw, listing)
    is_ended = page.next_cursor is not None or bytes(result.get("nextCursor", b"null")) == b"null"
    return page if is_ended else convert_to_last_listing_page(page, UNREADABLE_CURSOR)


def read_next_cursor(result: dict[str, msgspec.Raw]) -> str | None:
    cursor = msgspec.json.decode(result["nextCursor"]) if "nextCursor" in result else None
    return cursor if isinstance(cursor, str) else None


def decode_tool_or_none(item: bytes) -> Any:
    """Return one tool; None where it cannot be decoded, so that it alone is left out."""
    try:
        return msgspec.json.decode(item)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def refuse_keys_differing_in_case(fields: dict[str, msgspec.Raw], name: str) -> None:
    """Refuse keys that a client which reads them in any case takes for `name`. Raises UnreadableListing."""
    if any(key != name and key.casefold() == name for key in fields):
        raise UnreadableListing(
            f"The server's list of tools was held back: it spells {name} with other capitals"
        )


def convert_to_last_listing_page(page: ToolListingPage, cut_off: str) -> ToolListingPage:
    """Return the page as the last of its list, which is cut off for this reason."""
    result = {name: value for name, value in page.result.items() if name != "nextCursor"}
    return replace(page, result=result, listing=replace(page.listing, cut_off=cut_off))


def is_possible_tools_list_response(data: bytes) -> bool:
    """Say whether a message is a response with tools for somebody who reads it, or cannot be read."""
    try:
        fields = msgspec.json.decode(data).items()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, AttributeError):
        return True
    results = [value for name, value in fields if name.casefold() == "result" and isinstance(value, dict)]
    return any(name.casefold() == "tools" for result in results for name in result)


def encode_each_visible_tool(
    page: ToolListingPage,
    may_see: Callable[[ToolDefinition], bool],
    *,
    rename: Callable[[str], str] | None = None,
    shown_instead: Mapping[str, bytes] | None = None,
    short_descriptions: Mapping[str, str] | None = None,
) -> list[bytes]:
    """Return the bytes of the tools that may be seen, by name; of those in `shown_instead` these.

    Tools in `short_descriptions` have these in place of their own.
    """
    pairs = sorted(zip(page.listing.tools, page.raw, strict=True), key=lambda pair: pair[0].name)
    instead = shown_instead or {}
    visible_pairs = [
        (tool, normalize_schemas_of_listed_tool(instead.get(tool.name, raw)))
        for tool, raw in pairs
        if may_see(tool)
    ]
    shortened = short_descriptions or {}
    visible_pairs = [
        (
            tool,
            replace_tool_member(raw, "description", shortened[tool.name]) if tool.name in shortened else raw,
        )
        for tool, raw in visible_pairs
    ]
    if rename is None:
        return [raw for _, raw in visible_pairs]
    return [replace_tool_member(raw, "name", rename(tool.name)) for tool, raw in visible_pairs]


class SchemaType(msgspec.Struct):
    type: Any = None


_schema_type = msgspec.json.Decoder(SchemaType).decode


def normalize_schemas_of_listed_tool(raw: bytes) -> bytes:
    """Return a tool with schemas of type object and without members that are null; one that has both as it came.

    Arguments and structured results are objects whether a schema says so or not, and many clients refuse all tools of
    a list for one that does not say so.
    """
    fields = _fields(raw)
    completed = {
        key: value for key, value in fields.items() if key not in DEFINING or bytes(value) != b"null"
    }
    completed.setdefault("inputSchema", msgspec.Raw(b"{}"))
    for key in ("inputSchema", "outputSchema"):
        if key in completed and _schema_type(completed[key]).type != "object":
            schema = {"type": msgspec.Raw(b'"object"')}
            completed[key] = msgspec.Raw(_encode(schema | _fields(completed[key]) | schema))
    return raw if completed == fields else _encode(completed)


def replace_tool_member(raw: bytes, member: str, text: str) -> bytes:
    fields = _fields(raw)
    fields[member] = msgspec.Raw(_encode(text))
    return _encode(fields)


def encode_listing_response_with_tools(page: ToolListingPage, tools: list[bytes]) -> bytes:
    """Return the answer with these tools in place of its own; everything else stays as it came.

    It is one agent's now: a cache that others share must not keep it.
    """
    result = page.result | {"tools": msgspec.Raw(b"[" + b",".join(tools) + b"]")}
    if "cacheScope" in result:
        result["cacheScope"] = msgspec.Raw(b'"private"')
    return _encode(page.answer | {"result": msgspec.Raw(_encode(result))})


def read_error_code_or_none(body: bytes) -> Any:
    """Return the code of a response that is an error; None for one without."""
    try:
        return msgspec.json.decode(body)["error"]["code"]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return None


def decode_response_result_or_none(body: bytes) -> Any:
    """Return the decoded result of a response; None for an error or what cannot be read."""
    try:
        return msgspec.json.decode(body).get("result")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, AttributeError):
        return None
