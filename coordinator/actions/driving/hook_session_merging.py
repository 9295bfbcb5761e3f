"""A driven agent's hooks may be heard before its runner has told which session of ours it is: the two become one."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from coordinator.actions.sessions import sessions
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import system_actor
from coordinator.identity.keys import LOCAL_PROGRAM
from coordinator.models import DrivenSession, Event, Run, Runner, Session, SessionWriter
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.reports import is_reported_by_runner

LATELY = timedelta(minutes=10)
MOST_EVENTS = 20  # events of a session that its hooks have only just begun
WHY = "Its agent is driven by a runner, which reports everything in this session."


def merge_hook_session_into_driven(driven: DrivenSession, agent_session_id: str, now: datetime) -> bool:
    """Remove the sessions that the agent's hooks have just begun, where the runner tells all that is in them.

    Return whether the agent's id is this session's now: not where another driven session has it, nor one that the
    runner's key has not made. An agent may say any id, and what another has of its own stays its own.
    """
    if DrivenSession.objects.filter(agent_session_id=agent_session_id).exclude(pk=driven.pk).exists():
        return False
    namesakes = Session.objects.filter(executor_session_id=agent_session_id).exclude(pk=driven.pk)
    own = SessionWriter.objects.filter(writer=find_runner_key_name(driven.runner_id)).values("session_id")
    if namesakes.exclude(pk__in=own).exists():
        return False
    begun = namesakes.filter(executor_profile__in=AGENT_TITLES, created_at__gt=now - LATELY)
    for begun_session in begun[:5]:
        if has_only_runner_events(begun_session):
            with suppress(NotFound, Conflict):
                sessions.remove_session(begun_session.pk, actor=system_actor("runner"), reason=WHY, now=now)
    return True


def find_runner_key_name(runner_id: str) -> str:
    """Return the key under which a runner's hooks make sessions; where keys are off, the local program's."""
    key = Runner.objects.filter(pk=runner_id).values_list("registered_by", flat=True).first()
    return key or LOCAL_PROGRAM.name


def has_only_runner_events(session: Session) -> bool:
    """Say whether the runner tells all that a session holds."""
    kinds = list(Event.objects.filter(session=session).values_list("event_type", "role")[: MOST_EVENTS + 1])
    return (
        len(kinds) <= MOST_EVENTS
        and all(is_reported_by_runner(*kind) for kind in kinds)
        and not Run.objects.filter(session=session).exists()
    )
