"""A rule that is off neither hides a tool from an agent nor shows one."""

from __future__ import annotations

import pytest
from django.utils import timezone

from coordinator.mcp.gateway.policy import GatewayCaller, can_agent_see_tool
from coordinator.policy.grants.access import resolve_tool_access
from coordinator.policy.rules.tool_rules import DecisionRule
from tests.access.cases import add_server

pytestmark = pytest.mark.django_db
OFF_DENIAL = DecisionRule(1, "mcp__s__t", "deny", is_off=True)
OFF_ASK = DecisionRule(1, "mcp__s__t", "ask", is_off=True)


@pytest.mark.parametrize(
    ("rules", "is_shown"),
    [([OFF_DENIAL], True), ([OFF_ASK, DecisionRule(2, "mcp__s__t", "deny")], False)],
)
def test_a_rule_that_is_off_says_nothing_of_what_is_listed(rules: list[DecisionRule], is_shown: bool) -> None:
    add_server("s", "opt-out", ["t"])
    verdict = resolve_tool_access("agent.a", "s", "t", timezone.now())
    assert can_agent_see_tool(rules, verdict, GatewayCaller("agent.a", "codex"), "s", "t") is is_shown
