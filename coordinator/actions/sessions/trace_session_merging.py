"""Merging of the session that was made for a trace with the session that a later export names.

Telemetry comes in parts, and the part that names the conversation may come last. Until then the trace has a session of
its own. If the named session exists already, what was written moves there: events with their origins, usage, and the
words of the search index. All of it is one transaction, so a request is counted in one of the two at any time.

A session is left apart if anything but its telemetry belongs to it: a run, a note, a title that a person gave.
"""

from __future__ import annotations

from datetime import datetime

from django.db import connection, transaction
from django.db.models import Value
from django.db.models.functions import Concat, Substr

from coordinator.actions.audit import audit
from coordinator.actions.search.progress import mark_indexed_events_stale
from coordinator.identity.actors import Actor
from coordinator.models import (
    Event,
    EventContext,
    EventOrigin,
    ModelRequestUsage,
    Session,
    SessionGuard,
    SessionTitle,
    SessionWriter,
    UsageDay,
)
from coordinator.runs.statuses import STOP_EVENTS
from coordinator.sessions.reports import TURN_END

MAX_EVENTS = 20_000  # of a trace's session; one with more is left apart
# What belongs to a session of telemetry and moves, or goes with it.
_OWN_PARTS = frozenset({Event, SessionWriter, SessionTitle, SessionGuard})
_SUMS = (
    "calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost", "unpriced_tokens",
)  # fmt: skip
_OWNERS = ("agent", "program", "person", "hostname", "project_dir")
_MOVE_USAGE_DAYS = (
    f"INSERT INTO usage_days (day, session_id, model, {', '.join((*_OWNERS, *_SUMS))})"  # noqa: S608 - names of ours
    f" SELECT day, %s, model, {', '.join((*_OWNERS, *_SUMS))} FROM usage_days WHERE session_id = %s"
    " ORDER BY day, model ON CONFLICT (day, session_id, model) DO UPDATE SET "
    + ", ".join(f"{name} = usage_days.{name} + excluded.{name}" for name in _SUMS)
)


def try_merge_trace_session(
    trace_session: Session, named_session: Session, *, actor: Actor, now: datetime
) -> bool:
    """Move what the trace's session holds into the named one and delete it; False where it must stay apart."""
    with transaction.atomic():
        ids = [trace_session.pk, named_session.pk]
        locked = list(Session.objects.select_for_update().filter(pk__in=ids).order_by("pk"))
        if len(locked) < len(ids) or not is_trace_session_mergeable(trace_session):
            return False
        event_ids = list(
            Event.objects.filter(session=trace_session).values_list("pk", flat=True)[: MAX_EVENTS + 1]
        )
        if len(event_ids) > MAX_EVENTS or not try_move_event_origins(trace_session.pk, named_session.pk):
            return False
        Event.objects.filter(session=trace_session, event_type__in=STOP_EVENTS).update(event_type=TURN_END)
        Event.objects.filter(session=trace_session).update(session=named_session)
        EventContext.objects.filter(session_id=trace_session.pk).update(session_id=named_session.pk)
        ModelRequestUsage.objects.filter(session_id=trace_session.pk).update(session_id=named_session.pk)
        with connection.cursor() as cursor:
            cursor.execute(_MOVE_USAGE_DAYS, [named_session.pk, trace_session.pk])
        UsageDay.objects.filter(session_id=trace_session.pk).delete()
        mark_indexed_events_stale(event_ids)
        Session.objects.filter(pk=trace_session.pk).delete()
        audit.record_audit_entry(
            "SESSION_JOINED",
            actor=actor,
            target=trace_session.pk,
            result="success",
            reason="Its trace was named by a later export.",
            metadata={"into": named_session.pk, "events": len(event_ids)},
            now=now,
        )
    return True


def is_trace_session_mergeable(session: Session) -> bool:
    """Return whether nothing belongs to the session but its telemetry."""
    if EventContext.objects.filter(session_id=session.pk).exclude(source="telemetry").exists():
        return False
    if SessionTitle.objects.filter(session=session, source=SessionTitle.Source.PERSON).exists():
        return False
    return not any(
        relation.related_model._base_manager.filter(**{relation.field.name: session}).exists()
        for relation in Session._meta.related_objects
        if relation.related_model not in _OWN_PARTS
    )


def try_move_event_origins(old_id: str, new_id: str) -> bool:
    """Give the events' origins, and the keys of requests made of them, the other session; False if one is taken."""
    prefix = f"{old_id}:"

    def build_moved_origin_key(column: str) -> Concat:
        return Concat(Value(f"{new_id}:"), Substr(column, len(prefix) + 1))

    scoped = EventOrigin.objects.filter(session_id=old_id, key__startswith=prefix)
    moved_keys = scoped.annotate(moved_key=build_moved_origin_key("key")).values("moved_key")
    if EventOrigin.objects.filter(key__in=moved_keys).exists():
        return False
    scoped.update(key=build_moved_origin_key("key"))
    EventOrigin.objects.filter(session_id=old_id).update(session_id=new_id)
    requests = ModelRequestUsage.objects.filter(session_id=old_id, request_key__startswith=prefix)
    requests.update(request_key=build_moved_origin_key("request_key"))
    return True
