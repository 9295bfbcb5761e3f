"""Sessions that agents report themselves: found or created by the agent's session id, reopened, messages assembled."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, Max, OuterRef

from coordinator.actions.sessions import events, inactivity, origins, trace_session_merging, writers
from coordinator.actions.sessions.sessions import (
    advance_session_and_decide_storage,
    find_telemetry_end_microseconds,
)
from coordinator.engine.values import cast_to_text_sql
from coordinator.identity import ownership
from coordinator.identity.keys import KeyIdentity
from coordinator.lib import instants
from coordinator.models import EventContext, EventOrigin, MessagePart, Run, Session
from coordinator.models.sessions import SessionStatus
from coordinator.runs.statuses import ACTIVE, run_status_in_list_sql
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.events import DedupedEvent, NewEvent
from coordinator.sessions.reports import MODEL_REQUEST, MessagePiece, RecordedHookSession, SessionLocation

# Its session says nothing else for so long: the sender of a message that was not finished is taken for dead.
UNFINISHED_FOR = timedelta(minutes=15)
UNFINISHED = "Its end was never reported."
# How long before its first report a session may have begun; an earlier date is implausible.
LONGEST_BEFORE = timedelta(days=1)


def find_or_create_reported_session(
    executor_id: str, location: SessionLocation, now: datetime, status: SessionStatus = SessionStatus.RUNNING
) -> RecordedHookSession:
    """Return the session with this executor's id that the key may write into; made, with `status`, if there is none.

    Where the id is that of another agent's session, the caller gets one of its own and learns nothing of the
    other. Safe in many processes at once.
    """
    driven = find_driven_session_id(executor_id, location)
    if driven is not None:
        return RecordedHookSession(driven, complete=True, driven=True)
    session, is_new = find_session_writable_by_key(executor_id, location.by), False
    if session is None or find_missing_session_columns(
        session, location
    ):  # else reading was enough, and takes no lock
        with transaction.atomic():
            if session is None:
                session, is_new = insert_or_find_reported_session(executor_id, location, now, status)
            fill_missing_session_columns(session, location)
    return RecordedHookSession(
        session.session_id, bool(session.hostname and session.project_dir), is_new=is_new
    )


# In plain SQL: many hooks run it, and building the statement each time takes longer than the database does.
DRIVEN = (
    "SELECT d.session_id FROM driven_sessions d WHERE (d.agent_session_id = %s AND ("  # noqa: S608 - our statuses
    "EXISTS (SELECT 1 FROM runs r WHERE r.session_id = d.session_id"
    f" AND r.status IN ({run_status_in_list_sql(ACTIVE)}))"
    " OR EXISTS (SELECT 1 FROM living_executors l WHERE l.session_id = d.session_id)))"
    " OR (d.session_id = %s AND (d.agent_session_id IS NULL OR d.agent_session_id = %s))"
    " ORDER BY d.session_id LIMIT 10"
)


def find_driven_session_id(executor_id: str, location: SessionLocation) -> str | None:
    """Return the session in which a runner drives this agent now, if its hooks' key may write into it; else None.

    The agent's own id identifies it or, before that is reported, the id that the runner gave its agent to pass on. Once
    no run of it is active and no agent waits, somebody else has taken it up, unless the hook reports that it is the
    runner's.
    """
    with connection.cursor() as cursor:
        cursor.execute(DRIVEN, [executor_id, location.driven, executor_id])
        ids = [session_id for (session_id,) in cursor.fetchall()]
    closed = (
        ownership.find_session_write_refusals(location.by, ids) if ids and location.by is not None else {}
    )
    return next((session_id for session_id in ids if session_id not in closed), None)


def reopen_or_create_session(
    executor_id: str, location: SessionLocation, now: datetime
) -> RecordedHookSession:
    """Return the session of somebody who speaks just now, as `find_or_create_reported_session`; one that silence had
    ended runs again.
    """
    existing_session = find_or_create_reported_session(executor_id, location, now)
    if not existing_session.driven and not existing_session.is_new:
        inactivity.reopen_session_ended_by_silence(existing_session.session_id, now)
    return existing_session


def find_or_create_telemetry_session(
    executor_id: str, location: SessionLocation, first: datetime, last: datetime, now: datetime
) -> RecordedHookSession:
    """Find or create the session whose telemetry reports what happened from `first` to `last`.

    A new one began with the first; one that its telemetry had ended (`session_stop`) runs again where something
    happened after that. Late reports of the time before do not make it run.
    """
    started_at = min(first, now) if first > now - LONGEST_BEFORE else now
    existing_session = find_or_create_reported_session(executor_id, location, started_at)
    if existing_session.driven:
        return existing_session
    inactivity.reopen_session_ended_by_silence(existing_session.session_id, now)
    if is_session_finished(existing_session.session_id) and is_session_ended_by_telemetry(
        existing_session.session_id, before=last
    ):
        reopen_ended_session(existing_session.session_id, now)
    return existing_session


def is_session_ended_by_telemetry(session_id: str, *, before: datetime) -> bool:
    ended = find_telemetry_end_microseconds(session_id)
    return ended is not None and ended < instants.instant_to_microseconds(before)


def is_session_finished(session_id: str) -> bool:
    """Return whether the session has ended."""
    return Session.objects.filter(pk=session_id, status=Session.Status.FINISHED).exists()


def has_active_run_or_events_after(session_id: str, at_us: int) -> bool:
    """Return whether a session that ends with its telemetry at `at_us` goes on all the same.

    Something happened in it later, or a run of it is active: then its runner reports its end.
    """
    if Run.objects.filter(session=session_id, status__in=ACTIVE).exists():
        return True
    return EventContext.objects.filter(session_id=session_id, instant_us__gt=at_us).exists()


def find_session_id_by_executor_id(executor_id: str, key: KeyIdentity | None = None) -> str | None:
    """Return the id of the session with this executor's id that `by` (None: anybody) may write into, if any."""
    session = find_session_writable_by_key(executor_id, key)
    return session.session_id if session else None


