"""Policy decisions about calls through the gateway, and about listing a tool to an agent.

The server and the tool are known exactly here, unlike in a hook. But rules know a call by its name, so a tool whose
name in calls is another server's is neither shown nor called: what is allowed there must not let this one through.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings

from coordinator.mcp.gateway.binding import arguments_as_rule_text, qualified_method_name, qualified_tool_name
from coordinator.mcp.gateway.servers import ListedTool, UpstreamServer
from coordinator.mcp.servers.names import GATEWAY, PREFIX
from coordinator.policy.grants import access
from coordinator.policy.grants.access import Verdict
from coordinator.policy.limits import budgets
from coordinator.policy.requests.questions import ELICITATION
from coordinator.policy.rules import history_queries, tool_rules
from coordinator.policy.rules.call_history import CallHistory, HistoryNeeds, TimedCall
from coordinator.policy.rules.call_text import CallText
from coordinator.policy.rules.tool_rules import ASK, DENY, DecisionRule, Ruling

NOT_ACCEPTED = "The tool's definition changed, and nobody has accepted the change yet."


@dataclass(frozen=True, slots=True)
class GatewayCaller:
    """Whose call it is: the agent, and the agent program that its client says it is ("" where it is none we know).

    `session_id` is the session of the call; None where neither a budget nor a rule needs it. `history` is what was
    recorded there before the call, where a rule needs it.

    Nothing proves the program. So what it says lets nothing happen that any program's rules deny or ask.
    """

    agent_id: str
    program: str = ""
    session_id: str | None = None
    history: CallHistory | None = None


def judge_by_rules_and_grants(
    rules: Sequence[DecisionRule],
    verdict: Verdict,
    server: UpstreamServer,
    tool: str,
    *,
    caller: GatewayCaller,
    arguments: Any,
) -> Ruling:
    """Return the strictest decision of rules and grants about a call; a tool that no server lists is denied."""
    known_tool = server.tools.get(tool)
    if known_tool is None or known_tool.is_gone:
        reason = f"{server.name} has no tool {tool!r}."
        if server.listing_problem:
            reason = f"The tools of {server.name} are not known yet: it {server.listing_problem}."
        return Ruling(DENY, reason, "gateway")
    name = qualified_tool_name(server.name, tool)
    if (other := server.find_server_shadowing_own_tool(tool)) is not None:
        return Ruling(
            DENY, f"{name} means a tool of the server {other}. An admin must rename one.", "gateway"
        )
    ruling = tool_rules.stricter_ruling(
        judge_by_rules(rules, server, name, arguments_as_rule_text(arguments), caller),
        tool_rules.ruling_from_grant_verdict(verdict),
    )
    if is_tool_blocked_by_definition_change(server, verdict, known_tool):
        return tool_rules.stricter_ruling(ruling, Ruling(DENY, NOT_ACCEPTED, "gateway"))
    return ruling


def judge_non_tool_gateway_request(
    rules: Sequence[DecisionRule],
    verdict: Verdict,
    server: UpstreamServer,
    method: str,
    *,
    caller: GatewayCaller,
    arguments: Any,
) -> Ruling:
    """Return the strictest decision of rules and grants about a request that reads or sets something at a server.

    `verdict` is about the server as a whole: what a tool is granted says nothing of resources and prompts.
    """
    name = qualified_method_name(server.name, method)
    if server.is_off:
        return Ruling(DENY, f"The MCP server {server.name} {server.failure}.", "gateway")
    by_rules = judge_by_rules(rules, server, name, arguments_as_rule_text(arguments), caller)
    return tool_rules.stricter_ruling(by_rules, tool_rules.ruling_from_grant_verdict(verdict))


def evaluate_server_request_by_policy(
    rules: Sequence[DecisionRule],
    verdict: Verdict,
    server: UpstreamServer,
    method: str,
    *,
    caller: GatewayCaller,
    arguments: Any,
) -> Ruling:
    """Return what rules and grants say of a request of the server to its client: nothing where no policy speaks of it.

    `verdict` is about the server as a whole. What holds without a grant says nothing here: the call in whose middle
    the server asks was judged by itself. A question to a person (`elicitation/create`) is judged by rules alone.
    """
    if server.is_off:
        return Ruling(DENY, f"The MCP server {server.name} {server.failure}.", "gateway")
    name = qualified_method_name(server.name, method)
    by_rules = judge_by_rules(rules, server, name, arguments_as_rule_text(arguments), caller)
    if verdict.is_by_default or method == ELICITATION:
        return by_rules
    return tool_rules.stricter_ruling(by_rules, tool_rules.ruling_from_grant_verdict(verdict))


def judge_server_request_from_database(
    server: UpstreamServer, method: str, caller: GatewayCaller, arguments: Any, at: datetime
) -> Ruling:
    """Decide about a request of the server to its client by what is in the database at this instant."""
    verdict = access.resolve_tool_access(caller.agent_id, server.name, "", at)
    rules = tool_rules.load_saved_tool_rules()
    ruling = evaluate_server_request_by_policy(
        rules, verdict, server, method, caller=caller, arguments=arguments
    )
    return tighten_ruling_by_budgets(ruling, caller, at)


def gateway_call_history_needs(
    rules: Sequence[DecisionRule], server: UpstreamServer, tool: str, caller: GatewayCaller, arguments: Any
) -> HistoryNeeds:
    """Return what the rules must know of the time before a call of a tool."""
    needs, text = HistoryNeeds(), arguments_as_rule_text(arguments)
    for program in list_possible_client_programs(rules, caller):
        needs = needs.merge_needs(
            tool_rules.find_history_needs_of_rules(
                rules,
                qualified_tool_name(server.name, tool),
                text,
                caller.agent_id,
                program,
                servers=[server.name],
            )
        )
    return needs


def build_timed_gateway_call(
    server: str, tool: str, arguments: Any, *, session_id: str, call_id: str | None, now: datetime
) -> TimedCall:
    """Return a call as the events of its session name it, through the gateway or by its agent's hook."""
    name = qualified_tool_name(server, tool)
    return TimedCall(
        session_id,
        name,
        arguments or {},
        now,
        call_id,
        other_tool=f"{PREFIX}{GATEWAY}__{name.removeprefix(PREFIX)}",
    )


