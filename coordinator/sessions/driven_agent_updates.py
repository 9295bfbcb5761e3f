"""Updates that a runner sends of a session whose agent it drives, as the dialect reads and the actions write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from coordinator.runs.offers import PROGRAMS

UNNAMED = "acp"  # the source of events of an agent whose program is not known
LONGEST_OUTPUT = 64 * 1024  # characters of a terminal that are kept while its call runs


def is_valid_usage_amount(value: Any) -> TypeGuard[int | float]:
    """Say whether a value is a number of tokens, or of money, that can be: one that can be reckoned with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 2**53


def program_name_of_runner_agent(agent: str | None) -> str:
    """Return what rules, looks and events call the program of a runner's agent."""
    return PROGRAMS.get(agent or "", agent or UNNAMED)


@dataclass(frozen=True, slots=True)
class DrivenAgentUpdate:
    """One update: its number in the session, when (ISO, UTC), of which kind, with which fields."""

    n: int
    at: str
    kind: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SpeechPiece:
    """A piece of what somebody says: `kind` message, thought or user; a block that is no text is in `block`."""

    kind: str
    message_id: str | None
    text: str
    block: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ReportedToolCall:
    """A tool call as all updates of it together report it.

    `tool` and `tool_input` are as the agent's hooks would give them, where that is known. `ready` says that the input
    is whole, `over` that the call has ended; then `output` and `error` are its result.
    """

    tool: str
    tool_input: dict[str, Any] | None
    title: str
    ready: bool
    over: bool
    output: Any = None
    error: str | None = None
    folder: str | None = None
    parent: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """Tokens of a turn by the model that took them (None: not reported), and its cost where the agent says it."""

    by_model: tuple[tuple[str | None, Mapping[str, int]], ...]
    cost: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AgentProtocolReader:
    """How the agents of runners speak (dialects.acp); the actions are handed it, because a dialect is above them.

    `words` reads a chunk, `merged` adds an update to what is known of a call, `call` reads that for a program,
    `content` makes a message of a prompt's blocks, `usage` reads what a turn took.
    """

    words: Callable[[str, Mapping[str, Any]], SpeechPiece | None]
    merged: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
    call: Callable[[Mapping[str, Any], str], ReportedToolCall]
    terminal: Callable[[Mapping[str, Any]], str | None]
    content: Callable[[Any], list[dict[str, Any]]]
    usage: Callable[[Mapping[str, Any]], TurnUsage]
