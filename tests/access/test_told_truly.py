"""What a page says of the past, and of what follows a temporary grant, is what was and what will be."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from coordinator.actions.policy import grants
from coordinator.identity.actors import Actor
from coordinator.models import AcceptedOnlyServer
from coordinator.policy.grants.access import resolve_tool_access
from coordinator.policy.grants.edits import GrantEdit
from dashboard.mcp.access_sheet import load_edits_with_covered_grants
from tests.access.cases import add_agents, add_server, add_tool, grant

pytestmark = pytest.mark.django_db
NOW = timezone.now()
DAY = timedelta(days=1)


def test_a_change_of_a_tool_denied_nothing_before_it() -> None:
    AcceptedOnlyServer.objects.create(server=add_server("s", "opt-out"))
    add_tool("s", "t", definition_hash="2", accepted_hash="1", changed_at=NOW - DAY)
    assert resolve_tool_access("agent.a", "s", "t", NOW).is_denied
    assert resolve_tool_access("agent.a", "s", "t", NOW, at=NOW - DAY / 2).is_denied
    assert resolve_tool_access("agent.a", "s", "t", NOW, at=NOW - 3 * DAY).is_allowed


@pytest.mark.parametrize("order", [["deny", "allow"], ["allow", "deny"]])
def test_a_preview_names_the_grant_that_decides_afterwards(order: list[str]) -> None:
    add_agents("agent.a")
    add_server("s", "opt-in", ["t"])
    for word in order:
        grant("agent.a", "s", "t", word)
    edit = GrantEdit("agent.a", "s", "t", "ask", NOW + timedelta(hours=1))
    (line,) = load_edits_with_covered_grants([edit], NOW)
    grants.apply_grant_edits([edit], actor=Actor("user", "alice"), now=NOW)
    later = resolve_tool_access("agent.a", "s", "t", NOW + timedelta(hours=2))
    assert line.beneath is not None
    assert line.beneath.effective_permission == later.decision == "deny"
