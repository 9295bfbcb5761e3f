"""Counts of sessions' calls without a guard, and their notifications, once a session."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max

from coordinator.actions.notifications.announcing import announce_unguarded_calls
from coordinator.models import Event, EventContext, Session, SessionGuard
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.unguarded_calls import GuardReport, load_guard_report

# A hook may be committed after the result of its call, and one that could not be delivered comes later still.
SETTLED_AFTER = timedelta(seconds=60)
MOST_SESSIONS = 200  # in one pass
MOST_UNSETTLED = 500_000  # ids within SETTLED_AFTER: more than one installation takes in that time
FIRST_LOOK = 5_000  # ids of events that a new process looks back
OVERLAP = 1_000  # ids that an event of a transaction still open may get


class CountingProgress:
    """How far this process has counted: all events up to the id `upto`."""

    upto: int | None = None


def update_recent_unguarded_call_counts(now: datetime) -> int:
    """Count the unguarded calls of the sessions in which calls ended since the last pass; return how many sessions."""
    ids = EventContext.objects.order_by("-event_id").values_list("event_id", flat=True)
    last_id = ids.first() or 0
    settled = ids.filter(event_id__gt=last_id - MOST_UNSETTLED, received_at__lte=now - SETTLED_AFTER)
    newest = settled.first()
    if newest is None:
        return 0
    after = newest - FIRST_LOOK if CountingProgress.upto is None else CountingProgress.upto - OVERLAP
    ended = Event.objects.filter(id__gt=after, id__lte=newest, event_type="post_tool")
    ended = ended.filter(session__executor_profile__in=AGENT_TITLES)
    counted = ended.values("session_id").annotate(last=Max("id")).order_by("last")[:MOST_SESSIONS]
    last_ids = dict(counted.values_list("session_id", "last"))
    for session in Session.objects.filter(pk__in=last_ids).order_by("pk"):
        report = load_guard_report(session, until=now - SETTLED_AFTER)
        if report is not None:
            save_unguarded_call_counts(session, report, now)
    is_complete = len(last_ids) < MOST_SESSIONS
    CountingProgress.upto = newest if is_complete else max(last_ids.values())
    return len(last_ids)


def save_unguarded_call_counts(session: Session, report: GuardReport, now: datetime) -> None:
    """Write what a report counted; the first unguarded call of a session is announced."""
    with transaction.atomic():
        guard, _ = SessionGuard.objects.select_for_update().get_or_create(
            pk=session.pk, defaults={"counted_at": now}
        )
        guard.unguarded, guard.without_hook = report.unguarded_count, report.without_hook_count
        guard.mode, guard.counted_at = report.mode, now
        if report.unguarded_count and guard.reported_at is None:
            guard.reported_at = now
            announce_unguarded_calls(session.pk, now=now)
        guard.save()
