"""The event: the one definition for every endpoint, import and reader, and the columns it is kept in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import msgspec
import pydantic

from coordinator.usage.amounts import UsageDetail

# Said twice, because msgspec and pydantic (edge.http.validation_errors) each read their own words.
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1), pydantic.Field(ge=-(2**63), le=2**63 - 1)]


class NewEvent(msgspec.Struct, kw_only=True):
    """An event as an endpoint submits it: the recorded wire form, and what its context keeps where that is known."""

    event_type: str
    session_id: str
    timestamp: str
    tool_name: str | None = None
    tool_input: dict[str, Any] | None = None
    tool_output: Any = None
    error: str | None = None
    exit_code: Int64 | None = None
    reason: str | None = None
    role: str | None = None
    content: list[dict[str, Any]] | None = None
    # An event of type `result`, as later versions of the executors send it; kept in tool_output.
    result_text: str | None = None
    result_data: Any = None
    run_id: str | None = None
    tool_use_id: str | None = None
    subagent: str | None = None
    prompt_id: str | None = None
    duration_ms: Int64 | None = None
    model: str | None = None
    input_tokens: Int64 | None = None
    output_tokens: Int64 | None = None
    cache_read_tokens: Int64 | None = None
    cache_write_tokens: Int64 | None = None
    source: str = "executor"


class DedupedEvent(NewEvent, kw_only=True):
    """An event that its source may report twice: one with the same `origin` is written once.

    The origin counts within the session, or `everywhere`, and is free again after `origin_for` milliseconds (None:
    never). `claims` are origins that are taken with it in its session, by which others are then left out; where one of
    `unless` is taken there, it is left out itself. `extra` is what was reported besides the columns. One that is
    reported `late` counts as received when it happened, so that sums by day count it on its own day.
    """

    origin: str
    origin_for: int | None = None
    claims: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    everywhere: bool = False
    extra: dict[str, Any] | None = None
    late: bool = False
    # What a request to a model used besides its tokens; it has no column of the event's.
    usage: UsageDetail | None = None


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event that is written: its id in `events`; None for one that said what was written already."""

    event_id: int | None


# The columns of `events` without its id. tests/events/test_fields.py holds the table, the endpoints and this together.
EVENT_COLUMNS = (
    "session_id", "event_type", "timestamp", "tool_name", "tool_input", "tool_output",
    "error", "exit_code", "reason", "role", "content",
)  # fmt: skip
JSON_COLUMNS = ("tool_input", "tool_output", "content")
MASKED_TEXTS = ("error", "reason")  # secrets are masked in these, and in the JSON columns

# Fields of an event that its context keeps as they are.
CONTEXT_FIELDS = (
    "run_id", "tool_use_id", "subagent", "prompt_id", "duration_ms", "model",
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "source",
)  # fmt: skip
CONTEXT_COLUMNS = ("session_id", "instant_us", "received_at", *CONTEXT_FIELDS, "extra", "masked")

_TYPES = get_type_hints(NewEvent)
# Fields that must be texts that every database can hold; JSON is made so when it is written.
TEXTS = tuple(name for name in (*EVENT_COLUMNS, *CONTEXT_FIELDS) if _TYPES[name] in {str, str | None})
