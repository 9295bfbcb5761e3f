"""Silence ends the sessions that nobody here runs; a word of them takes them up again (coordinator.silence)."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.template.defaultfilters import pluralize

from coordinator import instants, silence
from coordinator.actions import audit, events, runs
from coordinator.actors import system
from coordinator.models import Event, Session

ENDED = "silence"  # the reason of the event that ends the session
SOURCE = "signalbox"


def end(session_id: str, now: datetime) -> bool:
    """Finish a session that is silent for too long; false where it was heard again meanwhile. Raises NotFound."""
    with transaction.atomic():
        runs.lock_session(session_id)
        if session_id not in silence.due(now, session_id):
            return False
        last_words = events.NewEvent(
            event_type="session_stop",
            session_id=session_id,
            timestamp=instants.canonical(now),
            reason=ENDED,
            source=SOURCE,
        )
        events.record_events([last_words], now)
        audit.record(
            "SESSION_ENDED_BY_SILENCE",
            actor=system("housekeeping"),
            target=session_id,
            result="success",
            reason=f"Nothing was heard of it for {_in_words(timedelta(seconds=settings.SESSION_SILENT_AFTER))}.",
            now=now,
        )
    return True


def heard_again(session_id: str, now: datetime) -> bool:
    """Take up a session that silence has ended, for its agent speaks; say whether it was one."""
    if not _ended_by_silence(session_id):  # nearly always: reading takes no lock
        return False
    with transaction.atomic():
        session = runs.lock_session(session_id)
        if not _ended_by_silence(session_id):
            return False
        session.status, session.last_resumed_at = Session.Status.RUNNING, now
        session.save(update_fields=["status", "last_resumed_at"])
        audit.record(
            "SESSION_HEARD_AGAIN",
            actor=system("housekeeping"),
            target=session_id,
            result="success",
            reason="Silence had ended it; its agent speaks again.",
            now=now,
        )
    return True


def _ended_by_silence(session_id: str) -> bool:
    if not Session.objects.filter(pk=session_id, status=Session.Status.FINISHED).exists():
        return False
    ends = Event.objects.filter(session_id=session_id, event_type="session_stop").order_by("-id")
    return ends.values_list("reason", "context__source").first() == (ENDED, SOURCE)


def _in_words(length: timedelta) -> str:
    minutes = round(length.total_seconds() / 60)
    return f"{minutes} minute{pluralize(minutes)}" if minutes < 120 else f"{round(minutes / 60)} hours"
