"""The session in whose timeline an agent's calls through the MCP gateway stand: the one that runs, else one of ours."""

from __future__ import annotations

from datetime import datetime

from coordinator.actions import reported_sessions, silence
from coordinator.identity import ownership
from coordinator.identity.keys import KeyIdentity
from coordinator.models import Session
from coordinator.models.sessions import SessionStatus
from coordinator.policy.tool_calls import GATEWAY
from coordinator.sessions.reports import SessionLocation


def session_for(own: str, named: str | None, agent_id: str, caller: KeyIdentity, now: datetime) -> str:
    """Return the id of the session: the one that the client names, the agent's only running one, or one for `own`.

    `own` tells the client's connections apart. A session that the key may not write into counts as not there.
    """
    found = _named(named, caller) if named else _only_running(agent_id, caller)
    if found is not None:
        silence.reopen(found, now)
        return found
    where = SessionLocation(agent_name=agent_id, profile=GATEWAY, by=caller)
    return reported_sessions.active_session_for(f"{GATEWAY}:{own}", where, now).session_id


def _named(named: str, caller: KeyIdentity) -> str | None:
    ids = [
        *Session.objects.filter(pk=named).values_list("pk", flat=True),
        *Session.objects.filter(executor_session_id=named).values_list("pk", flat=True)[:5],
    ]
    closed = ownership.refusals(caller, ids)
    return next((one for one in ids if one not in closed), None)


def _only_running(agent_id: str, caller: KeyIdentity) -> str | None:
    running = Session.objects.filter(agent_name=agent_id, status=SessionStatus.RUNNING).exclude(
        executor_profile=GATEWAY
    )
    ids = list(running.values_list("pk", flat=True)[:2])
    return ids[0] if len(ids) == 1 and not ownership.refusals(caller, ids) else None
