"""Merging of an agent's updates while they wait: pieces of a text, and outputs that are sent again and grow."""

from __future__ import annotations

from typing import Any

LONGEST_TEXT = 16 << 10  # characters that pieces are merged to
CHUNKS = {"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"}


def merge_two_updates_or_none(last: dict[str, Any], update: dict[str, Any]) -> dict[str, Any] | None:
    """Return what says all that both say, None where they stay two."""
    kind = update.get("sessionUpdate")
    if kind != last.get("sessionUpdate"):
        return None
    if kind in CHUNKS:
        return merge_text_chunks(last, update)
    if kind == "signalbox/terminal" and last.get("terminalId") == update.get("terminalId"):
        return update
    return update if kind == "tool_call_update" and is_superseding_update(last, update) else None


def merge_text_chunks(last: dict[str, Any], update: dict[str, Any]) -> dict[str, Any] | None:
    before, text = update_text_or_none(last), update_text_or_none(update)
    if (
        before is None
        or text is None
        or copy_update_without_content(last) != copy_update_without_content(update)
    ):
        return None
    if len(before) + len(text) > LONGEST_TEXT:
        return None
    return {**update, "content": {"type": "text", "text": before + text}}


def is_superseding_update(last: dict[str, Any], update: dict[str, Any]) -> bool:
    """Say whether an update of a call replaces all that the one before it said: some agents send a whole output again.

    The content of `_meta` is the agent's own, and may be a piece.
    """
    if "_meta" in last or "_meta" in update or last.get("toolCallId") != update.get("toolCallId"):
        return False
    return last.get("status") == update.get("status") and set(last) <= set(update)


def update_text_or_none(update: dict[str, Any]) -> str | None:
    content = update.get("content")
    if not isinstance(content, dict) or set(content) != {"type", "text"} or content["type"] != "text":
        return None
    return content["text"] if isinstance(content["text"], str) else None


def copy_update_without_content(update: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in update.items() if name != "content"}
