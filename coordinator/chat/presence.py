"""An agent's presence, known by its heartbeat."""

from __future__ import annotations

from datetime import datetime, timedelta

from coordinator.lib.instants import EPOCH
from coordinator.models import Agent

ONLINE, DEGRADED, OFFLINE = STATES = ("online", "degraded", "offline")
ONLINE_WITHIN = timedelta(seconds=90)


def agent_presence_status(agent: Agent, now: datetime, within: timedelta = ONLINE_WITHIN) -> str:
    """Return `offline` for an agent that is off or was never seen, `online` if seen `within`, else `degraded`."""
    if not agent.enabled or agent.last_seen == EPOCH:
        return OFFLINE
    last_seen = agent.last_seen
    return ONLINE if isinstance(last_seen, datetime) and now - last_seen <= within else DEGRADED
