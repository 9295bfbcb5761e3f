"""The agent program's own id of a call, from the `_meta` of the request.

It is unproven and is sent to no server. It may set in which of the caller's own sessions, and under which id, a call
appears in a timeline. It never affects what policy judges, nor what an approval is bound to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LONGEST_ID = 200  # characters


@dataclass(frozen=True, slots=True)
class AgentCallIds:
    """What a program says of a call: its agent's session (Codex) and the agent's id for the call; "" for nothing."""

    session: str = ""
    call_id: str = ""


NO_CLAIM = AgentCallIds()


def agent_session_and_call_id(message: dict[str, Any]) -> AgentCallIds:
    """Return what a message says of the call that it makes."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if message.get("method") != "tools/call" or not isinstance(meta, dict):
        return NO_CLAIM
    return AgentCallIds(
        session=first_valid_meta_id_or_empty(meta, "sessionId", "threadId"),
        call_id=first_valid_meta_id_or_empty(meta, "claudecode/toolUseId", "callId"),
    )


def first_valid_meta_id_or_empty(meta: dict[str, Any], *names: str) -> str:
    for name in names:
        value = meta.get(name)
        if isinstance(value, str) and 0 < len(value) <= LONGEST_ID and "\x00" not in value:
            return value
    return ""
