"""A driven agent's hooks may be heard before its runner has told which session of ours it is: the two become one."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from coordinator.actions import sessions
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import system
from coordinator.models import Event, Run, Session
from coordinator.sessions.agent_programs import AGENTS
from coordinator.sessions.reports import is_told_by_runner

LATELY = timedelta(minutes=10)
MOST = 20  # events of a session that its hooks have only just begun
WHY = "Its agent is driven by a runner, which tells all that this session held."


def join_hooks_session(session_id: str, agent_session_id: str, now: datetime) -> None:
    """Remove the session that the agent's hooks have just begun, where the runner tells all that is in it."""
    begun = Session.objects.filter(
        executor_session_id=agent_session_id, executor_profile__in=AGENTS, created_at__gt=now - LATELY
    ).exclude(pk=session_id)
    for one in begun[:5]:
        kinds = list(Event.objects.filter(session=one).values_list("event_type", "role")[: MOST + 1])
        if (
            len(kinds) <= MOST
            and all(is_told_by_runner(*kind) for kind in kinds)
            and not Run.objects.filter(session=one).exists()
        ):
            with suppress(NotFound, Conflict):
                sessions.delete(one.pk, by=system("runner"), reason=WHY, now=now)
