"""The end of silent sessions that no runner drives, and their reopening at the next event (sessions/inactivity.py)."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import transaction

from coordinator.actions import runs
from coordinator.actions.audit import audit
from coordinator.actions.sessions import events
from coordinator.identity.actors import system_actor
from coordinator.lib import instants
from coordinator.lib.times import format_duration
from coordinator.models import Event, Session
from coordinator.sessions import inactivity
from coordinator.sessions.events import NewEvent

ENDED = "silence"  # the reason of the event that ends the session
SOURCE = "signalbox"


def end_session_if_silent(session_id: str, now: datetime) -> bool:
    """Finish a session that is silent for too long; false if an event has arrived meanwhile. Raises NotFound."""
    with transaction.atomic():
        runs.lock_session(session_id)
        if session_id not in inactivity.silent_session_ids_to_end(now, session_id):
            return False
        last_words = NewEvent(
            event_type="session_stop",
            session_id=session_id,
            timestamp=instants.format_canonical_instant(now),
            reason=ENDED,
            source=SOURCE,
        )
        events.record_events([last_words], now)
        audit.record_audit_entry(
            "SESSION_ENDED_BY_SILENCE",
            actor=system_actor("housekeeping"),
            target=session_id,
            result="success",
            reason=f"No activity for {format_duration(settings.SESSION_SILENT_AFTER)}.",
            now=now,
        )
    return True


def reopen_session_ended_by_silence(session_id: str, now: datetime) -> bool:
    """Take up a session that silence has ended, for its agent speaks; say whether it was one."""
    if not is_session_ended_by_silence(session_id):  # nearly always: reading takes no lock
        return False
    with transaction.atomic():
        session = runs.lock_session(session_id)
        if not is_session_ended_by_silence(session_id):
            return False
        session.status, session.last_resumed_at = Session.Status.RUNNING, now
        session.save(update_fields=["status", "last_resumed_at"])
        audit.record_audit_entry(
            "SESSION_HEARD_AGAIN",
            actor=system_actor("housekeeping"),
            target=session_id,
            result="success",
            reason="It was ended after a long silence, and its agent is active again.",
            now=now,
        )
    return True


def is_session_ended_by_silence(session_id: str) -> bool:
    if not Session.objects.filter(pk=session_id, status=Session.Status.FINISHED).exists():
        return False
    ends = Event.objects.filter(session_id=session_id, event_type="session_stop").order_by("-id")
    return ends.values_list("reason", "context__source").first() == (ENDED, SOURCE)
