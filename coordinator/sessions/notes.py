"""Notes to agents at work, as they are worded for the agent and for people. Only reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db.models import Q

from coordinator.lib import instants
from coordinator.models import Note
from coordinator.sessions.statuses import LIVE

LONGEST = 4_000  # characters of one note
MOST_WAITING = 10  # of one session
COMES_AGAIN_WITHIN = timedelta(minutes=2)
MOST_AT_ONCE = 2  # notes in one answer: some agents cut at 10,000 characters


def find_session_ids_with_pending_notes(now: datetime) -> frozenset[str]:
    """Return the sessions for which a note waits, or was handed to a hook that may come again for it."""
    waiting = Q(given_at__isnull=True, closed_at__isnull=True)
    unconfirmed = Q(given_to__isnull=False, given_at__gte=now - COMES_AGAIN_WITHIN)
    return frozenset(Note.objects.filter(waiting | unconfirmed).values_list("session_id", flat=True))


def format_notes_for_agent(notes: Iterable[Note]) -> str:
    """Return what the agent reads."""
    return "\n\n".join(
        f"[{heading_of_note_for_agent(note)}]\n{note.text}\n[End of the note.]" for note in notes
    )


def heading_of_note_for_agent(note: Note) -> str:
    at = (
        note.written_at
        if isinstance(note.written_at, str)
        else instants.format_canonical_instant(note.written_at)
    )
    return f"Note from {note.writer_name}, a person who watches this session in Signalbox, written at {at[:19]} UTC"


def load_newest_notes(session_id: str, most: int = 5) -> Sequence[Note]:
    """Return the session's newest notes, the newest first."""
    return list(Note.objects.filter(session_id=session_id).order_by("-id")[:most])


def is_note_lost(note: Note, status: str) -> bool:
    """Say whether a note was not delivered and will not be: it was closed, or its session has ended."""
    if note.given_at is not None:
        return False
    return note.closed_at is not None or (status not in LIVE and note.run_id is None)
