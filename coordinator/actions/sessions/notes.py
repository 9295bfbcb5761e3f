"""Notes to a working agent, delivered once: with a hook's answer, a tool's result or a prompt.

Delivery is a compare-and-swap, committed before the text is sent. So a note reaches an agent at most once, however many
workers and ways there are. Only a hook that repeats its id, because it received nothing, is sent the note again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from coordinator.actions import runs
from coordinator.actions.audit import audit
from coordinator.actions.runs.stopping import is_only_turn_being_stopped
from coordinator.actions.sessions import events
from coordinator.errors import BadRequest, Conflict, NotFound, SignalboxError, UnprocessableRequest
from coordinator.identity.actors import Actor, system_actor
from coordinator.lib import instants
from coordinator.models import DrivenSession, Note, Run, Session
from coordinator.runs.statuses import ACTIVE, OPEN, RESUME
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.notes import LONGEST, MOST_AT_ONCE, MOST_WAITING, format_notes_for_agent
from coordinator.sessions.statuses import LIVE

log = logging.getLogger(__name__)

SOURCE = "signalbox"
WRITTEN, GIVEN, NOT_GIVEN = "note", "note_delivered", "note_not_delivered"
BY = system_actor("notes")
AS_PROMPT = "its next prompt"
ENDED = "The session has ended."
REMOVED = "Its prompt ended before the agent got it."
MOST_CLOSED = 200  # in one go


def write_note(session_id: str, text: str, *, actor: Actor, now: datetime) -> Note:
    """Write a note to a session at work.

    Raises NotFound, UnprocessableRequest, and Conflict where nothing would read it.
    """
    if actor.kind != "user":
        raise BadRequest("Only a signed-in person can write notes.")
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise UnprocessableRequest("Write what the agent should know.")
    if len(text) > LONGEST or "\x00" in text:
        raise UnprocessableRequest(f"A note may have at most {LONGEST:,} characters, without NUL.")
    with transaction.atomic():
        session = Session.objects.select_for_update().filter(pk=session_id).first()
        if session is None:
            raise NotFound("Session not found")
        if session.status not in LIVE:
            raise Conflict("The session has ended, so notes cannot reach it. Resume it instead.")
        if find_waiting_notes(session_id).count() >= MOST_WAITING:
            raise Conflict(f"{MOST_WAITING} notes are already waiting for the agent's next step.")
        note = Note.objects.create(session_id=session_id, text=text, written_at=now, written_by=str(actor))
        record_note_event(note, WRITTEN, actor.name, now, text=text)
        record_note_audit("NOTE_WRITTEN", note, actor, now, text=text)
        if not Run.objects.filter(session_id=session_id, status__in=ACTIVE).exists():
            queue_note_prompt_if_driven(note, now)
    return note


def claim_notes_for_delivery(
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
        lock_session_for_notes(session_id)
        if given_to is not None:
            earlier_notes = list(Note.objects.filter(session_id=session_id, given_to=given_to).order_by("id"))
            if earlier_notes:
                return earlier_notes
        free = find_waiting_notes(session_id).filter(run_id__isnull=True)
        rows = list(free.order_by("id")[:MOST_AT_ONCE])
        delivered_notes = [
            note for note in rows if mark_note_delivered_if_waiting(note, through, now, given_to=given_to)
        ]
        if is_awaited():
            return delivered_notes
        transaction.set_rollback(True)
    return []


def lock_session_for_notes(session_id: str) -> None:
    """Have one at a time hand over, or carry, the notes of a session: what two had would reach its agent twice."""
    Session.objects.select_for_update(no_key=True).filter(pk=session_id).first()


def queue_notes_as_prompts(session_id: str, now: datetime) -> None:
    """Make prompts of the notes that a driven agent had no step left for, unless its session was ended."""
    status = Session.objects.filter(pk=session_id).values_list("status", flat=True).first()
    is_ending = status == Session.Status.STOPPING and not is_only_turn_being_stopped(session_id)
    if status not in LIVE or is_ending:
        return  # they are closed as not delivered: a prompt would have the agent go on that a person has ended
    for note in find_waiting_notes(session_id).filter(run_id__isnull=True).order_by("id"):
        queue_note_prompt_if_driven(note, now)


def mark_prompt_notes_delivered(session_id: str, run_id: str, now: datetime) -> None:
    """Note that a prompt which carries notes has reached its agent."""
    for note in find_waiting_notes(session_id).filter(run_id=run_id):
        mark_note_delivered_if_waiting(note, AS_PROMPT, now)


def close_undeliverable_notes(now: datetime) -> None:
    """Close the notes that nothing can carry any more: their session has ended, or the prompt that had them."""
    waiting = Note.objects.filter(given_at__isnull=True, closed_at__isnull=True).select_related("session")
    for note in list(waiting.order_by("id")[:MOST_CLOSED]):
        if note.run_id is not None:
            if not Run.objects.filter(pk=note.run_id, status__in=OPEN).exists():
                close_note_as_undelivered(note, REMOVED, now)
        elif note.session.status not in LIVE:
            close_note_as_undelivered(note, ENDED, now)


def find_waiting_notes(session_id: str) -> QuerySet[Note]:
    return Note.objects.filter(session_id=session_id, given_at__isnull=True, closed_at__isnull=True)


def mark_note_delivered_if_waiting(
    note: Note, through: str, now: datetime, *, given_to: str | None = None
) -> bool:
    swapped = Note.objects.filter(pk=note.pk, given_at__isnull=True, closed_at__isnull=True).update(
        given_at=now, through=through, given_to=given_to
    )
    if not swapped:
        return False
    note.given_at, note.through, note.given_to = now, through, given_to
    record_note_event(note, GIVEN, through, now)
    record_note_audit("NOTE_DELIVERED", note, BY, now, through=through)
    return True


def close_note_as_undelivered(note: Note, reason: str, now: datetime) -> None:
    with transaction.atomic():
        open_ = Note.objects.filter(pk=note.pk, given_at__isnull=True, closed_at__isnull=True)
        if open_.update(closed_at=now, why_closed=reason):
            record_note_event(note, NOT_GIVEN, reason, now)
            record_note_audit("NOTE_NOT_DELIVERED", note, BY, now, why=reason)


def queue_note_prompt_if_driven(note: Note, now: datetime) -> None:
    """Have a runner carry the note as the session's next prompt, where one drives its agent."""
    if not DrivenSession.objects.filter(pk=note.session_id).exists():
        return
    by = Actor("user", note.writer_name)
    try:
        with transaction.atomic():
            lock_session_for_notes(note.session_id)
            free = find_waiting_notes(note.session_id).filter(pk=note.pk, run_id__isnull=True)
            if not free.exists():
                return  # another step carried it meanwhile
            run = runs.queue_start_or_resume_run(
                kind=RESUME,
                session_id=note.session_id,
                prompt=format_notes_for_agent([note]),
                actor=by,
                now=now,
            )
            free.update(run_id=run.run_id)
    except SignalboxError as refusal:  # it waits for the agent's next step
        log.info("Note %s is no prompt: %s", note.pk, refusal.detail)


def record_note_event(
    note: Note, event_type: str, reason: str, now: datetime, *, text: str | None = None
) -> None:
    """Put what became of the note into its session's timeline."""
    event = DedupedEvent(
        event_type=event_type,
        session_id=note.session_id,
        timestamp=instants.format_canonical_instant(now),
        reason=reason,
        tool_input=None if text is None else {"text": text},
        source=SOURCE,
        origin=f"note:{note.pk}:{event_type}",
    )
    events.record_events([event], now)


def record_note_audit(event_type: str, note: Note, actor: Actor, now: datetime, **more: str) -> None:
    audit.record_audit_entry(
        event_type,
        actor=actor,
        target=f"note:{note.pk}",
        result="success",
        metadata={"session_id": note.session_id, **more},
        now=now,
    )
