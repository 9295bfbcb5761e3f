"""The audit log says which keys of driven sessions ended with their agent."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from coordinator.actions.agents import agents
from coordinator.identity.actors import Actor
from coordinator.models import AuditLog, SessionKey

pytestmark = pytest.mark.django_db
BY = Actor("user", "ada")


def test_keys_of_sessions_that_go_with_an_agent_are_audited() -> None:
    now = timezone.now()
    agents.create_agent("agent.x", name="x", default_engine_id="external", actor=BY)
    SessionKey.objects.create(
        key_hash="h",
        session_id="ses_1",
        agent_id="agent.x",
        runner_id="r",
        created_at=now,
        expires_at=now + timedelta(days=1),
    )
    agents.delete_agent_with_data("agent.x", actor=BY, now=now)
    assert AuditLog.objects.get(event_type="SESSION_KEY_ENDED").target_id == "ses_1"
