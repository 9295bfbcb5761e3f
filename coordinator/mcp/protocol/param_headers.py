"""Headers that repeat a call's arguments (`Mcp-Param-*`, MCP 2026-07-28), as a tool's schema declares them.

Only a declared header whose value is that of its argument goes on: whatever it says, the person who approved the call
saw it among the arguments.
"""

from __future__ import annotations

import re
from typing import Any

ANNOTATION = "x-mcp-header"
PREFIX = "mcp-param-"
MOST_DECLARED = 100  # of one tool; more are not read
_DECIMAL = re.compile(r"-?[0-9]+(\.0+)?")

# A header's name in lower case, and the path of its argument.
Declared = tuple[tuple[str, tuple[str, ...]], ...]


def list_declared_header_paths(input_schema: Any) -> Declared:
    """Return the headers that a tool's input schema declares, on properties at any depth."""
    declared_headers: dict[str, tuple[str, ...]] = {}
    schemas: list[tuple[tuple[str, ...], Any]] = [((), input_schema)]
    while schemas and len(declared_headers) < MOST_DECLARED:
        path, schema = schemas.pop()
        if not isinstance(schema, dict):
            continue
        if path and isinstance(token := schema.get(ANNOTATION), str):
            declared_headers[f"{PREFIX}{token.lower()}"] = path
        properties = schema.get("properties")
        if isinstance(properties, dict):
            schemas += [((*path, name), inner) for name, inner in properties.items()]
    return tuple(sorted(declared_headers.items()))


def is_header_matching_argument(text: str | None, arguments: Any, path: tuple[str, ...]) -> bool:
    """Say whether a header's decoded text is the argument's value at `path`."""
    value = arguments
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if text is None or value is None:
        return False
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, str):
        return text == value
    if isinstance(value, int | float) and len(text) < 400 and _DECIMAL.fullmatch(text):
        return int(text.partition(".")[0]) == value
    return isinstance(value, float) and text == str(value)
