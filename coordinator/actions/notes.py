"""Writing a note to an agent at work, and handing it over once: with a hook's answer, a tool's result or a prompt.

Handing over is a compare-and-swap, committed before the words go out. So a note reaches an agent at most once, however
many workers and ways there are. Only a hook that comes again under its id, because it heard nothing, is told again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from coordinator.actions import audit, events, runs
from coordinator.errors import BadRequest, Conflict, Invalid, NotFound, SignalboxError
from coordinator.identity.actors import Actor, system
from coordinator.lib import instants
from coordinator.models import DrivenSession, Note, Run, Session
from coordinator.runs.statuses import ACTIVE, OPEN, RESUME
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.notes import LONGEST, MOST_AT_ONCE, MOST_WAITING, for_agent
from coordinator.sessions.statuses import LIVE

log = logging.getLogger(__name__)

SOURCE = "signalbox"
WRITTEN, GIVEN, NOT_GIVEN = "note", "note_delivered", "note_not_delivered"
BY = system("notes")
AS_PROMPT = "its next prompt"
ENDED = "The session has ended."
REMOVED = "Its prompt ended before the agent got it."
MOST_CLOSED = 200  # in one go


def write(session_id: str, text: str, *, by: Actor, now: datetime) -> Note:
    """Write a note to a session at work. Raises NotFound, Invalid, and Conflict where nothing would read it."""
    if by.kind != "user":
        raise BadRequest("Only a signed-in person can write notes.")
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise Invalid("Write what the agent should know.")
    if len(text) > LONGEST or "\x00" in text:
        raise Invalid(f"A note may have at most {LONGEST:,} characters, without NUL.")
    with transaction.atomic():
        session = Session.objects.select_for_update().filter(pk=session_id).first()
        if session is None:
            raise NotFound("Session not found")
        if session.status not in LIVE:
            raise Conflict("The session has ended, so notes cannot reach it. Resume it instead.")
        if _waiting(session_id).count() >= MOST_WAITING:
            raise Conflict(f"{MOST_WAITING} notes are already waiting for the agent's next step.")
        note = Note.objects.create(session_id=session_id, text=text, written_at=now, written_by=str(by))
        _tell(note, WRITTEN, by.name, now, text=text)
        _record("NOTE_WRITTEN", note, by, now, text=text)
        if not Run.objects.filter(session_id=session_id, status__in=ACTIVE).exists():
            _as_prompt(note, now)
    return note


def take(
    session_id: str,
    through: str,
    now: datetime,
    *,
    given_to: str | None = None,
    is_awaited: Callable[[], bool] = lambda: True,
) -> list[Note]:
    """Return the notes that this answer carries to the agent, and note that it does. They are nobody else's then.

    Where by then the answer is not awaited any more, nothing is returned or noted. That is asked last of all: once it
    has said yes, the answer must wait for what this returns.
    """
    with transaction.atomic():
        _lock(session_id)
        if given_to is not None:
            again = list(Note.objects.filter(session_id=session_id, given_to=given_to).order_by("id"))
            if again:
                return again
        free = _waiting(session_id).filter(run_id__isnull=True)
        rows = list(free.order_by("id")[:MOST_AT_ONCE])
        given = [note for note in rows if _give(note, through, now, given_to=given_to)]
        if is_awaited():
            return given
        transaction.set_rollback(True)
    return []


def _lock(session_id: str) -> None:
    """Have one at a time hand over, or carry, the notes of a session: what two had would reach its agent twice."""
    Session.objects.select_for_update(no_key=True).filter(pk=session_id).first()


def turn_ended(session_id: str, now: datetime) -> None:
    """Make prompts of the notes that a driven agent had no step left for."""
    for note in _waiting(session_id).filter(run_id__isnull=True).order_by("id"):
        _as_prompt(note, now)


def turn_started(session_id: str, run_id: str, now: datetime) -> None:
    """Note that a prompt which carries notes has reached its agent."""
    for note in _waiting(session_id).filter(run_id=run_id):
        _give(note, AS_PROMPT, now)


def close_lost(now: datetime) -> None:
    """Close the notes that nothing can carry any more: their session has ended, or the prompt that had them."""
    waiting = Note.objects.filter(given_at__isnull=True, closed_at__isnull=True).select_related("session")
    for note in list(waiting.order_by("id")[:MOST_CLOSED]):
        if note.run_id is not None:
            if not Run.objects.filter(pk=note.run_id, status__in=OPEN).exists():
                _close(note, REMOVED, now)
        elif note.session.status not in LIVE:
            _close(note, ENDED, now)


def _waiting(session_id: str) -> QuerySet[Note]:
    return Note.objects.filter(session_id=session_id, given_at__isnull=True, closed_at__isnull=True)


def _give(note: Note, through: str, now: datetime, *, given_to: str | None = None) -> bool:
    swapped = Note.objects.filter(pk=note.pk, given_at__isnull=True, closed_at__isnull=True).update(
        given_at=now, through=through, given_to=given_to
    )
    if not swapped:
        return False
    note.given_at, note.through, note.given_to = now, through, given_to
    _tell(note, GIVEN, through, now)
    _record("NOTE_DELIVERED", note, BY, now, through=through)
    return True


def _close(note: Note, why: str, now: datetime) -> None:
    with transaction.atomic():
        open_ = Note.objects.filter(pk=note.pk, given_at__isnull=True, closed_at__isnull=True)
        if open_.update(closed_at=now, why_closed=why):
            _tell(note, NOT_GIVEN, why, now)
            _record("NOTE_NOT_DELIVERED", note, BY, now, why=why)


def _as_prompt(note: Note, now: datetime) -> None:
    """Have a runner carry the note as the session's next prompt, where one drives its agent."""
    if not DrivenSession.objects.filter(pk=note.session_id).exists():
        return
    by = Actor("user", note.writer)
    try:
        with transaction.atomic():
            _lock(note.session_id)
            free = _waiting(note.session_id).filter(pk=note.pk, run_id__isnull=True)
            if not free.exists():
                return  # another step carried it meanwhile
            run = runs.create(
                kind=RESUME, session_id=note.session_id, prompt=for_agent([note]), by=by, now=now
            )
            free.update(run_id=run.run_id)
    except SignalboxError as refusal:  # it waits for the agent's next step
        log.info("Note %s is no prompt: %s", note.pk, refusal.detail)


def _tell(note: Note, event_type: str, reason: str, now: datetime, *, text: str | None = None) -> None:
    """Put what became of the note into its session's timeline."""
    told = DedupedEvent(
        event_type=event_type,
        session_id=note.session_id,
        timestamp=instants.canonical(now),
        reason=reason,
        tool_input=None if text is None else {"text": text},
        source=SOURCE,
        origin=f"note:{note.pk}:{event_type}",
    )
    events.record_events([told], now)


def _record(event_type: str, note: Note, by: Actor, now: datetime, **more: str) -> None:
    audit.record(
        event_type,
        actor=by,
        target=f"note:{note.pk}",
        result="success",
        metadata={"session_id": note.session_id, **more},
        now=now,
    )
