"""The narrowest rule or grant that would have answered a request, and one that is a little wider. Only reads.

A rule is for the tool, the agent and the agent program of the call, and fits its text and no other. It stands where
the call would meet it, and never before a rule that denies anything it could fit. A grant is for one tool of one
server, where a rule cannot answer: grants that ask are not overruled by rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from coordinator.errors import Conflict
from coordinator.mcp.names import name_in_calls
from coordinator.models import McpTool, PermissionRequest
from coordinator.policy import approvals, deciders, managed, tool_rules
from coordinator.policy.access import ALLOW as GRANTED
from coordinator.policy.access_requests import wanted_access_of
from coordinator.policy.call_text import shown_text
from coordinator.policy.edits import Edit
from coordinator.policy.grant_lengths import default_end
from coordinator.policy.history import RecordedCall
from coordinator.policy.shapes import LONGEST_PATTERN, escaped, loosely, pattern_of, shape_of
from coordinator.policy.suggestions import placed
from coordinator.policy.tool_calls import GATEWAY
from coordinator.policy.tool_rules import ALLOW, DENY, Rule
from coordinator.policy.trials import Judge
from coordinator.secrets.masking import masks_in
from coordinator.sessions.agent_programs import AGENT_TITLES

NO_TEXT = "^$"  # fits calls of which rules see no text
GLOB = frozenset("*?[]|,")
OF_TWO = "Two people must approve this request, so one person cannot allow it for good."
NO_CALL = "Rules and grants cannot answer such a request. Approve it for longer instead."
MASKED = "The call holds masked secrets. No rule can name them: approve it for this one call."
TOO_LONG = "The call is too long for a rule. Approve it for a session or a folder instead."
ANOTHER_ANSWERS = (
    "No narrow rule or grant would answer this call: another rule, or the server's policy, decides it."
    " Edit the rules."
)


@dataclass(frozen=True, slots=True)
class StandingAnswer:
    """What would have answered the call: `rule` within all `rules` as they would be, or a grant's `edits`, or both.

    `wider` says what it allows beside this call; nothing where it fits this call alone.
    """

    rule: Rule | None = None
    rules: tuple[Rule, ...] | None = None
    edits: tuple[Edit, ...] = ()
    wider: str = ""


def call_of(row: PermissionRequest, about: str, field: str) -> RecordedCall:
    """Return the call of a request as rules and grants judge it."""
    context = approvals.context_of(row)
    program = row.plugin_id if row.plugin_id in AGENT_TITLES else ""
    agent = (context.agent_id if context else None) or ""
    tool = (context.tool_name if context else None) or ""
    return RecordedCall(0, "", tool, about, field, agent, 0, program)


def answers(row: PermissionRequest, call: RecordedCall, now: datetime) -> list[StandingAnswer]:
    """Return the narrowest answer, then a wider one where there is one. Raises Conflict, saying why there is none."""
    _check(row, call)
    if deciders.load(now).needed(row) > 1:
        raise Conflict(OF_TWO)
    wanted = wanted_access_of(row)
    if wanted is not None:  # the approval itself makes the grant, and ends it
        return [StandingAnswer(edits=(Edit(wanted.agent_id, wanted.server_id, wanted.tool_name, GRANTED),))]
    saved = tool_rules.saved()
    narrow = _narrow(call, saved, _grant(row, call, now), now)
    wide = _wide(call, saved, now) if narrow.rule is not None and not narrow.edits else None
    return [narrow, wide] if wide is not None else [narrow]


def may_have_answer(row: PermissionRequest) -> bool:
    """Say whether a rule or grant may answer such requests, as far as the request alone tells."""
    try:
        _check(row, call_of(row, "", ""))
    except Conflict:
        return False
    return True


def _check(row: PermissionRequest, call: RecordedCall) -> None:
    context = approvals.context_of(row)
    if approvals.needed(row) > 1:
        raise Conflict(OF_TWO)
    if wanted_access_of(row) is not None:
        return
    if context is None or not call.tool or GLOB & set(call.tool):
        raise Conflict(NO_CALL)
    if row.plugin_id not in AGENT_TITLES and row.plugin_id != GATEWAY:
        raise Conflict(NO_CALL)
    if masks_in([row.target_resource, context.tool_input]):
        raise Conflict(MASKED)


def _narrow(call: RecordedCall, saved: Sequence[Rule], grant: Edit | None, now: datetime) -> StandingAnswer:
    pattern = escaped(shown_text(call.about)) or NO_TEXT
    rule = _rule(call, pattern)
    lists = [placed(saved, [rule]), _before_its_asker(rule, call, saved)] if _is_short(pattern) else []
    found = [StandingAnswer(_in(rules, rule), tuple(rules)) for rules in lists if rules is not None]
    if grant is not None:
        found.append(StandingAnswer(edits=(grant,)))
        found += [replace(one, edits=(grant,)) for one in found if one.rules is not None]
    answer = next((one for one in found if _answers(one, call, saved, now)), None)
    if answer is None:
        raise Conflict(ANOTHER_ANSWERS if lists else TOO_LONG)
    return answer


def _rule(call: RecordedCall, pattern: str) -> Rule:
    agents = (call.agent,) if call.agent else None
    return Rule(0, call.tool, ALLOW, pattern, agents, program=call.program)


def _is_short(pattern: str) -> bool:
    return len(pattern) <= LONGEST_PATTERN


def _in(rules: Sequence[Rule], rule: Rule) -> Rule:
    """Return the rule as it stands in the list, with its number."""
    return next(one for one in rules if replace(one, number=0) == rule)


def _before_its_asker(rule: Rule, call: RecordedCall, saved: Sequence[Rule]) -> list[Rule] | None:
    """Return the rules with this one before the first that fits the call; None where another's call could meet it.

    The rule fits one text of one agent and one program alone, so what decides such a call now is known: that first
    rule, which does not deny. No later one is weakened.
    """
    if not (call.agent and call.program):
        return None
    place = next((i for i, one in enumerate(saved) if _fits(one, call)), None)
    if place is None or saved[place].verdict == DENY:
        return None
    rules = [*saved[:place], rule, *saved[place:]]
    return [replace(one, number=number) for number, one in enumerate(rules, 1)]


def _fits(rule: Rule, call: RecordedCall) -> bool:
    return tool_rules.by_rules([rule], call.tool, call.about, call.agent or None, call.program).by != ""


def _answers(answer: StandingAnswer, call: RecordedCall, saved: Sequence[Rule], now: datetime) -> bool:
    judge = Judge(saved if answer.rules is None else answer.rules, now, answer.edits)
    judge.learn([call])
    return judge.ruling(call).decision == ALLOW


def _grant(row: PermissionRequest, call: RecordedCall, now: datetime) -> Edit | None:
    """Return the grant of the tool that is called; None where it is not certain which that is, or who calls."""
    places = managed.load(now).places(call.tool)
    if not call.agent or len(places) != 1:
        return None
    [(server, called)] = places
    known = McpTool.objects.filter(server_id=server).values_list("name", flat=True)
    names = [name for name in known if name_in_calls(name) == called]
    told = row.metadata.get("tool") if isinstance(row.metadata, dict) else None
    name = told if told in names else names[0] if len(names) == 1 else None
    return Edit(call.agent, server, name, GRANTED, default_end(now)) if name is not None else None


def _wide(call: RecordedCall, saved: Sequence[Rule], now: datetime) -> StandingAnswer | None:
    """Return the rule for calls of the same shape, behind every rule that denies; None where there is no such shape."""
    shape = shape_of(call.field, call.about)
    is_plain = shown_text(call.about) == call.about  # no other field that a rule has to name
    pattern = pattern_of(shape) if is_plain and shape.key and shape.key != "any" else None
    if pattern is None or not _is_short(pattern):
        return None
    rule = _rule(call, pattern)
    rules = placed(saved, [rule])
    answer = StandingAnswer(_in(rules, rule), tuple(rules), wider=loosely(shape))
    return answer if _answers(answer, call, saved, now) else None
