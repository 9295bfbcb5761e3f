"""A coding agent's tool call that somebody is asked about, as dialects hand it to the actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.models.gateway import GATEWAY_PROFILE

# Who asks for calls that pass through the MCP gateway, as `plugin_id` of their requests.
GATEWAY = GATEWAY_PROFILE
STOPS_TURN = "stops_turn"  # in what a person added to a denial: it also ends the agent's turn
CAN_STOP_TURN = "can_stop_turn"  # in the metadata of a request whose agent a denial can stop


@dataclass(frozen=True, slots=True)
class ToolCallRequest:
    """A call that is asked about.

    `hook_name` is the hook that does, `since_us` when it was received. `program` is the agent that asks
    (agent_programs.AGENT_TITLES). It asks its own person, too, where it `is_prompted`, and would run an edited input
    where it `is_editable`. A denial may end its turn where it `can_stop_turn`. `about` is the call in one text (its
    command, path or address), `target` that text where the input alone does not show it first, `described` what the
    agent says of it; `folder` and `host` say where it would run; `call_id` and `event_id` name the call's beginning
    where it is known; `is_guessed` says that the hook itself named none. `slot` distinguishes it from equal calls that
    wait at the same time, where no id does; `waiter` is who waits for this answer. `offered` are the rules that could
    be made permanent ("always allow"), `details` what else a reader may want to know.
    """

    hook_name: str
    session_id: str
    agent_id: str | None
    since_us: int
    tool: str
    tool_input: dict[str, Any] | None
    about: str
    program: str
    is_prompted: bool = False
    is_editable: bool = False
    can_stop_turn: bool = False
    described: str | None = None
    subagent: str | None = None
    target: str | None = None
    call_id: str | None = None
    is_guessed: bool = False
    slot: str | None = None
    waiter: str = ""
    event_id: int | None = None
    folder: str | None = None
    host: str | None = None
    offered: tuple[dict[str, Any], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


Settled = dict[str, Any]
