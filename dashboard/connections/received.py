"""Which agents have reported, and their latest session."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from coordinator.models import Session
from coordinator.sessions import titles
from coordinator.sessions.agent_programs import AGENT_TITLES


@dataclass(frozen=True, slots=True)
class LatestAgentSession:
    """The latest session of an agent program."""

    program: str
    session_id: str
    title: str
    hostname: str | None
    at: datetime


def list_latest_agent_sessions() -> list[LatestAgentSession]:
    """Return the latest session of each agent program that has one."""
    latest_sessions = []
    for name, title in AGENT_TITLES.items():
        latest = Session.objects.filter(executor_profile=name).order_by("-created_at").first()
        if latest is not None:
            latest_sessions.append(
                LatestAgentSession(
                    title, latest.pk, titles.load_session_title(latest.pk), latest.hostname, latest.created_at
                )
            )
    return latest_sessions
