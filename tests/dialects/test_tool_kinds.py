"""One rule about what a tool does holds for every agent, whatever the agent calls it."""

from __future__ import annotations

import pytest

from coordinator.client import offline_block_list as held
from coordinator.dialects import acp
from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.errors import UnprocessableRequest
from coordinator.policy.rules import offline_blocking, tool_kinds, tool_rules
from coordinator.policy.rules.tool_kinds import KINDS
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, OBSERVE, DecisionRule, PartialCall

OF_AGENTS_THEMSELVES = {
    "Agent",
    "Task",
    "task",
    "invoke_agent",
    "agent",
}  # they start another agent, whose calls are told

ASKING_PEOPLE = {"ask_user", "AskUserQuestion"}  # nothing is run, read or written


def rule(tool: str, verdict: str = DENY, **more: object) -> DecisionRule:
    return DecisionRule(1, tool, verdict, **more)  # type: ignore[arg-type]


def says(one: DecisionRule, tool: str, text: str = "git push") -> str:
    return tool_rules.tool_ruling_or_no_opinion([one], tool, text, None).decision


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_every_tool_that_an_agent_is_known_to_have_is_of_one_kind(name: str) -> None:
    for tool in set(DIALECTS[name].tools) - OF_AGENTS_THEMSELVES - ASKING_PEOPLE:
        assert len([kind for kind in KINDS.values() if tool in kind.tools]) == 1, tool


def test_every_agent_runs_commands_by_a_tool_that_is_known() -> None:
    for dialect in DIALECTS.values():
        assert {*dialect.tools} & {*KINDS["command"].tools}, dialect.name
    for tool in set(acp.BY_KIND.values()) - {"Think", "SwitchMode"}:
        assert any(tool in kind.tools for kind in KINDS.values()), tool


@pytest.mark.parametrize("tool", ["Bash", "bash", "run_shell_command", "Shell", "developer__shell"])
@pytest.mark.parametrize("verdict", [ALLOW, ASK, DENY])
def test_a_rule_about_commands_holds_for_every_agent_s_tool(tool: str, verdict: str) -> None:
    assert says(rule("kind:command", verdict, pattern="git push"), tool) == verdict
    assert says(rule("mcp__x__* | kind:command", verdict, pattern="git push"), tool) == verdict
    assert says(rule("kind:write", verdict, pattern="git push"), tool) == OBSERVE
    assert says(rule("kind:command", verdict), "mcp__shell__run") == OBSERVE


def test_what_is_held_for_certain_is_said_by_name_to_programs_that_know_no_kinds() -> None:
    rules = [rule("kind:read", ALLOW), rule("kind:read|kind:command", ASK, deny_at_deadline=True)]
    lines = [
        list(line)
        for line in offline_blocking.build_offline_tool_lines(rules, PartialCall(), grants_deny=False)
    ]
    assert not any("kind:" in names for _, names in lines)
    for tool in KINDS["command"].tools:
        assert held.is_tool_blocked_offline(lines, tool)
    for tool in (*KINDS["read"].tools, "Write"):
        assert not held.is_tool_blocked_offline(lines, tool)


def test_a_kind_that_there_is_not_is_refused_and_never_frees_a_call() -> None:
    with pytest.raises(UnprocessableRequest, match="kind:command"):
        tool_rules.validate_tool_rule(rule("Bash|kind:comand"))
    for verdict in (ASK, DENY):
        assert says(rule("kind:later", verdict), "Anything") == verdict
    for verdict in (ALLOW, OBSERVE):
        assert says(rule("kind:later", verdict), "Anything") == OBSERVE
    lines = offline_blocking.build_offline_tool_lines([rule("kind:later")], PartialCall(), grants_deny=False)
    assert held.is_tool_blocked_offline([list(line) for line in lines], "Anything")
    freed = [rule("kind:later", ALLOW), rule("*", DENY)]
    lines = offline_blocking.build_offline_tool_lines(freed, PartialCall(), grants_deny=False)
    assert held.is_tool_blocked_offline([list(line) for line in lines], "kind:later")


def test_kinds_are_apart() -> None:
    tools = [tool for kind in KINDS.values() for tool in kind.tools]
    assert len(tools) == len(set(tools))
    assert tool_kinds.expand_tool_kinds("kind:fetch, Other") == [*KINDS["fetch"].tools, "Other"]
