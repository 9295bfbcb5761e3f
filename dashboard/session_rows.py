"""Rows of the sessions list: a session with its facts, the same on the page, in fragments and on the stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.template.loader import render_to_string
from django.utils import timezone

from coordinator import silence
from coordinator.edge.fragments import Fragment
from coordinator.feed import Change
from coordinator.models import Session
from coordinator.session_facts import LIVE, SessionFacts, facts_of


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session of a list."""

    session: Session
    facts: SessionFacts
    is_idle: bool = False

    @property
    def state(self) -> str:
        """The word for where it stands: its status, or that nothing is heard of it."""
        return silence.IDLE if self.is_idle else self.session.status

    @property
    def is_live(self) -> bool:
        """Say whether it is not over."""
        return self.session.status in LIVE


def rows_for(sessions: Iterable[Session]) -> list[SessionRow]:
    """Return sessions as rows of a list."""
    found = list(sessions)
    facts = facts_of(session.pk for session in found)
    running = [session.pk for session in found if session.status == Session.Status.RUNNING]
    idle = silence.idle_ids(running, timezone.now()) if running else set()
    return [SessionRow(session, facts[session.pk], session.pk in idle) for session in found]


def row_fragments(change: Change) -> Sequence[Fragment]:
    """Return a changed session's row, for every list that shows it. New ones are counted by the page, not put in."""
    if change.op != "update":
        return []
    sessions = Session.objects.filter(pk=change.key)
    return [
        Fragment(
            f'[data-session-row="{_quoted(change.key)}"]',
            render_to_string("sessions/_list_row.html", {"row": row}),
        )
        for row in rows_for(sessions)
    ]


def _quoted(text: str) -> str:
    """Return a text as it stands inside a quoted CSS string."""
    return "".join(f"\\{ord(character):x} " if character in '"\\\n\r\f' else character for character in text)
