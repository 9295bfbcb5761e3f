"""One post of a runner while it is taken: whose it is, and the events that it makes, written in their order."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from coordinator.actions import events
from coordinator.lib import instants
from coordinator.models import DrivenSession
from coordinator.sessions.driving import Speech, Update, program_of
from coordinator.sessions.events import DedupedEvent, Recorded


class RunnerPost:
    """What is told of a session. `driven` is its row, locked; it is saved when all is taken.

    `at` is when the update at hand was told (canonical text); `number` makes the origins of its events.
    """

    def __init__(
        self, session_id: str, run_id: str | None, driven: DrivenSession, speech: Speech, now: datetime
    ) -> None:
        self.session_id = session_id
        self.run_id = run_id
        self.driven = driven
        self.speech = speech
        self.now = now
        self.at = instants.canonical(now)
        self._n = self._made = 0
        self._waiting: list[DedupedEvent] = []

    @property
    def program(self) -> str:
        """The agent's program, as rules and looks know it."""
        return program_of(self.driven.agent)

    def of(self, update: Update) -> None:
        """Turn to the next update."""
        at = instants.parse(update.at)
        self.at = instants.canonical(self.now if at is None else at)
        self._n, self._made = update.n, 0

    def event(self, event_type: str, *, at: str | None = None, **values: Any) -> DedupedEvent:
        """Add an event; it is written with the others."""
        made = DedupedEvent(
            event_type=event_type,
            session_id=self.session_id,
            timestamp=at or self.at,
            run_id=self.run_id,
            source=self.program,
            origin=f"acp:{self._origin()}",
            **values,
        )
        self._waiting.append(made)
        return made

    def _origin(self) -> str:
        """Return what names an event: its update and its place there; a question's own where no update is at hand."""
        self._made += 1
        return f"{self._n}:{self._made}" if self._n else f"{self.at}:{self._made}"

    def write(self) -> int | None:
        """Write what waits; return the id of the last event, None where nothing waited."""
        if not self._waiting:
            return None
        made, self._waiting = self._waiting, []
        outcomes = events.record_events(made, self.now)
        last = outcomes[-1]
        return last.event_id if isinstance(last, Recorded) else None
