"""Which tools are held for certain: no rule that may deny or hold a call is missed, whatever the call is about."""

from __future__ import annotations

import pytest

from coordinator.policy.rules.offline_blocking import build_offline_tool_lines
from coordinator.policy.rules.tool_rules import DecisionRule, PartialCall

ANYBODY = PartialCall(agent_known=True)
SHOP = PartialCall(agent_id="shop", agent_known=True)


@pytest.mark.parametrize(
    ("rules", "lines"),
    [
        ([], []),
        ([DecisionRule(1, "Bash", "ask", deny_at_deadline=True)], [("hold", "Bash")]),
        ([DecisionRule(1, "Bash", "ask", "push", deny_at_deadline=True)], [("hold", "Bash")]),
        ([DecisionRule(1, "Bash", "ask", "push")], []),
        ([DecisionRule(1, "Bash", "ask")], []),
        ([DecisionRule(1, "Web*", "deny")], [("hold", "Web*")]),
        ([DecisionRule(1, "Bash", "deny", "rm -rf")], []),
        ([DecisionRule(1, "Bash", "deny", "rm -rf", deny_at_deadline=True)], [("hold", "Bash")]),
        (
            [DecisionRule(1, "Read|Glob", "allow"), DecisionRule(2, "*", "ask", deny_at_deadline=True)],
            [("free", "Read|Glob"), ("hold", "*")],
        ),
        ([DecisionRule(1, "Read", "allow", ".*txt"), DecisionRule(2, "*", "deny")], [("hold", "*")]),
        ([DecisionRule(1, "*", "ask", agents=("till",), deny_at_deadline=True)], []),
        ([DecisionRule(1, "*", "ask", agents=("shop",), deny_at_deadline=True)], [("hold", "*")]),
        ([DecisionRule(1, "*", "allow", agents=("till",)), DecisionRule(2, "*", "deny")], [("hold", "*")]),
    ],
)
def test_a_tool_is_held_where_a_rule_for_certain_may_decide(
    rules: list[DecisionRule], lines: list[tuple[str, str]]
) -> None:
    assert build_offline_tool_lines(rules, SHOP, grants_deny=False) == lines


def test_what_frees_a_servers_tools_frees_no_other_servers() -> None:
    rules = [DecisionRule(1, "mcp__a__*", "allow"), DecisionRule(2, "*", "deny")]
    found = [
        build_offline_tool_lines(rules, ANYBODY, grants_deny=False, servers=one)
        for one in (["a"], ["a", "a__b"])
    ]
    assert found == [[("free", "mcp__a__*"), ("hold", "*")], [("hold", "*")]]


def test_where_grants_may_deny_mcp_tools_are_held_whatever_rules_say() -> None:
    found = build_offline_tool_lines([DecisionRule(1, "*", "allow")], ANYBODY, grants_deny=True)
    assert found == [("hold", "mcp__*")]
