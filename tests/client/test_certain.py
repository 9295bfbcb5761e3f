"""Which tools are held for certain: no rule that may deny or hold a call is missed, whatever the call is about."""

from __future__ import annotations

import pytest

from coordinator.policy.certain import held_tools
from coordinator.policy.tool_rules import PartialCall, Rule

ANYBODY = PartialCall(agent_known=True)
SHOP = PartialCall(agent_id="shop", agent_known=True)


@pytest.mark.parametrize(
    ("rules", "lines"),
    [
        ([], []),
        ([Rule(1, "Bash", "ask", deny_at_deadline=True)], [("hold", "Bash")]),
        ([Rule(1, "Bash", "ask", "push", deny_at_deadline=True)], [("hold", "Bash")]),
        ([Rule(1, "Bash", "ask", "push")], []),
        ([Rule(1, "Bash", "ask")], []),
        ([Rule(1, "Web*", "deny")], [("hold", "Web*")]),
        ([Rule(1, "Bash", "deny", "rm -rf")], []),
        ([Rule(1, "Bash", "deny", "rm -rf", deny_at_deadline=True)], [("hold", "Bash")]),
        (
            [Rule(1, "Read|Glob", "allow"), Rule(2, "*", "ask", deny_at_deadline=True)],
            [("free", "Read|Glob"), ("hold", "*")],
        ),
        ([Rule(1, "Read", "allow", ".*txt"), Rule(2, "*", "deny")], [("hold", "*")]),
        ([Rule(1, "*", "ask", agents=("till",), deny_at_deadline=True)], []),
        ([Rule(1, "*", "ask", agents=("shop",), deny_at_deadline=True)], [("hold", "*")]),
        ([Rule(1, "*", "allow", agents=("till",)), Rule(2, "*", "deny")], [("hold", "*")]),
    ],
)
def test_a_tool_is_held_where_a_rule_for_certain_may_decide(
    rules: list[Rule], lines: list[tuple[str, str]]
) -> None:
    assert held_tools(rules, SHOP, grants_deny=False) == lines


def test_what_frees_a_servers_tools_frees_no_other_servers() -> None:
    rules = [Rule(1, "mcp__a__*", "allow"), Rule(2, "*", "deny")]
    found = [held_tools(rules, ANYBODY, grants_deny=False, servers=one) for one in (["a"], ["a", "a__b"])]
    assert found == [[("free", "mcp__a__*"), ("hold", "*")], [("hold", "*")]]


def test_where_grants_may_deny_mcp_tools_are_held_whatever_rules_say() -> None:
    found = held_tools([Rule(1, "*", "allow")], ANYBODY, grants_deny=True)
    assert found == [("hold", "mcp__*")]
