"""One payload of each kind that matters, by agent: what tests make odd."""

from __future__ import annotations

from typing import Any

from tests.dialects import opencode
from tests.dialects.agent import recorded


def _one_of_each(agent: str, field: str = "hook_event_name") -> list[dict[str, Any]]:
    """Return the first recorded payload of each name."""
    found: dict[str, dict[str, Any]] = {}
    for payload in recorded(agent):
        found.setdefault(payload[field], payload)
    return list(found.values())


_CALL = {"session_id": "s", "cwd": "/home/dev/project", "tool_name": "Bash", "tool_input": {"command": "ls"}}
PAYLOADS: dict[str, list[dict[str, Any]]] = {
    "claude-code": [
        _CALL | {"hook_event_name": "PreToolUse", "tool_use_id": "toolu_1", "prompt_id": "p"},
        _CALL | {"hook_event_name": "PermissionRequest", "permission_suggestions": [{"type": "addRules"}]},
        _CALL
        | {"hook_event_name": "PostToolUse", "tool_use_id": "toolu_1", "tool_response": {"stdout": "x"}},
        {"session_id": "s", "hook_event_name": "Stop", "last_assistant_message": "Done."},
    ],
    "codex": _one_of_each("codex"),
    "gemini": _one_of_each("gemini"),
    "opencode": opencode.one_of_each(),
    "kilo": opencode.one_of_each(),
    "qwen-code": _one_of_each("qwen_code"),
    "copilot": _one_of_each("copilot"),
    **{agent: recorded(agent, "documented.jsonl") for agent in ("cursor", "goose")},
}
# The names of fields that are made odd at the door.
FIELDS = (
    "session_id",
    "hook_event_name",
    "tool_name",
    "tool_input",
    "timestamp",
    "tool_response",
    "prompt",
    "properties",
    "part",
    "info",
    "state",
    "error",
    "time",
)
