"""A driven agent under a runner's key that is bound to several agents speaks as none besides them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.people import key_binding, keys, session_keys
from coordinator.identity.actors import Actor

pytestmark = pytest.mark.django_db
BY = Actor("user", "ada")


def test_a_program_that_the_runners_key_is_not_bound_to_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()
    keys.issue_api_key(name="r", scopes=["runner", "agent"], agent_id="agent.a", actor=BY, now=now)
    key_binding.bind_key_to_agents("r", ["agent.a", "agent.b"], actor=BY, now=now)
    monkeypatch.setattr(session_keys.reach, "can_agent_reach_any_tool", lambda *_: True)
    monkeypatch.setattr(session_keys, "find_offered_program_name", lambda *_: "claude-code")
    monkeypatch.setattr(session_keys, "is_gateway_switched_off", lambda *_: False)
    run: Any = SimpleNamespace(agent_name=None)
    runner: Any = SimpleNamespace(registered_by="r", pk="x")
    assert session_keys.find_gateway_key_agent_id(run, runner, "claude", now) != "claude-code"
