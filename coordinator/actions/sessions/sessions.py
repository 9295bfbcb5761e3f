"""Executors' updates of sessions, and the ending and deletion of sessions by people.

How a session's status follows from its runs is in actions.runs; here are the changes from outside a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from django.db import transaction

from coordinator.actions import runs
from coordinator.actions.audit import audit
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import Actor
from coordinator.lib import instants
from coordinator.models import Callback, Event, EventContext, LivingExecutor, Run, Session, UnreadableText
from coordinator.runs.statuses import ACTIVE, OPEN, START_EVENTS, STOP_EVENTS

METADATA = (
    "project_dir",
    "agent_name",
    "last_resumed_at",
    "executor_session_id",
    "executor_profile",
    "hostname",
)


class LifecycleEvent(Protocol):
    """What `advance_session_and_decide_storage` needs to know of an event; sessions.events.NewEvent has it."""

    event_type: Any


def require_session(session_id: str) -> Session:
    """Return the session. Raises NotFound."""
    session = Session.objects.filter(pk=session_id).first()
    if session is None:
        raise NotFound("Session not found")
    return session


def bind_session_executor(
    session_id: str,
    *,
    executor_session_id: str,
    hostname: str,
    executor_profile: str,
    project_dir: str | None = None,
) -> Session:
    """Bind the session to its executor and note where it runs. Raises NotFound.

    The session is then running, unless it is being stopped or has ended and this is a late report.
    """
    with transaction.atomic():
        session = runs.lock_session(session_id)
        session.executor_session_id = executor_session_id
        session.hostname = hostname
        session.executor_profile = executor_profile
        session.project_dir = project_dir or session.project_dir
        if session.status != Session.Status.STOPPING and not has_only_ended_runs(session):
            session.status = Session.Status.RUNNING
        session.save(
            update_fields=["status", "executor_session_id", "hostname", "executor_profile", "project_dir"]
        )
    return session


def has_only_ended_runs(session: Session) -> bool:
    """Return whether the session's runs have all ended: what its processes still send does not make it run again."""
    ended = session.status in {*runs.AFTERWARDS.values(), Session.Status.IDLE}
    ran = Run.objects.filter(session=session)
    return ended and ran.exists() and not ran.filter(status__in=OPEN).exists()


def save_session_metadata(session_id: str, changes: Mapping[str, Any]) -> Session:
    """Set the given fields among METADATA; None leaves one as it is. Always broadcast. Raises NotFound."""
    with transaction.atomic():
        session = runs.lock_session(session_id)
        changed_names = [name for name in METADATA if changes.get(name) is not None]
        for name in changed_names:
            setattr(
                session,
                name,
                parse_resumed_at_or_text(changes[name]) if name == "last_resumed_at" else changes[name],
            )
        session.save(update_fields=changed_names or ["project_dir"])
    return session


def parse_resumed_at_or_text(text: str) -> datetime | UnreadableText:
    """Return the time that an executor's text gives, or the text itself, to be stored unchanged."""
    return instants.parse_instant_or_none(text) or UnreadableText(text)


def advance_session_and_decide_storage(session_id: str, event: LifecycleEvent, now: datetime) -> bool:
    """Let an executor's start or end event move its session on; say whether the event is to be stored.

    Called by ingest within its transaction, before it inserts the event (the stream then shows the session's
    change first, as clients know it). False for the start of a run whose start the coordinator has written
    already, and for the end of a session that its telemetry has ended: answer it as any other, store nothing.
    An end finishes the session; the run ends with its runner's report, and with it come callbacks and the next
    run in line.
    """
    session = Session.objects.select_for_update(no_key=True).filter(pk=session_id).first()
    if session is None:
        return True
    if event.event_type in START_EVENTS:
        return begin_session_and_decide_storage(session, now)
    if event.event_type in STOP_EVENTS:
        return finish_session_and_decide_storage(session, now)
    return True


def begin_session_and_decide_storage(session: Session, now: datetime) -> bool:
    run = Run.objects.filter(session=session, status__in=ACTIVE).first()
    if run is None:
        resume_session_without_run(session, now)
        return True
    since = run.claimed_at if isinstance(run.claimed_at, datetime) else now
    return not runs.has_session_event_since(session.session_id, START_EVENTS, since=since)


def resume_session_without_run(session: Session, now: datetime) -> None:
    """An executor that no runner started says that it is at work."""
    if session.status == Session.Status.RUNNING or has_only_ended_runs(session):
        return
    if session.status != Session.Status.PENDING:
        session.last_resumed_at = now
    session.status = Session.Status.RUNNING
    session.save(update_fields=["status", "last_resumed_at"])


def finish_session_and_decide_storage(session: Session, now: datetime) -> bool:
    """Last words of a session that is being or was stopped, or has failed, do not make it finished."""
    if session.status == Session.Status.FINISHED:
        return find_telemetry_end_microseconds(session.session_id) is None
    if session.status in {Session.Status.PENDING, Session.Status.RUNNING}:
        session.status = Session.Status.FINISHED
        session.save(update_fields=["status"])
        runs.resume_parent_with_callbacks(session, now)
    return True


def find_telemetry_end_microseconds(session_id: str) -> int | None:
    """Return when (µs, UTC) its telemetry says that a session ended, if that is its last end; else None."""
    ends = EventContext.objects.filter(session_id=session_id, event__event_type__in=STOP_EVENTS)
    last_end = ends.order_by("-event_id").values_list("source", "instant_us").first()
    return last_end[1] if last_end is not None and last_end[0] == "telemetry" else None


@dataclass(frozen=True, slots=True)
class SessionDeletion:
    events: int
    runs: int


def remove_session(
    session_id: str, *, actor: Actor, now: datetime, reason: str | None = None
) -> SessionDeletion:
    """Remove a session with its events and runs; its children become sessions of their own.

    Raises NotFound, and Conflict while a runner has a run of it, or keeps its process for the next: that runner
    would be left with a process whose reports nobody takes.
    """
    with transaction.atomic():
        session = runs.lock_session(session_id)
        if Run.objects.filter(session=session, status__in=ACTIVE).exists():
            raise Conflict("Session is running. Stop session first")
        if LivingExecutor.objects.filter(pk=session_id).exists():
            raise Conflict("The session's process waits for its next run. Stop session first")
        events = Event.objects.filter(session=session).count()
        # Before the session, so that readers of the feed can count them when the session goes.
        deleted_count, _ = Run.objects.filter(session=session).delete()
        Callback.objects.filter(parent_session_id=session_id).delete()
        Session.objects.filter(pk=session_id).delete()
        audit.record_audit_entry(
            "SESSION_DELETED",
            actor=actor,
            target=session_id,
            result="success",
            reason=reason,
            metadata={"events": events, "runs": deleted_count},
            now=now,
        )
    return SessionDeletion(events, deleted_count)