def find_subagent_session_and_name(
    thread: str, origin: str, key: KeyIdentity | None
) -> tuple[str, str] | None:
    """Return the session whose sub-agent's thread this is, if `by` may write into it, and the sub-agent's name.

    `origin` is what that session has claimed for the thread. A thread that has a session of its own is nobody's.
    """
    session_id = EventOrigin.objects.filter(key=origin).values_list("session_id", flat=True).first()
    if session_id is None or (key is not None and ownership.find_session_write_refusals(key, [session_id])):
        return None
    if find_session_id_by_executor_id(thread, key) is not None:
        return None
    named_contexts = EventContext.objects.filter(session_id=session_id, subagent__endswith=thread)
    return session_id, named_contexts.values_list("subagent", flat=True).first() or thread


def find_executor_id_by_origin(origin: str, key: KeyIdentity | None) -> str | None:
    """Return the executor's id of the session that has claimed `origin`, if `by` may write into it."""
    claims = EventOrigin.objects.filter(key=origin).values_list("session_id", flat=True)
    session = Session.objects.filter(pk__in=claims).first()
    return session.executor_session_id if session and is_session_writable(session, key) else None


def assign_executor_or_merge_trace_session(
    unnamed: str, executor_id: str, origin: str, key: KeyIdentity, now: datetime
) -> None:
    """Give the session that was made for a trace the executor's id that a later export names.

    If a session has that id already, what the trace's session holds is moved there. The session claims `origin`, by
    which parts of the trace that come later are known to be its.
    """
    trace_session = find_session_writable_by_key(unnamed, key)
    if trace_session is None:
        return
    named_session = find_session_writable_by_key(executor_id, key) or trace_session
    if named_session is trace_session:
        Session.objects.filter(pk=trace_session.pk, executor_session_id=unnamed).update(
            executor_session_id=executor_id
        )
    elif named_session.pk == trace_session.pk or not trace_session_merging.try_merge_trace_session(
        trace_session, named_session, actor=key.caller_actor, now=now
    ):
        return
    origins.claim_event_origin_in_session(named_session.pk, origin, now)


