"""The part of a tool's result that its timeline stores."""

from __future__ import annotations

from typing import Any

import msgspec

BLOCKS = ("content", "contents", "messages")  # of a call, a resource, a prompt
LONGEST_OUTPUT = 64 * 1024  # bytes of a result that a timeline keeps


def build_timeline_output_and_error(response: bytes | None) -> tuple[Any, str | None]:
    """Return a response's result as a timeline keeps it, and what it says went wrong."""
    if response is None:
        return None, None
    try:
        value = msgspec.json.decode(response)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None, "The answer cannot be read."
    if "error" in value:
        error = value["error"]
        return None, str(error.get("message", "error"))[:2_000] if isinstance(error, dict) else "error"
    result = value.get("result")
    if not isinstance(result, dict):
        return None, None
    blocks: list[Any] = next((result[name] for name in BLOCKS if isinstance(result.get(name), list)), [])
    content = [strip_binary_data(block) for block in blocks]
    if len(response) > LONGEST_OUTPUT:
        content = [shorten_or_omit_block(one) for one in content[:20]]
    failed = "The tool reports a failure." if result.get("isError") is True else None
    return {"content": content} | {
        name: result[name]
        for name in ("structuredContent", "isError")
        if name in result and len(response) <= LONGEST_OUTPUT
    }, failed


def strip_binary_data(block: Any) -> Any:
    """Return a block of content without the bytes of an image or a sound."""
    if not isinstance(block, dict):
        return block
    shown_parts = {
        name: f"({len(value)} characters of base64)"
        if name in {"data", "blob"} and isinstance(value, str)
        else value
        for name, value in block.items()
    }
    inner = {
        name: shown_parts[name] for name in ("resource", "content") if isinstance(shown_parts.get(name), dict)
    }
    return shown_parts | {name: strip_binary_data(value) for name, value in inner.items()}


def shorten_or_omit_block(block: Any) -> Any:
    if not isinstance(block, dict) or not isinstance(block.get("text"), str):
        return {"type": "text", "text": "(left out: the result is long)"}
    text = block["text"]
    return (
        block if len(text) <= 3_000 else block | {"text": f"{text[:3_000]}… ({len(text)} characters in all)"}
    )
