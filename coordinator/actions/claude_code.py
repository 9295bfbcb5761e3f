"""Claude Code's sessions in ours: found or made by Claude's own session id, taken up again, messages put together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import transaction

from coordinator import ownership
from coordinator.actions import silence, writers
from coordinator.actions.events import NewEvent
from coordinator.actions.keys import KeyIdentity
from coordinator.actions.sessions import note_lifecycle_event
from coordinator.models import MessagePart, Session
from coordinator.models.sessions import SessionStatus

PROFILE = "claude-code"
TURN_END = "turn_end"
# How the message begins that stands for a prompt of which telemetry told no more than that there was one.
UNTOLD_PROMPT = "(A prompt"


class Known(NamedTuple):
    """A session of ours for one of Claude's, and whether it is told yet where that one runs."""

    session_id: str
    complete: bool


class Whereabouts(NamedTuple):
    """Where a hook says that its session runs, as far as it says so, and by which key (None: by no door)."""

    project_dir: str | None = None
    hostname: str | None = None
    agent_name: str | None = None
    profile: str = PROFILE
    by: KeyIdentity | None = None


def session_for(
    claude_id: str, where: Whereabouts, now: datetime, status: SessionStatus = SessionStatus.RUNNING
) -> Known:
    """Return the session with this executor's id that the key may write into; made, with `status`, if there is none.

    Where the id is that of another agent's session, the caller gets one of its own and learns nothing of the
    other. Safe in many processes at once.
    """
    session = _find(claude_id, where.by)
    if session is None or _missing(session, where):  # else reading was enough, and takes no lock
        with transaction.atomic():
            session = _find(claude_id, where.by) or _make(claude_id, where, now, status)
            _fill_in(session, where)
    return Known(session.session_id, bool(session.hostname and session.project_dir))


def heard(claude_id: str, where: Whereabouts, now: datetime) -> Known:
    """Return the session of somebody who speaks just now, as `session_for`; one that silence had ended runs again."""
    known = session_for(claude_id, where, now)
    silence.heard_again(known.session_id, now)
    return known


def found(claude_id: str) -> str | None:
    """Return the id of the session with this executor's id, if there is one."""
    session = _find(claude_id)
    return session.session_id if session else None


def _find(claude_id: str, by: KeyIdentity | None = None) -> Session | None:
    """Return the session that `by` may write into; before any that was given Claude's id, one that was made for it."""
    made = set(_ids(claude_id))
    namesakes = list(Session.objects.filter(executor_session_id=claude_id).order_by("created_at"))
    namesakes.sort(key=lambda session: session.pk not in made)
    return next((session for session in namesakes if _is_open(session, by)), None)


def _ids(claude_id: str) -> Iterator[str]:
    """Yield the ids of ours that follow from Claude's, in the order in which they are tried."""
    for attempt in range(10):
        name = hashlib.sha256(f"claude-code\n{attempt}\n{claude_id}".encode()).hexdigest()[:12]
        yield f"ses_{name}"


def _is_open(session: Session, by: KeyIdentity | None) -> bool:
    return by is None or not ownership.refusals(by, [session.pk])


def _make(claude_id: str, where: Whereabouts, now: datetime, status: SessionStatus) -> Session:
    """Make the session under an id that follows from Claude's, so that two who make it at once make one."""
    for session_id in _ids(claude_id):
        session, is_new = Session.objects.get_or_create(
            session_id=session_id,
            defaults={
                "status": status,
                "created_at": now,
                "executor_session_id": claude_id,
                "executor_profile": where.profile,
                "agent_name": where.agent_name,
                "project_dir": where.project_dir,
                "hostname": where.hostname,
            },
        )
        if is_new and where.by is not None:
            writers.note_maker(session.pk, where.by.actor)
        if is_new or (session.executor_session_id == claude_id and _is_open(session, where.by)):
            return session
    raise RuntimeError(f"no free session id for {claude_id!r}")  # 48 bits, ten times over


def _fill_in(session: Session, where: Whereabouts) -> None:
    missing = _missing(session, where)
    if missing:
        for name, value in missing.items():
            setattr(session, name, value)
        session.save(update_fields=list(missing))


def _missing(session: Session, where: Whereabouts) -> dict[str, str]:
    """Return what is told now and was not known yet."""
    told = {name: getattr(where, name) for name in ("project_dir", "hostname", "agent_name")}
    return {name: value for name, value in told.items() if value and not getattr(session, name)}


@dataclass(frozen=True, slots=True)
class Piece:
    """One display of a message that is being written: `final` makes it whole."""

    message_id: str
    place: int
    text: str
    final: bool


def take_up(session_id: str, now: datetime) -> None:
    """A person speaks in a session that had ended: it runs again. (HTTP hooks alone never tell of a resume.)"""
    if Session.objects.filter(pk=session_id, status=Session.Status.RUNNING).exists():
        return  # nearly always: reading takes no lock
    start = NewEvent(event_type="session_start", session_id=session_id, timestamp="")
    with transaction.atomic():
        note_lifecycle_event(session_id, start, now)


def put_together(session_id: str, piece: Piece) -> str | None:
    """Keep a piece of a message; return the whole text where this was its last.

    Secrets are masked in the whole (actions/events.py): one may be cut in two here, and pieces live for seconds.
    """
    with transaction.atomic():
        parts = MessagePart.objects.filter(session_id=session_id, message_id=piece.message_id)
        if not piece.final:
            MessagePart.objects.bulk_create(
                [
                    MessagePart(
                        session_id=session_id,
                        message_id=piece.message_id,
                        place=piece.place,
                        text=piece.text,
                    )
                ],
                ignore_conflicts=True,
            )
            return None
        before = "".join(parts.filter(place__lt=piece.place).order_by("place").values_list("text", flat=True))
        parts.delete()
    return piece.text if piece.text.startswith(before) else before + piece.text


def leftovers(session_id: str) -> dict[str, str]:
    """Return by message id, and forget, what was displayed of messages that were never finished."""
    found: dict[str, str] = {}
    parts = MessagePart.objects.filter(session_id=session_id)
    if not parts.exists():
        return found
    with transaction.atomic():
        for part in parts.order_by("id"):
            found[part.message_id] = found.get(part.message_id, "") + part.text
        parts.delete()
    return found