def judge_by_rules(
    rules: Sequence[DecisionRule], server: UpstreamServer, name: str, text: str, caller: GatewayCaller
) -> Ruling:
    if caller.history is not None and isinstance(text, CallText):
        text = text.copy_with_call_history(caller.history)
    decide = functools.partial(
        tool_rules.tool_ruling_or_no_opinion, rules, name, text, caller.agent_id, servers=[server.name]
    )
    ruling = decide(caller.program)
    for program in list_possible_client_programs(rules, caller):
        other = decide(program)
        if other.decision in {DENY, ASK}:
            ruling = tool_rules.stricter_ruling(ruling, other)
    return ruling


def list_possible_client_programs(rules: Sequence[DecisionRule], caller: GatewayCaller) -> list[str]:
    """Return the programs that the client may be: what it says first, then none we know, and each of the rules'."""
    return [caller.program, *sorted({"", *(rule.program for rule in rules)} - {caller.program})]


def is_tool_blocked_by_definition_change(server: UpstreamServer, verdict: Verdict, tool: ListedTool) -> bool:
    """Say whether a changed definition waits for a person. (The grants in memory may know of it a moment later.)"""
    if not tool.is_changed:
        return False
    return server.accepted_only or (
        settings.DENY_CHANGED_TOOLS and not is_granted_since_definition_change(verdict, tool)
    )


def is_granted_since_definition_change(verdict: Verdict, tool: ListedTool) -> bool:
    """Say whether a person granted the tool with its present definition."""
    granted_at = verdict.grant.granted_at if verdict.grant else None
    return isinstance(granted_at, datetime) and tool.changed_at is not None and granted_at >= tool.changed_at


def can_agent_see_tool(
    rules: Sequence[DecisionRule], verdict: Verdict, caller: GatewayCaller, server: str, tool: str
) -> bool:
    """Say whether the agent may call the tool, or ask for it, with any arguments at all."""
    if tool_rules.ruling_from_grant_verdict(verdict).decision == DENY:
        return False
    naming_rules = [
        rule
        for rule in rules
        if not rule.is_off
        and rule.rule_applies_to_tool(qualified_tool_name(server, tool), qualified_tool_name(server, ""))
    ]
    return all(
        can_program_see_tool(naming_rules, caller.agent_id, program)
        for program in list_possible_client_programs(rules, caller)
    )


def can_program_see_tool(rules: Sequence[DecisionRule], agent_id: str, program: str) -> bool:
    for rule in rules:
        if rule.agents is not None and agent_id not in rule.agents:
            continue
        if rule.program and rule.program != program:
            continue
        if rule.verdict != DENY:
            return True
        if not rule.is_limited_to_some_calls:
            return False
    return True


def load_ruling_and_access_verdict(
    server: UpstreamServer,
    name: str,
    caller: GatewayCaller,
    arguments: Any,
    at: datetime,
    *,
    is_read: bool = False,
    moment: TimedCall | None = None,
) -> tuple[Ruling, Verdict]:
    """Decide by what is in the database at this instant; `name` is the tool's, or a method's that `is_read`.

    `moment` is the call as its session's events name it.
    """
    verdict = access.resolve_tool_access(caller.agent_id, server.name, "" if is_read else name, at)
    rules = tool_rules.load_saved_tool_rules()
    if moment is not None and (needs := gateway_call_history_needs(rules, server, name, caller, arguments)):
        caller = replace(caller, history=history_queries.evaluate_history_conditions(needs, moment))
    judge = judge_non_tool_gateway_request if is_read else judge_by_rules_and_grants
    ruling = judge(rules, verdict, server, name, caller=caller, arguments=arguments)
    return tighten_ruling_by_budgets(ruling, caller, at), verdict


def tighten_ruling_by_budgets(ruling: Ruling, caller: GatewayCaller, at: datetime) -> Ruling:
    """Return the stricter of a ruling and what the budgets say of the caller's session; itself without a session."""
    if caller.session_id is None:
        return ruling
    by_budgets = budgets.decide_by_budgets(
        budgets.load_active_budgets(), [caller.agent_id], caller.session_id, at
    )
    return tool_rules.stricter_ruling(ruling, by_budgets)
