"""The narrowest rule or grant that would have answered a request, and one that is a little wider. Only reads.

A rule is for the tool, the agent and the agent program of the call, and fits its text and no other. It is placed where
the call would meet it, and never before a rule that denies anything it could fit. A grant is for one tool of one
server, where a rule cannot answer: grants that ask are not overruled by rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from coordinator.errors import Conflict
from coordinator.mcp.servers.names import name_in_calls
from coordinator.models import McpTool, PermissionRequest
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.grants import managed
from coordinator.policy.grants.access import ALLOW as GRANTED
from coordinator.policy.grants.access_requests import parse_access_request_or_none
from coordinator.policy.grants.edits import GrantEdit
from coordinator.policy.grants.end_parsing import default_grant_end
from coordinator.policy.requests import approvals, question_requests
from coordinator.policy.requests.tool_calls import GATEWAY
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.call_history import NEW_HOSTS, CallHistory
from coordinator.policy.rules.call_text import CallText, text_for_allow_rules
from coordinator.policy.rules.tool_rules import ALLOW, DENY, LONGEST_PATTERN, DecisionRule
from coordinator.policy.suggestions.generalizing import generalize_call, reason_against_permanent_allow
from coordinator.policy.suggestions.history import RecordedCall
from coordinator.policy.suggestions.rule_trials import RecordedCallJudge
from coordinator.policy.suggestions.search import (
    IN_TERMS,
    call_description_or_none,
    escape_pattern_text,
    insert_rules_after_last_deny,
)
from coordinator.secrets.masking import find_masks_in_value
from coordinator.sessions.agent_programs import AGENT_TITLES

NO_TEXT = "^$"  # fits calls of which rules see no text
GLOB = frozenset("*?[]|,")
OF_TWO = "Two people must approve this request, so one person cannot allow it for good."
OF_QUESTION = "A question is answered each time it is asked. No rule or grant can answer it."
NO_CALL = "Rules and grants cannot answer such a request. Approve it for longer instead."
MASKED = "The call holds masked secrets. No rule can name them: approve it for this one call."
TOO_DANGEROUS = (
    "Signalbox never offers to allow such calls for good: {}. "
    "Approve this one call, or write a rule yourself."
)
TOO_LONG = "The call is too long for a rule. Approve it for a session or a folder instead."
ANOTHER_ANSWERS = (
    "No narrow rule or grant would answer this call: another rule, or the server's policy, decides it."
    " Edit the rules."
)


@dataclass(frozen=True, slots=True)
class PermanentAnswer:
    """What would have answered the call: `rule` within all `rules` as they would be, or a grant's `edits`, or both.

    `wider` says what it allows besides this call; nothing where it fits this call alone.
    """

    rule: DecisionRule | None = None
    rules: tuple[DecisionRule, ...] | None = None
    edits: tuple[GrantEdit, ...] = ()
    wider: str = ""


def convert_request_to_recorded_call(row: PermissionRequest, about: str, field: str) -> RecordedCall:
    """Return the call of a request as rules and grants judge it."""
    context = approvals.request_context(row)
    program = row.plugin_id if row.plugin_id in AGENT_TITLES else ""
    agent = (context.agent_id if context else None) or ""
    tool = (context.tool_name if context else None) or ""
    return RecordedCall(0, "", tool, about, field, agent, 0, program)


def suggest_rules_or_grants_for_request(
    row: PermissionRequest, call: RecordedCall, now: datetime
) -> list[PermanentAnswer]:
    """Return the narrowest answer, then a wider one where there is one. Raises Conflict, saying why there is none."""
    require_rule_or_grant_can_answer(row, call)
    if deciders.load_decider_book(now).required_approval_count(row) > 1:
        raise Conflict(OF_TWO)
    access_request = parse_access_request_or_none(row)
    if access_request is not None:  # the approval itself makes the grant, and ends it
        return [
            PermanentAnswer(
                edits=(
                    GrantEdit(
                        access_request.agent_id, access_request.server_id, access_request.tool_name, GRANTED
                    ),
                )
            )
        ]
    description = call_description_or_none(call)
    if description is not None and (reason := reason_against_permanent_allow(description)):
        raise Conflict(TOO_DANGEROUS.format(reason))
    saved = tool_rules.load_saved_tool_rules()
    narrow = build_narrowest_permanent_answer(call, saved, build_grant_edit_for_call(row, call, now), now)
    wide = (
        build_wider_permanent_answer(call, saved, now)
        if narrow.rule is not None and not narrow.edits
        else None
    )
    return [narrow, wide] if wide is not None else [narrow]


def can_rule_or_grant_answer_request(row: PermissionRequest) -> bool:
    """Say whether a rule or grant may answer such requests, as far as the request alone shows."""
    try:
        require_rule_or_grant_can_answer(row, convert_request_to_recorded_call(row, "", ""))
    except Conflict:
        return False
    return True


def require_rule_or_grant_can_answer(row: PermissionRequest, call: RecordedCall) -> None:
    context = approvals.request_context(row)
    if approvals.required_approver_count(row) > 1:
        raise Conflict(OF_TWO)
    if parse_access_request_or_none(row) is not None:
        return
    if context is None or not call.tool or GLOB & set(call.tool):
        raise Conflict(NO_CALL)
    if row.plugin_id not in AGENT_TITLES and row.plugin_id != GATEWAY:
        raise Conflict(NO_CALL)
    if question_requests.is_question_request(row):
        raise Conflict(OF_QUESTION)
    if find_masks_in_value([row.target_resource, context.tool_input]):
        raise Conflict(MASKED)


def build_narrowest_permanent_answer(
    call: RecordedCall, saved: Sequence[DecisionRule], grant: GrantEdit | None, now: datetime
) -> PermanentAnswer:
    pattern = escape_pattern_text(text_for_allow_rules(call.about)) or NO_TEXT
    rule = build_allow_rule(call, pattern)
    lists = (
        [insert_rules_after_last_deny(saved, [rule]), insert_before_match_or_none(rule, call, saved)]
        if is_pattern_short_enough(pattern)
        else []
    )
    permanent_answers = [
        PermanentAnswer(require_equal_rule_in_list(rules, rule), tuple(rules))
        for rules in lists
        if rules is not None
    ]
    if grant is not None:
        permanent_answers.append(PermanentAnswer(edits=(grant,)))
        permanent_answers += [
            replace(one, edits=(grant,)) for one in permanent_answers if one.rules is not None
        ]
    answer = next(
        (one for one in permanent_answers if suggested_answer_allows_call(one, call, saved, now)), None
    )
    if answer is None:
        raise Conflict(ANOTHER_ANSWERS if lists else TOO_LONG)
    return answer


def build_allow_rule(call: RecordedCall, pattern: str) -> DecisionRule:
    agents = (call.agent,) if call.agent else None
    return DecisionRule(0, call.tool, ALLOW, pattern, agents, program=call.program)


def is_pattern_short_enough(pattern: str) -> bool:
    return len(pattern) <= LONGEST_PATTERN


def require_equal_rule_in_list(rules: Sequence[DecisionRule], rule: DecisionRule) -> DecisionRule:
    """Return the equal rule in the list, with its number."""
    return next(one for one in rules if replace(one, number=0) == rule)


def insert_before_match_or_none(
    rule: DecisionRule, call: RecordedCall, saved: Sequence[DecisionRule]
) -> list[DecisionRule] | None:
    """Return the rules with this one before the first that fits the call; None where another's call could meet it.

    The rule fits one text of one agent and one program alone, so what decides such a call now is known: that first
    rule, which does not deny. No later denial is weakened, unless the first rule fits only in some folders or after
    some earlier calls: then a denial behind it may decide the same text elsewhere, and there is no such place.
    """
    if not (call.agent and call.program):
        return None
    index = next((i for i, one in enumerate(saved) if rule_fits_call(one, call)), None)
    if index is None or saved[index].verdict == DENY:
        return None
    if can_rule_miss_same_text(saved[index], call) and any(
        can_rule_deny_same_text(later, call) for later in saved[index + 1 :]
    ):
        return None
    rules = [*saved[:index], rule, *saved[index:]]
    return [replace(one, number=number) for number, one in enumerate(rules, 1)]


def can_rule_miss_same_text(rule: DecisionRule, call: RecordedCall) -> bool:
    """Say whether a rule that fits a call may not fit another of the same text: its folder or its past counts."""
    if rule.touches.strip() or rule.repeats or NEW_HOSTS in rule.reaches:
        return True
    if not isinstance(call.about, CallText) or not call.about.field:
        return False
    field, text = call.about.field, str(call.about)
    return not rule_fits_call(rule, replace(call, about=type(call.about)(text, field, {field: text})))


def can_rule_deny_same_text(rule: DecisionRule, call: RecordedCall) -> bool:
    """Say whether a rule may deny a call of the same text, agent and program in another folder, or at another time."""
    programs_alone = replace(rule, pattern="", touches="", reaches="", repeats="")
    return rule.verdict == DENY and rule_fits_call(programs_alone, call)


def rule_fits_call(rule: DecisionRule, call: RecordedCall) -> bool:
    return (
        tool_rules.tool_ruling_or_no_opinion(
            [rule], call.tool, call.about, call.agent or None, call.program
        ).by
        != ""
    )


def suggested_answer_allows_call(
    answer: PermanentAnswer, call: RecordedCall, saved: Sequence[DecisionRule], now: datetime
) -> bool:
    """Say whether the answer would allow the call, as if no call had been made before it."""
    judge = RecordedCallJudge(saved if answer.rules is None else answer.rules, now, answer.edits)
    judge.cache_grant_verdicts_for_calls([call])
    return judge.decide_recorded_call(call).decision == ALLOW


def find_rules_for_repetitions_of_call(
    answer: PermanentAnswer, call: RecordedCall, now: datetime
) -> list[DecisionRule]:
    """Return the rules that still ask about the call, or deny it, where it reaches a repetition, in their order."""
    about = call.about
    if not isinstance(about, CallText):
        return []
    rules = tool_rules.load_saved_tool_rules() if answer.rules is None else answer.rules
    servers, agent = managed.load_managed_servers(now).servers, call.agent or None
    needs = tool_rules.find_history_needs_of_rules(
        rules, call.tool, about, agent, call.program, servers=servers
    )
    rulings = [
        tool_rules.tool_ruling_or_no_opinion(
            rules,
            call.tool,
            about.copy_with_call_history(CallHistory(frozenset({repetition}))),
            agent,
            call.program,
            servers=servers,
        )
        for repetition in needs.repetitions
    ]
    deciding = {
        ruling.ground
        for ruling in rulings
        if isinstance(ruling.ground, DecisionRule) and ruling.ground.repeats
    }
    return sorted(deciding, key=lambda rule: rule.number)


def build_grant_edit_for_call(row: PermissionRequest, call: RecordedCall, now: datetime) -> GrantEdit | None:
    """Return the grant of the tool that is called; None where it is not certain which that is, or who calls."""
    server_tools = managed.load_managed_servers(now).find_server_tools_of_call(call.tool)
    if not call.agent or len(server_tools) != 1:
        return None
    [(server, called)] = server_tools
    mcp_tool_rows = McpTool.objects.filter(server_id=server).values_list("name", flat=True)
    names = [name for name in mcp_tool_rows if name_in_calls(name) == called]
    tool = row.metadata.get("tool") if isinstance(row.metadata, dict) else None
    name = tool if tool in names else names[0] if len(names) == 1 else None
    return GrantEdit(call.agent, server, name, GRANTED, default_grant_end(now)) if name is not None else None


def build_wider_permanent_answer(
    call: RecordedCall, saved: Sequence[DecisionRule], now: datetime
) -> PermanentAnswer | None:
    """Return the rule for calls that do the same, behind every rule that denies; None where there is none."""
    description = call_description_or_none(call)
    generalized = generalize_call(call.tool, description, is_chosen=True) if description is not None else None
    if generalized is None:
        return None
    terms = generalized.terms
    rule = replace(
        build_allow_rule(call, ""),
        runs="\n".join(terms.format_command_term_lines()),
        touches="\n".join(terms.format_path_term_lines()),
        reaches="\n".join(sorted(terms.reaches)),
    )
    rules = insert_rules_after_last_deny(saved, [rule])
    answer = PermanentAnswer(require_equal_rule_in_list(rules, rule), tuple(rules), wider=IN_TERMS)
    return answer if suggested_answer_allows_call(answer, call, saved, now) else None
