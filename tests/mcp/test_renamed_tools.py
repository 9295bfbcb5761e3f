"""A tool that agents rename before they call it (`x.read`, called `x_read`) is one tool in figures and suggestions."""

from __future__ import annotations

import pytest
from django.utils import timezone

from coordinator.actions.policy import grants
from coordinator.identity.actors import Actor
from coordinator.mcp.servers.tools import collect_tool_names_by_server
from coordinator.models import Agent, Grant
from coordinator.policy.grants import access
from coordinator.policy.grants.access_preview import load_preview_of_grant_edits
from coordinator.policy.grants.edits import GrantEdit
from dashboard.mcp.filters import GrantFilter
from tests.access.cases import add_agents, add_server, call, grant
from tests.claude_code.recorded import NOW, SHOP, agent, answered, called
from tests.claude_code.test_suggestions import searched

pytestmark = pytest.mark.django_db
ALICE = Actor("user", "alice")


def test_a_preview_counts_the_calls_that_would_have_been_denied() -> None:
    add_agents("agent.a")
    Agent.objects.filter(pk="agent.a").update(name="a")
    add_server("s", "opt-out", ["x.read"])
    call("mcp__s__x_read", agent="agent.a")
    edit = GrantEdit("agent.a", "s", "x.read", "deny")
    assert load_preview_of_grant_edits([edit], actor=ALICE, now=timezone.now()).lost_call_count == 1


def test_a_grant_whose_tool_was_called_is_not_unused() -> None:
    add_agents("agent.a")
    add_server("s", "opt-in", ["x.read", "plain", "idle"])
    for tool in ("x.read", "plain", "idle"):
        grant("agent.a", "s", tool)
    call("mcp__s__x_read", agent="agent.a")
    call("mcp__s__plain", agent="agent.a")
    rows = GrantFilter({"unused": "30", "standing": "all"}, queryset=Grant.objects.all()).qs
    assert [row.tool_name for row in rows] == ["idle"]


def test_sheets_offer_no_slot_that_the_gateway_never_asks() -> None:
    add_server("s", "opt-in", ["x.read"])
    call("mcp__s__x_read", agent="agent.a")
    assert collect_tool_names_by_server(["s"], seen_by=timezone.now()) == {"s": ["x.read"]}


def test_tools_with_one_name_in_calls_stay_apart() -> None:
    add_server("s", "opt-in", ["x.read", "x/read"])
    call("mcp__s__x_read", agent="agent.a")
    assert collect_tool_names_by_server(["s"], seen_by=timezone.now()) == {
        "s": ["x.read", "x/read", "x_read"]
    }


def test_a_suggested_grant_names_the_tool_as_its_server_does() -> None:
    agent()
    add_server("s", "opt-in", ["x.read"])
    called("mcp__s__x_read", {"a": 1}, {"a": 2}, {"a": 3})
    answered("approved", "mcp__s__x_read", {"a": 1})
    [one] = searched().tried
    assert (one.slot, one.approved, one.calls) == ([SHOP, "s", "x.read"], 1, 3)
    grants.apply_grant_edits([one.require_suggested_grant_edit(NOW)], actor=ALICE, now=NOW)
    assert access.resolve_tool_access(SHOP, "s", "x.read", NOW).is_allowed
