"""Calls that are held for certain: what a local program on an agent's machine must know while the server is away.

It sees no more of a call than the tool's name, so this says of tools what a rule says of calls, on the safe side: a
tool is held where a rule that holds for certain may be the one that decides.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.mcp.servers.names import PREFIX
from coordinator.models.rules import RuleVerdict
from coordinator.policy.rules import tool_kinds
from coordinator.policy.rules.tool_rules import DecisionRule, PartialCall, wildcard_covers_other_servers

HOLD, FREE = "hold", "free"


def build_offline_tool_lines(
    rules: Iterable[DecisionRule], caller: PartialCall, *, grants_deny: bool, servers: Iterable[str] = ()
) -> list[tuple[str, str]]:
    """Return lines of a word and tool names; of those that name a tool, the first says whether it is held.

    A tool that no line names is free. `caller` says who calls, and nothing of the call. `grants_deny`: grants may
    deny the tools of MCP servers. `servers` are those that are registered.

    A rule holds for certain where people set so, and where it denies a tool whatever the call is about.
    """
    lines = [(HOLD, f"{PREFIX}*")] if grants_deny else []
    for rule in rules:
        if not rule.can_match_partial_call(caller):
            continue
        if does_rule_block_while_offline(rule):
            lines.append((HOLD, join_expanded_rule_tool_names(rule)))
        elif (
            not rule.is_limited_to_some_calls
            and not tool_kinds.find_unknown_tool_kinds(rule.tool)
            and not wildcard_covers_other_servers(rule.tool, servers)
        ):
            lines.append((FREE, join_expanded_rule_tool_names(rule)))
    while lines and lines[-1][0] == FREE:
        lines.pop()
    return lines


def join_expanded_rule_tool_names(rule: DecisionRule) -> str:
    """Return the names in the rule with each kind's tools: programs on agents' machines know names alone."""
    if tool_kinds.find_unknown_tool_kinds(rule.tool):
        return tool_kinds.EVERY_TOOL
    return "|".join(tool_kinds.expand_tool_kinds(rule.tool))


def does_rule_block_while_offline(rule: DecisionRule) -> bool:
    if rule.verdict == RuleVerdict.DENY:
        return rule.deny_at_deadline or not rule.is_limited_to_some_calls
    return rule.verdict == RuleVerdict.ASK and rule.deny_at_deadline