def find_session_writable_by_key(executor_id: str, key: KeyIdentity | None = None) -> Session | None:
    """Return the session that `by` may write into; first one that was made for the id, then any that was given it."""
    derived_ids = set(iterate_session_id_candidates(executor_id))
    namesakes = list(Session.objects.filter(executor_session_id=executor_id).order_by("created_at"))
    namesakes.sort(key=lambda session: session.pk not in derived_ids)
    return next((session for session in namesakes if is_session_writable(session, key)), None)


def iterate_session_id_candidates(executor_id: str) -> Iterator[str]:
    """Yield the ids of ours that follow from the agent's, in the order in which they are tried."""
    for attempt in range(10):
        # The same name for every agent program: an agent's hooks and its telemetry meet in one session.
        name = hashlib.sha256(f"claude-code\n{attempt}\n{executor_id}".encode()).hexdigest()[:12]
        yield f"ses_{name}"


def is_session_writable(session: Session, key: KeyIdentity | None) -> bool:
    return key is None or not ownership.find_session_write_refusals(key, [session.pk])


def insert_or_find_reported_session(
    executor_id: str, location: SessionLocation, now: datetime, status: SessionStatus
) -> tuple[Session, bool]:
    """Make the session under an id that follows from the agent's, so that two who make it at once make one.

    Returns it, and whether it is new.
    """
    # Only one that is new is given its parent: so no session is ever its own ancestor.
    parent = find_session_writable_by_key(location.parent, location.by) if location.parent else None
    for session_id in iterate_session_id_candidates(executor_id):
        new_session = Session(
            session_id=session_id,
            parent_session=parent,
            status=status,
            created_at=now,
            executor_session_id=executor_id,
            executor_profile=location.profile,
            agent_name=location.agent_name,
            project_dir=mask_secrets_in_value(location.project_dir),
            hostname=mask_secrets_in_value(location.hostname),
        )
        session, is_new = insert_or_find_session(new_session)
        if is_new and location.by is not None:
            writers.record_session_creator_key(session.pk, location.by.caller_actor)
        if is_new or (
            session.executor_session_id == executor_id and is_session_writable(session, location.by)
        ):
            return session, is_new
    raise RuntimeError(f"no free session id for {executor_id!r}")  # 48 bits, ten times over


def insert_or_find_session(session: Session) -> tuple[Session, bool]:
    """Return the session and True, or the one that has its id already and False."""
    try:
        with transaction.atomic():
            session.save(force_insert=True)  # nearly always: looking first would be one more statement
    except IntegrityError:
        existing_session = Session.objects.filter(pk=session.pk).first()
        if existing_session is None:
            raise
        return existing_session, False
    return session, True


def fill_missing_session_columns(session: Session, location: SessionLocation) -> None:
    missing = find_missing_session_columns(session, location)
    if missing:
        for name, value in missing.items():
            setattr(session, name, value)
        session.save(update_fields=list(missing))


def find_missing_session_columns(session: Session, location: SessionLocation) -> dict[str, str]:
    """Return the reported values that the session lacks."""
    reported = {name: getattr(location, name) for name in ("project_dir", "hostname", "agent_name")}
    return {
        name: mask_secrets_in_value(value)
        for name, value in reported.items()
        if value and not getattr(session, name)
    }


def has_telemetry_tokens(session_id: str) -> bool:
    """Return whether telemetry reports the tokens of the session's requests to the model."""
    telemetry_contexts = EventContext.objects.filter(session_id=session_id, source="telemetry")
    return telemetry_contexts.filter(event__event_type=MODEL_REQUEST).exists()


