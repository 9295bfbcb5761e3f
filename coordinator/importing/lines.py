"""What a line of a coding agent's transcript says, as dialects hand it to the import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.sessions.events import DedupedEvent

SOURCE = "transcript"


@dataclass(frozen=True, slots=True)
class ImportedEvent:
    """An event of a line, and the other origins under which somebody may have told it (`also`)."""

    event: DedupedEvent
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedLine:
    """What a line tells: of which of Claude's sessions, under which key of its own, when, and as which events.

    Of two lines with one key the first counts.
    `facts` are what the line says of its surroundings: `cwd`, `version`, `gitBranch`. `title` is what the agent
    calls the session.
    """

    session: str
    key: str
    at: str
    facts: Mapping[str, str]
    events: list[ImportedEvent]
    title: str | None = None
