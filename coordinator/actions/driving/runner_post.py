"""One post of a runner in progress: its session, and the events that it makes, written in order."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from coordinator.actions.sessions import events
from coordinator.lib import instants
from coordinator.models import DrivenSession
from coordinator.sessions.driven_agent_updates import (
    AgentProtocolReader,
    DrivenAgentUpdate,
    program_name_of_runner_agent,
)
from coordinator.sessions.events import DedupedEvent, RecordedEvent


class RunnerPost:
    """The updates that are posted for a session. `driven` is its locked row, saved after the last update.

    `at` is when the current update was reported (canonical text); `number` makes the origins of its events.
    """

    def __init__(
        self,
        session_id: str,
        run_id: str | None,
        driven: DrivenSession,
        speech: AgentProtocolReader,
        now: datetime,
    ) -> None:
        self.session_id = session_id
        self.run_id = run_id
        self.driven = driven
        self.speech = speech
        self.now = now
        self.at = instants.format_canonical_instant(now)
        self._n = self._made_count = 0
        self._waiting: list[DedupedEvent] = []

    @property
    def agent_program(self) -> str:
        """The agent's program, as rules and looks know it."""
        return program_name_of_runner_agent(self.driven.agent)

    def set_current_runner_update(self, update: DrivenAgentUpdate) -> None:
        """Turn to the next update."""
        at = instants.parse_instant_or_none(update.at)
        self.at = instants.format_canonical_instant(self.now if at is None else at)
        self._n, self._made_count = update.n, 0

    def queue_event_for_writing(
        self, event_type: str, *, at: str | None = None, **values: Any
    ) -> DedupedEvent:
        """Add an event; it is written with the others."""
        event = DedupedEvent(
            event_type=event_type,
            session_id=self.session_id,
            timestamp=at or self.at,
            run_id=self.run_id,
            source=self.agent_program,
            origin=f"acp:{self.next_event_origin()}",
            **values,
        )
        self._waiting.append(event)
        return event

    def next_event_origin(self) -> str:
        """Return what names an event: its update and its place there; a question's own where no update is at hand."""
        self._made_count += 1
        return f"{self._n}:{self._made_count}" if self._n else f"{self.at}:{self._made_count}"

    def write_events_return_last_id(self) -> int | None:
        """Write what waits; return the id of the last event, None where nothing waited."""
        if not self._waiting:
            return None
        queued, self._waiting = self._waiting, []
        outcomes = events.record_events(queued, self.now)
        last = outcomes[-1]
        return last.event_id if isinstance(last, RecordedEvent) else None
