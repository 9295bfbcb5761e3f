"""Facts about earlier calls that a rule may use: how often it was repeated, and which hosts are known. Pure.

A rule says `same call 5 times in 10 minutes` or `same error 4 times in 10 minutes`, and under *reaches* `new hosts`.
`policy.rules.history_queries` counts and reads what such rules need.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from coordinator.calls.tools import NOTE_FIELDS
from coordinator.errors import UnprocessableRequest

SAME_CALL, SAME_ERROR, MARKED_RESULT = "call", "error", "marked result"
MOST_TIMES, MOST_MINUTES = 100, 24 * 60
LONGEST_REPETITION = 100  # characters
NEW_HOSTS = "new hosts"  # a line of *reaches*
_REPETITION = re.compile(
    r"(?:the )?same (call|error) ([0-9]{1,4}) times? (?:in|within) ([0-9]{1,5}) minutes?", re.IGNORECASE
)
_MARKED_RESULT = re.compile(r"(?:a )?marked result (?:in|within) ([0-9]{1,5}) minutes?", re.IGNORECASE)
HOW_TO_WRITE = (
    "Write it like this: same call 5 times in 10 minutes, or: same error 4 times in 10 minutes, or: marked result in "
    "60 minutes."
)


@dataclass(frozen=True, slots=True)
class Repetition:
    """The same call or error so many times, or a marked result, within so many minutes of a session."""

    kind: str
    times: int
    minutes: int

    def __str__(self) -> str:
        if self.kind == MARKED_RESULT:
            return f"marked result in {self.minutes} minute{'s' if self.minutes != 1 else ''}"
        return (
            f"same {self.kind} {self.times} times in {self.minutes} minute{'s' if self.minutes != 1 else ''}"
        )


@dataclass(frozen=True, slots=True)
class CallHistory:
    """What is recorded of the time before a call: which repetitions are reached with it, and which hosts are known."""

    repetitions: frozenset[Repetition] = frozenset()
    known_hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HistoryNeeds:
    """What rules need to know of the time before a call."""

    repetitions: frozenset[Repetition] = frozenset()
    hosts: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.repetitions or self.hosts)

    def merge_needs(self, other: HistoryNeeds) -> HistoryNeeds:
        return HistoryNeeds(self.repetitions | other.repetitions, self.hosts | other.hosts)


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call of a session, as its events name it, and when it is made.

    `call_id` and `event_id` are of the call itself, where it may be recorded already. `is_recorded` says that it is
    though nothing names it. `other_tool` is another name under which the tool's calls may be recorded. `folder` is
    where it is made, for a session of which no folder is known.
    """

    session_id: str
    tool: str
    tool_input: Any
    made_at: datetime
    call_id: str | None = None
    event_id: int | None = None
    is_recorded: bool = False
    other_tool: str | None = None
    folder: str | None = None


@lru_cache(maxsize=256)
def parse_repetition_condition(text: str) -> Repetition | None:
    """Return the repetition that a rule names, None for no text. Raises UnprocessableRequest."""
    if not text.strip():
        return None
    plain = " ".join(text.split())
    marked = _MARKED_RESULT.fullmatch(plain)
    if marked is not None:
        if not 1 <= int(marked[1]) <= MOST_MINUTES:
            raise UnprocessableRequest(f"A marked result is looked for in 1 to {MOST_MINUTES} minutes.")
        return Repetition(MARKED_RESULT, 1, int(marked[1]))
    match = _REPETITION.fullmatch(plain)
    if match is None:
        raise UnprocessableRequest(f"{text[:LONGEST_REPETITION]!r} cannot be read. {HOW_TO_WRITE}")
    repetition = Repetition(match[1].lower(), int(match[2]), int(match[3]))
    if not 2 <= repetition.times <= MOST_TIMES or not 1 <= repetition.minutes <= MOST_MINUTES:
        raise UnprocessableRequest(
            f"A repetition is counted from 2 to {MOST_TIMES} times, in 1 to {MOST_MINUTES} minutes."
        )
    return repetition


def remove_insignificant_input_fields(tool_input: Any) -> Any:
    """Return an input without what changes nothing about what the call does: notes, time limits, empty fields."""
    if not isinstance(tool_input, Mapping):
        return tool_input
    return {
        name: value
        for name, value in tool_input.items()
        if name not in NOTE_FIELDS and value not in (None, False, "", [], {})
    }
