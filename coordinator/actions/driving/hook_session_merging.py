"""Merging of a session made by a driven agent's hooks, before its runner reported it, with the driven session."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from django.db import transaction

from coordinator.actions.sessions import sessions
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import system_actor
from coordinator.identity.keys import LOCAL_PROGRAM
from coordinator.models import (
    DrivenSession,
    Event,
    Run,
    Runner,
    Session,
    SessionWriter,
    UsageDay,
)
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.reports import is_runner_reported_event_type

LATELY = timedelta(minutes=10)
MOST_EVENTS = 20  # events of a session that its hooks have only just begun
WHY = "Its agent is driven by a runner, which reports everything in this session."


def try_remove_duplicate_hook_sessions(driven: DrivenSession, agent_session_id: str, now: datetime) -> bool:
    """Remove the sessions that the agent's hooks have just begun, if the runner reports all that is in them.

    Return whether the agent's id now belongs to this session. It does not if another driven session has it, or a
    session that the runner's key did not make. An agent may report any id; sessions of others are left alone.
    """
    if DrivenSession.objects.filter(agent_session_id=agent_session_id).exclude(pk=driven.pk).exists():
        return False
    namesakes = Session.objects.filter(executor_session_id=agent_session_id).exclude(pk=driven.pk)
    own = SessionWriter.objects.filter(writer=runner_key_name_or_local(driven.runner_id)).values("session_id")
    if namesakes.exclude(pk__in=own).exists():
        return False
    begun = namesakes.filter(executor_profile__in=AGENT_TITLES, created_at__gt=now - LATELY)
    for begun_session in begun[:5]:
        if has_only_runner_events(begun_session):
            with suppress(NotFound, Conflict), transaction.atomic():
                sessions.remove_session(begun_session.pk, actor=system_actor("runner"), reason=WHY, now=now)
                # Its calls count in the driven session, in which the runner reports them.
                UsageDay.objects.filter(session_id=begun_session.pk, model="").delete()
    return True


def runner_key_name_or_local(runner_id: str) -> str:
    """Return the key under which a runner's hooks make sessions; where keys are off, the local program's."""
    key = Runner.objects.filter(pk=runner_id).values_list("registered_by", flat=True).first()
    return key or LOCAL_PROGRAM.name


def has_only_runner_events(session: Session) -> bool:
    """Return whether the runner reports everything that a session holds."""
    kinds = list(Event.objects.filter(session=session).values_list("event_type", "role")[: MOST_EVENTS + 1])
    return (
        len(kinds) <= MOST_EVENTS
        and all(is_runner_reported_event_type(*kind) for kind in kinds)
        and not Run.objects.filter(session=session).exists()
    )
