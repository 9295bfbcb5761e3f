"""Silent sessions, of which nothing is received. Nobody here runs them, so nobody here sees them die: a killed
agent reports no end. After a while of silence a running session is called idle (a word for readers: its status
stays), and after a long one it is ended (actions.sessions.inactivity).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from coordinator.lib import instants
from coordinator.models import EventContext, PermissionContext, Run, Session
from coordinator.models.gateway import GATEWAY_PROFILE
from coordinator.models.permissions import RequestStatus
from coordinator.sessions.agent_programs import AGENT_TITLES

IDLE = "idle"
OPEN_RUNS = (Run.Status.PENDING, Run.Status.CLAIMED, Run.Status.RUNNING, Run.Status.STOPPING)
# Who reports sessions that nobody here runs: the sources of their events, and their profiles.
OBSERVED_SOURCES = (*AGENT_TITLES, "telemetry")
OBSERVED_PROFILES = (*OBSERVED_SOURCES, GATEWAY_PROFILE)


def find_idle_session_ids(session_ids: Iterable[str], now: datetime) -> set[str]:
    """Return those of the sessions that are running, driven by no run and silent for SIGNALBOX_SESSION_IDLE_AFTER."""
    silent = timedelta(seconds=settings.SESSION_IDLE_AFTER)
    sessions = Session.objects.filter(pk__in=list(session_ids))
    return {
        session.pk
        for session in running_sessions_without_open_run(sessions)
        if now - last_session_activity(session, now) >= silent
    }


def silent_session_ids_to_end(now: datetime, session_id: str | None = None) -> list[str]:
    """Return the self-reported sessions (or the given one) that SIGNALBOX_SESSION_SILENT_AFTER ends.

    One that waits for a person is not among them: it is we who have not answered. One whose call was answered with
    "wait" was answered, and a request that no longer waits needs no answer.
    """
    silent = timedelta(seconds=settings.SESSION_SILENT_AFTER)
    cutoff = instants.instant_to_microseconds(now - silent)
    permission_contexts = PermissionContext.objects.filter(
        Q(waits_until__isnull=True) | Q(waits_until__gt=now),
        session_id=OuterRef("pk"),
        request__status=RequestStatus.PENDING,
        held_at__isnull=True,
    )
    reported = Q(executor_profile__in=OBSERVED_PROFILES) | Q(last_source__in=OBSERVED_SOURCES)
    quiet = Q(last_us__lte=cutoff) | Q(last_us=None)
    among = Session.objects.all() if session_id is None else Session.objects.filter(pk=session_id)
    silent_ids = running_sessions_without_open_run(among).filter(
        reported, quiet, ~Exists(permission_contexts), executor_session_id__isnull=False
    )
    return [
        session.pk for session in silent_ids[:1000] if now - last_session_activity(session, now) >= silent
    ]


def last_session_activity(session: Any, now: datetime) -> datetime:
    """Return the session's last activity: its newest event, its start or its reopening.

    `session` is one of those with `last_us`. `now` where no time of it can be read.
    """
    times = [at for at in (session.created_at, session.last_resumed_at) if isinstance(at, datetime)]
    if session.last_us is not None:
        times.append(
            instants.instant_from_microseconds(
                min(max(session.last_us, 0), instants.instant_to_microseconds(now))
            )
        )
    return max(times, default=now)


def running_sessions_without_open_run(sessions: QuerySet[Session]) -> QuerySet[Any, Any]:
    """Return the running ones that no run drives, with the instant and the source of their newest event."""
    newest = EventContext.objects.filter(session_id=OuterRef("pk")).order_by("-instant_us", "-event_id")
    driven = Run.objects.filter(session=OuterRef("pk"), status__in=OPEN_RUNS)
    running = sessions.filter(~Exists(driven), status=Session.Status.RUNNING)
    dated: QuerySet[Any, Any] = running.annotate(
        last_us=Subquery(newest.values("instant_us")[:1]), last_source=Subquery(newest.values("source")[:1])
    )
    return dated
