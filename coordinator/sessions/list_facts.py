"""Data that lists show of sessions in addition to their columns, loaded for a page at once and never row by row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Count, OuterRef, QuerySet, Subquery, Sum

from coordinator.lib import instants
from coordinator.models import (
    ArchivedSession,
    EventContext,
    PermissionContext,
    Session,
    SessionFigures,
    SessionTag,
)
from coordinator.models.permissions import RequestStatus
from coordinator.sessions import titles
from coordinator.usage import reading as usage
from coordinator.usage.reading import TokenUsage

EARLIEST = timedelta(days=1) // instants.MICROSECOND  # before a session was made, in microseconds


@dataclass(slots=True)
class SessionListFacts:
    """One session's numbers and its title; none where nobody has said anything yet."""

    title: str = ""
    events: int = 0
    errors: int = 0
    children: int = 0
    waiting: int = 0
    usage: TokenUsage | None = None
    first_us: int | None = None
    last: datetime | None = field(default=None)
    files_changed: int | None = None  # None: housekeeping has not looked at the session yet
    person: str | None = None  # who started it
    tags: list[str] = field(default_factory=list)
    is_archived: bool = False


def annotate_sessions_with_last_event(sessions: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
    """Add `last_us`: the instant of each session's latest event, read from the end of its timeline's index."""
    latest = EventContext.objects.filter(session_id=OuterRef("pk")).order_by("-instant_us", "-event_id")
    dated: QuerySet[Any, Any] = sessions.annotate(last_us=Subquery(latest.values("instant_us")[:1]))
    return dated


def session_start_microseconds(session: Session, first_us: int | None = None) -> int:
    """Return when the session began, in microseconds: its earliest event, where that is dated a little before it.

    Clocks differ, and what an agent did before it first reached us is reported later. Much earlier dates are ignored.
    0 where nothing can be read. `first_us` is that event's instant, where it is known.
    """
    created = (
        instants.instant_to_microseconds(session.created_at)
        if isinstance(session.created_at, datetime)
        else 0
    )
    if first_us is None:
        in_order = EventContext.objects.filter(session_id=session.pk).order_by("instant_us", "event_id")
        first_us = in_order.values_list("instant_us", flat=True).first()
    return first_us if first_us is not None and created - EARLIEST <= first_us < created else created


def load_session_list_facts(session_ids: Iterable[str]) -> dict[str, SessionListFacts]:
    """Return the facts of these sessions by id. The same few queries however many sessions there are."""
    ids = list(session_ids)
    facts = {session_id: SessionListFacts() for session_id in ids}
    for session_id, events, errors, children, first_us, last_us in fetch_rows_for_sessions(NUMBERS, ids):
        fact = facts[session_id]
        fact.events, fact.errors, fact.children = events, errors, children
        fact.first_us, fact.last = first_us, datetime_from_microseconds_or_none(last_us)
    permission_contexts = PermissionContext.objects.filter(
        session_id__in=ids, request__status=RequestStatus.PENDING
    ).order_by()
    for session_id, waiting in permission_contexts.values_list("session_id").annotate(number=Count("*")):
        facts[session_id].waiting = waiting
    for session_id, spent in usage.load_usage_by_session(ids).items():
        facts[session_id].usage = spent
    for session_id, title in titles.load_session_titles(ids).items():
        facts[session_id].title = title
    for figures in SessionFigures.objects.filter(pk__in=ids):
        facts[figures.pk].files_changed, facts[figures.pk].person = figures.files_changed, figures.person
    tags = SessionTag.objects.filter(session_id__in=ids).order_by("tag")
    for session_id, tag in tags.values_list("session_id", "tag"):
        facts[session_id].tags.append(tag)
    for session_id in ArchivedSession.objects.filter(pk__in=ids).values_list("pk", flat=True):
        facts[session_id].is_archived = True
    return facts


def count_session_waiting_requests(session_id: str) -> int:
    """Return how many requests of the session's agent wait for a person."""
    return PermissionContext.objects.filter(
        session_id=session_id, request__status=RequestStatus.PENDING
    ).count()


def count_session_masked_secrets(session_id: str) -> int:
    """Return how many secrets were masked in the session's events; an index of those events alone says it."""
    hit = EventContext.objects.filter(session_id=session_id, masked__gt=0)
    return int(hit.aggregate(total=Sum("masked"))["total"] or 0)


def datetime_from_microseconds_or_none(at_us: int | None) -> datetime | None:
    try:
        return None if at_us is None else instants.instant_from_microseconds(at_us)
    except OverflowError:
        return None


# Each session by itself: of many at once PostgreSQL may think that they are most of the table, and read all of it.
NUMBERS = """
SELECT s.session_id,
    (SELECT count(*) FROM events e WHERE e.session_id = s.session_id),
    (SELECT count(*) FROM events e WHERE e.session_id = s.session_id AND e.error IS NOT NULL),
    (SELECT count(*) FROM sessions c WHERE c.parent_session_id = s.session_id),
    (SELECT c.instant_us FROM event_context c WHERE c.session_id = s.session_id
        ORDER BY c.instant_us, c.event_id LIMIT 1),
    (SELECT c.instant_us FROM event_context c WHERE c.session_id = s.session_id
        ORDER BY c.instant_us DESC, c.event_id DESC LIMIT 1)
FROM sessions s WHERE s.session_id IN (%(ids)s)
"""


def fetch_rows_for_sessions(statement: str, ids: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows of one of the statements above for these sessions."""
    if not ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute(statement % {"ids": ", ".join(["%s"] * len(ids))}, ids)
        return list(cursor.fetchall())