def reopen_ended_session(session_id: str, now: datetime) -> None:
    """Reopen an ended session in which a person writes again. (HTTP hooks alone do not report a resume.)"""
    if Session.objects.filter(pk=session_id, status=Session.Status.RUNNING).exists():
        return  # nearly always: reading takes no lock
    start = NewEvent(event_type="session_start", session_id=session_id, timestamp="")
    with transaction.atomic():
        advance_session_and_decide_storage(session_id, start, now)


# In plain SQL, as DRIVEN is, since many hooks display a piece of a message.
KEEP_PIECE = (
    "INSERT INTO message_parts (session_id, message_id, place, text) VALUES (%s, %s, %s, %s)"
    " ON CONFLICT DO NOTHING"
)
TAKE_PIECES = (
    "DELETE FROM message_parts WHERE session_id = %s AND message_id = %s"  # noqa: S608 - a name of ours
    f" RETURNING place, {cast_to_text_sql('text')}"
)
HAS_PIECES = "SELECT 1 FROM message_parts WHERE session_id = %s LIMIT 1"


def store_piece_or_pop_message(session_id: str, piece: MessagePiece) -> str | None:
    """Keep a piece of a message; return the whole text where this was its last.

    Secrets are masked in the whole (actions/events.py): one may be cut in two here. Pieces live for seconds, or
    until `write_unfinished_messages` where their sender died.
    """
    with connection.cursor() as cursor:
        if not piece.final:
            cursor.execute(KEEP_PIECE, [session_id, piece.message_id, piece.index, piece.text])
            return None
        cursor.execute(TAKE_PIECES, [session_id, piece.message_id])
        piece_rows = sorted(cursor.fetchall())
    before = "".join(text for place, text in piece_rows if place < piece.index)
    return piece.text if piece.text.startswith(before) else before + piece.text


def pop_unfinished_messages(session_id: str) -> dict[str, str]:
    """Return by message id, and forget, what was displayed of messages that were never finished."""
    with connection.cursor() as cursor:
        cursor.execute(HAS_PIECES, [session_id])
        if cursor.fetchone() is None:  # nearly always: reading takes no lock
            return {}
    texts: dict[str, str] = {}
    parts = MessagePart.objects.filter(session_id=session_id)
    with transaction.atomic():
        for part in parts.select_for_update().order_by("id"):  # who comes second finds none
            texts[part.message_id] = texts.get(part.message_id, "") + part.text
        parts.delete()
    return texts


def find_unfinished_message_session_ids(now: datetime) -> list[str]:
    """Return sessions with pieces of a message but no other event for `UNFINISHED_FOR`."""
    cutoff = now - UNFINISHED_FOR
    recent_events = EventContext.objects.filter(session_id=OuterRef("session_id"), received_at__gt=cutoff)
    parts = MessagePart.objects.filter(~Exists(recent_events), session__created_at__lte=cutoff)
    return list(parts.values_list("session_id", flat=True).distinct().order_by("session_id")[:1000])


def write_unfinished_messages(session_id: str, now: datetime) -> None:
    """Write what was displayed of messages whose sender died in the middle, masked as every event is."""
    with transaction.atomic():
        last_us = EventContext.objects.filter(session_id=session_id).aggregate(at=Max("instant_us"))["at"]
        messages = [
            DedupedEvent(
                event_type="message",
                session_id=session_id,
                timestamp=instants.format_canonical_instant(
                    now if last_us is None else instants.instant_from_microseconds(last_us)
                ),
                role="assistant",
                content=[{"type": "text", "text": text}],
                reason=UNFINISHED,
                source=last_hook_source_or_executor(session_id),
                origin=f"unfinished:{message_id}:{uuid.uuid4().hex}",
            )
            for message_id, text in pop_unfinished_messages(session_id).items()
        ]
        if messages:
            events.record_events(messages, now)


def last_hook_source_or_executor(session_id: str) -> str:
    """Return the agent whose hooks reported the session last; only hooks send messages in pieces."""
    contexts = EventContext.objects.filter(session_id=session_id, source__in=AGENT_TITLES).order_by(
        "-instant_us"
    )
    return contexts.values_list("source", flat=True).first() or "executor"
