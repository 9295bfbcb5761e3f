"""What Signalbox's plugin for OpenCode posts of what was recorded of its functions (static/plugins/opencode.js)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from coordinator.lib import instants
from tests.dialects.agent import recorded

DENIED, RAN = "ses_dff31c045ffeRYLVa1pouc0Tsy", "ses_dff2feee6ffeCUcodMIr4Bjuae"


def posted() -> list[dict[str, Any]]:
    """Return the hooks that the plugin would have posted of the recording, a millisecond apart until now."""
    found = list(_hooks())
    first = datetime.now(UTC) - timedelta(milliseconds=len(found))
    return [
        hook
        | {
            "cwd": "/home/dev/project",
            "timestamp": instants.format_canonical_instant(first + timedelta(milliseconds=place)),
        }
        for place, hook in enumerate(found)
    ]


def one_of_each() -> list[dict[str, Any]]:
    """Return the first hook of each name."""
    found: dict[str, dict[str, Any]] = {}
    for hook in posted():
        found.setdefault(hook["hook_event_name"], hook)
    return list(found.values())


def _hooks() -> Iterator[dict[str, Any]]:
    for line in recorded("opencode", "plugin.jsonl"):
        given = line["d"]
        if line["t"] == "event":
            yield _event(given)
        elif line["t"] == "tool.before":
            yield _named("tool.execute.before", given["i"]["sessionID"]) | {
                "tool_name": given["i"]["tool"],
                "tool_input": given["o"]["args"],
                "tool_use_id": given["i"]["callID"],
            }
        elif line["t"] == "chat.message":
            yield _named("chat.message", given["i"]["sessionID"]) | {
                "message_id": given["o"]["message"]["id"],
                "prompt": given["o"]["parts"][0]["text"],
            }


def _event(event: dict[str, Any]) -> dict[str, Any]:
    properties = event["properties"]
    hook = _named(event["type"], properties["sessionID"]) | {"event_id": event["id"]}
    if event["type"] != "permission.asked":
        return hook | {"properties": properties}
    asked = properties["metadata"] | {"patterns": properties["patterns"]}
    call_id = properties["tool"]["callID"]
    return hook | {"tool_name": properties["permission"], "tool_input": asked, "tool_use_id": call_id}


def _named(name: str, session: str) -> dict[str, Any]:
    return {"hook_event_name": name, "session_id": session}
