"""The events of a transcript's line, as dialects hand them to the import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from coordinator.sessions.events import DedupedEvent
from coordinator.usage.limit_readings import LimitReading

SOURCE = "transcript"
BROKEN, TOO_LONG, UNFINISHED = "no JSON", "too long", "unfinished last line"


class UnknownLineKind(Exception):
    """A line of a kind that is not known; the argument names the kind."""


@dataclass(frozen=True, slots=True)
class ImportedEvent:
    """An event of a line, and the other origins under which it may have been reported (`also`).

    `by_figures`: a request to a model that has no id which others report too, and is known by its tokens.
    `is_piece`: a text of the agent, whose hooks report all of a turn in one.
    """

    event: DedupedEvent
    also: tuple[str, ...] = ()
    by_figures: bool = False
    is_piece: bool = False


@dataclass(frozen=True, slots=True)
class ImportedLine:
    """A line's events: of which of Claude's sessions, under which key of its own, and when.

    Of two lines with one key the first counts.
    `facts` are what the line says of its surroundings: `cwd`, `version`, `gitBranch`. `title` is what the agent
    calls the session. `limits` are the last ones of a subscription that the file has, as of `at`.
    """

    session: str
    key: str
    at: str
    facts: Mapping[str, str]
    events: list[ImportedEvent]
    title: str | None = None
    limits: tuple[LimitReading, ...] = ()


class LineReader(Protocol):
    """Reads one file's lines in order."""

    def convert_line_to_events(self, body: bytes) -> list[ImportedLine]:
        """Return a line's events, [] for what the agent keeps for itself. Raises UnknownLineKind."""
        ...

    def flush_pending_file_lines(self, now: datetime) -> list[ImportedLine]:
        """Return what remains at the file's end."""
        ...
