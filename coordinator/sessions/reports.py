"""Reports of coding agents on their sessions, as dialects hand it to the actions."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from coordinator.identity.keys import KeyIdentity

# How the id begins that a call has from us, because its agent gives it none; its result carries none then.
MADE_CALL = "made:"
# How an origin begins that is the same in all sessions: the first session that claims it has it.
ANYWHERE = "anywhere:"
TURN_END = "turn_end"
SUBAGENT_END = "SubagentStop"
IN_BACKGROUND = "in the background"  # the reason of a call's end that says that it goes on
REWIND = "rewind"  # a person took turns back; what came after stays behind (sessions/timeline/rewinds.py)
MODEL_REQUEST = "model_request"  # what a request to a model took


# How the message begins that replaces a prompt of which telemetry reported no more than that there was one.
UNRECORDED_PROMPT = "(A prompt"


def call_start_deduplication_origin(call_id: str, tool_input: Any) -> str:
    """Return the origin that the beginning of an MCP tool's call takes, whether its agent or the gateway reports it.

    Of the two the first is kept. What is reported under one id with other arguments is another call.
    """
    digest = hashlib.sha256(json.dumps(tool_input, sort_keys=True).encode()).hexdigest()
    return f"mcp call begins {digest} {call_id}"


class RecordedHookSession(NamedTuple):
    """A session of ours for one of an agent's.

    `complete`: it is known where that runs; `driven`: a runner drives it; `is_new`: it was made just now.
    """

    session_id: str
    complete: bool
    driven: bool = False
    is_new: bool = False


class SessionLocation(NamedTuple):
    """Where a hook says that its session runs, as far as it says so, and by which key (None: by no endpoint).

    `driven` is the session of ours for which a runner started the agent, where the agent's hook passes that on.
    `parent` is the agent's id of the session that started this one.
    """

    project_dir: str | None = None
    hostname: str | None = None
    agent_name: str | None = None
    profile: str | None = None
    by: KeyIdentity | None = None
    driven: str | None = None
    parent: str | None = None


_RUNNER_EVENT_TYPES = frozenset(
    {
        "pre_tool",
        "post_tool",
        "permission_request",
        "session_start",
        "session_stop",
        "run_start",
        "run_completed",
        TURN_END,
        MODEL_REQUEST,
    }
)


def is_runner_reported_event_type(event_type: str, role: str | None) -> bool:
    """Say whether the runner reports this of a session that it drives, so that the agent's hooks need not."""
    return role in {"user", "assistant"} if event_type == "message" else event_type in _RUNNER_EVENT_TYPES


@dataclass(frozen=True, slots=True)
class MessagePiece:
    """One display of a message that is being written: `final` makes it whole."""

    message_id: str
    index: int
    text: str
    final: bool
