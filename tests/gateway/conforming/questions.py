"""What the conforming server asks of its clients: on the line of their request in 2025, by its result in 2026."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from tests.gateway.example_server import PIXEL

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="

SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def text(words: str) -> Json:
    """Return a result that says so."""
    return {"content": [{"type": "text", "text": words}]}


def an_object(**properties: Json) -> Json:
    """Return the schema of an object with these properties, all of them required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


A_TEXT: Json = {"type": "string"}
IMAGE: Json = {"type": "image", "data": PIXEL, "mimeType": "image/png"}


def form(message: str, schema: Json) -> Json:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def model(words: str, tokens: int = 100) -> Json:
    said = {"role": "user", "content": {"type": "text", "text": words}}
    return {"method": "sampling/createMessage", "params": {"messages": [said], "maxTokens": tokens}}


ROOTS: Json = {"method": "roots/list", "params": {}}
NAME = an_object(name=A_TEXT)
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}


def titled(first: str, *titles: str) -> list[Json]:
    return [{"const": f"value{number}", "title": f"{one} {first}"} for number, one in enumerate(titles, 1)]


OPTIONS = ["option1", "option2", "option3"]
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": titled("Option", "First", "Second", "Third")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice", "First", "Second", "Third")}},
    },
}


def answers(ctx: Context) -> Json:
    """Return what a client of 2026 answered, by the questions' names."""
    found = (ctx.params or {}).get("inputResponses")
    return dict(found) if isinstance(found, dict) else {}


def state_of(ctx: Context) -> str | None:
    return (ctx.params or {}).get("requestState")


def needs(ctx: Context, state: str | None = None, **questions: Json) -> Json | None:
    """Return the result that puts these questions to a client of 2026; None where it has answered all of them."""
    said = answers(ctx)
    if all(_is_answer(said.get(name), question) for name, question in questions.items()):
        return None
    more = {} if state is None else {"requestState": state}
    return {"resultType": "input_required", "inputRequests": questions} | more


def _is_answer(said: Any, question: Json) -> bool:
    if not isinstance(said, dict):
        return False
    if question["method"] != "elicitation/create":
        return "roots" in said or "content" in said
    wanted = question["params"]["requestedSchema"].get("required", [])
    content = said.get("content")
    return (
        said.get("action") == "accept" and isinstance(content, dict) and all(one in content for one in wanted)
    )


def require(ctx: Context, capability: str) -> None:
    """Refuse a client that did not declare a capability."""
    known = ctx.session.client_capabilities
    if known is None or getattr(known, capability) is None:
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"This needs {capability}.",
            {"requiredCapabilities": {capability: {}}},
        )


async def asked(ctx: Context, question: Json, capability: str = "elicitation") -> Json:
    """Ask a client of 2025 on the line of its request; return what it answered."""
    require(ctx, capability)
    channel = ctx.session._request_outbound
    return dict(await channel.send_raw_request(question["method"], question["params"], None))
