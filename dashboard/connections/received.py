"""The agent programs that have reported, with their latest sessions; the first session of a new key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from coordinator.client.connecting.connection_test import TRIAL_SESSION_PREFIX
from coordinator.models import ApiKey, Session
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


@dataclass(frozen=True, slots=True)
class FirstReport:
    """The progress of a new key: whether it was created from its code, and its first session."""

    key_name: str
    is_connected: bool
    session: Session | None
    title: str


def list_sessions_without_probes() -> QuerySet[Session]:
    """Return the sessions, without those that `signalbox connect` and the doctor make as a test."""
    trials = Q(executor_session_id__startswith=TRIAL_SESSION_PREFIX)
    return Session.objects.exclude(trials & Q(executor_session_id__isnull=False))


def load_key_connection_progress(key_name: str) -> FirstReport:
    """Return the progress of the key with this name. If there is no such key, its code was not used yet."""
    session = list_sessions_without_probes().filter(writers__writer=key_name).order_by("created_at").first()
    return FirstReport(
        key_name,
        is_connected=ApiKey.objects.filter(name=key_name).exists(),
        session=session,
        title=titles.load_session_title(session.pk) if session else "",
    )
