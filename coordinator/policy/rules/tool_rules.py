"""The rules' decision on a tool call, together with the MCP grants. Only reads: endpoints enforce it.

Patterns are RE2 expressions: they take time in proportion to the text, whatever a person writes, so no pattern and no
command can hold up the endpoint. Deny and ask look anywhere in the text; allow must match the whole of it, on one line,
so that `git status` does not let `git status; rm -rf ~` through. Only an allow pattern that speaks of lines (`\\n`,
`(?s)`) fits a text of several. And what allows the tools of server `a` (`mcp__a__*`) allows none of `a__b`. Deny and
ask see every field of a call; allow covers the text it was written for (policy.rules.call_text). In a command they look
at each simple command as the shell would run it as well, so that quotes and wrappers hide nothing.

A rule may also have terms (policy.rules.terms): what the call does, not how it is written. Then pattern and terms must
fit.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import re2

from coordinator.calls.tools import TOOLS
from coordinator.errors import UnprocessableRequest
from coordinator.mcp.servers.names import PREFIX, is_prefix_of_other_server_calls, server_call_prefix_or_empty
from coordinator.models import ToolRule
from coordinator.models.rules import RuleVerdict
from coordinator.policy.grants import access, managed
from coordinator.policy.grants.access import UNKNOWN_SERVER, AccessPolicy, GrantRow, Verdict
from coordinator.policy.grants.managed import ManagedServers
from coordinator.policy.rules import terms, tool_kinds
from coordinator.policy.rules.call_history import (
    NEW_HOSTS,
    CallHistory,
    HistoryNeeds,
    Repetition,
    parse_repetition_condition,
)
from coordinator.policy.rules.call_text import (
    CallText,
    JoinedTexts,
    UnsearchableText,
    changed_allow_text_or_none,
    does_allow_pattern_name_all_fields,
    has_guard_lifting_field,
    text_for_allow_rules,
    texts_for_deny_rules,
)
from coordinator.policy.rules.terms import Match, RuleTerms, TermsMatch
from coordinator.sessions.agent_programs import AGENT_TITLES

if TYPE_CHECKING:
    from coordinator.policy.limits.budgets import BudgetRow  # which builds on this

ALLOW, DENY, ASK, OBSERVE = (word.value for word in RuleVerdict)
STRICTEST_FIRST = (DENY, ASK, ALLOW, OBSERVE)
LONGEST_PATTERN = 2_000
MOST_RULES = 200
LONGEST_WAIT = 6 * 3600  # seconds
# What is stored as the pattern of a rule that lets calls go on by its terms alone. It fits no text, so that a server of
# an earlier version that runs at the same time, and knows no terms, does not take the rule for one about all calls.
TERMS_ALONE = r"[^\s\S]"  # begins the pattern of a rule that is off and lets calls go on, for the same reason
_WILD = re.compile(r"[*?\[]")
# A pattern's pieces: `\Q…\E`, an escape, a class ([^…] apart), the opening of a group with flags, any other character.
_PIECES = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\[\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\(\?[a-zA-Z]+|.",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """A rule as it decides: saved, or about to be. `number` is its place in the list, from 1.

    `program` is the agent program whose calls it is for (agent_programs.AGENT_TITLES), nothing for every one. `runs`,
    `touches` and `reaches` are its terms (policy.rules.terms), one a line. `unreadable` says whether a rule that
    restricts matches a call of which a part cannot be read: "match", "ignore", or nothing for the default, which is to
    match where the rule has terms. `ready_made` names the switch that made the rule (policy.rules.ready_made). One that
    `is_off` matches nothing. One that `repeats` is about a repetition (policy.rules.call_history); it matches where
    that is reached, besides what else it says. A denial of one that `stops_turn` also ends the agent's turn.
    """

    number: int
    tool: str
    verdict: str
    pattern: str = ""
    agents: tuple[str, ...] | None = None
    reason: str = ""
    wait_seconds: int | None = None
    deny_at_deadline: bool = False
    program: str = ""
    runs: str = ""
    touches: str = ""
    reaches: str = ""
    unreadable: str = ""
    ready_made: str = ""
    is_off: bool = False
    repeats: str = ""
    stops_turn: bool = False

    @property
    def has_terms(self) -> bool:
        return bool(self.runs.strip() or self.touches.strip() or self.reaches.strip())

    @property
    def is_limited_to_some_calls(self) -> bool:
        """Whether the rule is about some calls of its tools, not all."""
        return bool(self.pattern or self.repeats) or self.has_terms

    @property
    def matches_unreadable(self) -> bool:
        """Whether a rule that restricts matches a call of which a part cannot be read."""
        return self.unreadable == terms.MATCH_UNREADABLE or (
            self.has_terms and self.unreadable != terms.IGNORE_UNREADABLE
        )

    @property
    def parsed_terms(self) -> RuleTerms:
        """The terms, read. Raises UnprocessableRequest for those that another program wrote and nobody can read."""
        return terms.parse_rule_terms(self.runs, self.touches, self.reaches)

    @property
    def parsed_repetition_condition(self) -> Repetition | None:
        """The repetition that the rule is about, None for any other rule. Raises UnprocessableRequest."""
        return parse_repetition_condition(self.repeats)

    def matches_call(
        self, tool: str, text: str, agent_id: str | None, program: str = "", server: str = ""
    ) -> bool:
        """Say whether the rule matches this call of that agent program ("" where nobody knows which).

        `server` is what calls of its server's tools begin with (mcp.servers.names.server_call_prefix_or_empty), ""
        where that is not known.
        """
        if self.is_off or (self.agents is not None and agent_id not in self.agents):
            return False
        if self.program and program != self.program:
            return False
        return self.rule_applies_to_tool(tool, server) and self.matches_call_text(text, tool)

    def rule_applies_to_tool(self, tool: str, server: str = "") -> bool:
        """Say whether the rule names this tool. What lets a call go on names none of a server it does not speak of."""
        lets_go_on = self.verdict in {ALLOW, OBSERVE}
        if not lets_go_on and tool_kinds.find_unknown_tool_kinds(self.tool):
            return True  # a later version or another program wrote it: whatever it means, it may be this tool
        return matches_tool_name(self.tool, tool) and (
            not lets_go_on or rule_names_include_tool_server(self.tool, tool, server)
        )

    def can_match_partial_call(self, call: PartialCall, server: str = "") -> bool:
        """Say whether the rule may match a call of which not everything is known."""
        if self.is_off:
            return False
        if self.agents is not None and call.agent_known and call.agent_id not in self.agents:
            return False
        if self.program and call.program not in {None, self.program}:
            return False
        if call.tool is not None and not self.rule_applies_to_tool(call.tool, server):
            return False
        # How often a call was made before is not known here.
        uncounted = replace(self, repeats="") if self.repeats else self
        return call.text is None or uncounted.matches_call_text(call.text, call.tool or "")

    def matches_call_text(self, text: str, tool: str) -> bool:
        """Say whether the rule's pattern and its terms fit a call of a tool, and a repetition is reached with it."""
        repetition = self.parsed_repetition_condition
        if repetition is not None and repetition not in history_of_call_text(text).repetitions:
            return False
        if self.verdict == ALLOW:
            return self.allow_pattern_matches(text) and (not self.has_terms or self.covers_call(text, tool))
        if self.verdict == OBSERVE:
            # What lets a call go on looks at the text that names it alone.
            is_named = not self.pattern or pattern_found_in_text(str(text), self.pattern)
            return is_named and (not self.has_terms or self.covers_call(text, tool))
        return bool(self.assess_restricting_rule_match(text, tool).match)

    def covers_call(self, text: str, tool: str) -> bool:
        """Say whether every part of a call is covered by the rule's terms."""
        if not isinstance(text, CallText):
            return False
        real = text.real_path_description_or_none(tool)
        return terms.covers_call(self.parsed_terms, text.describe_call(tool)) and (
            real is None or terms.covers_call(self.parsed_terms, real)
        )

    def assess_restricting_rule_match(self, text: str, tool: str) -> TermsMatch:
        """Return whether the rule, which denies or asks, matches a call, and which parts of it.

        MAYBE: it counts as a match because a part cannot be read.
        """
        by_pattern = self.assess_restricting_pattern_match(text, tool)
        if not self.has_terms or not by_pattern.match:
            return by_pattern
        by_terms = UNDESCRIBED
        if isinstance(text, CallText):
            calls = [text.describe_call(tool), text.real_path_description_or_none(tool)]
            hosts = history_of_call_text(text).known_hosts
            by_terms = max(
                (
                    terms.assess_restricting_terms_match(self.parsed_terms, call, hosts)
                    for call in calls
                    if call is not None
                ),
                key=lambda found: found.match,
            )
        if by_terms.match == Match.MAYBE and not self.matches_unreadable:
            return TermsMatch(Match.NO)
        return min(by_terms, by_pattern, key=lambda found: found.match)

    def assess_restricting_pattern_match(self, text: str, tool: str) -> TermsMatch:
        """Return whether the pattern of a rule that denies or asks is found in a call."""
        if not self.pattern:
            return TermsMatch(Match.YES)
        if any(
            pattern_found_in_text(searched_text, self.pattern) for searched_text in texts_for_deny_rules(text)
        ):
            return TermsMatch(Match.YES)
        if not isinstance(text, CallText) or not tool_may_run_commands(tool):
            return TermsMatch(Match.NO)
        description = text.describe_call(tool)
        for command in description.command_texts:
            if pattern_found_in_text(command, self.pattern):
                return TermsMatch(Match.YES, (command,))
        is_match = description.unreadable and self.matches_unreadable
        return TermsMatch(Match.MAYBE, description.unreadable) if is_match else TermsMatch(Match.NO)

    def allow_pattern_matches(self, text: str) -> bool:
        if not self.pattern:
            return not has_guard_lifting_field(text)
        if not does_allow_pattern_name_all_fields(text, self.pattern):
            return False
        allow_text = text_for_allow_rules(text)
        if ("\n" in allow_text or "\r" in allow_text) and not pattern_allows_multiline_text(self.pattern):
            return False  # `ls [^;]*` is written for one line, and would match a command on the next
        expression = compile_rule_pattern(self.pattern, True)
        if not expression.fullmatch(allow_text):
            return False
        # `/srv/.*` is written for what is below /srv, where /srv/../etc is not.
        resolved = changed_allow_text_or_none(text)
        if resolved is not None and r"\.\." not in self.pattern and not expression.fullmatch(resolved):
            return False
        real_paths = text.symlink_target_paths if isinstance(text, CallText) else ()
        return all(expression.fullmatch(path) for path in real_paths)


@dataclass(frozen=True, slots=True)
class Ruling:
    """What is to happen with a call, and why. `by` names what decided: `rule 3`, `grant 12`, nothing.

    `ground` is that rule, grant or budget itself. A denial that `stops_turn` also ends the agent's turn.
    """

    decision: str
    reason: str = ""
    by: str = ""
    wait_seconds: int | None = None
    deny_at_deadline: bool = False
    ground: DecisionRule | GrantRow | BudgetRow | None = field(default=None, compare=False, repr=False)
    stops_turn: bool = False


NO_OPINION = Ruling(OBSERVE)
NO_HISTORY = CallHistory()
UNDESCRIBED = TermsMatch(Match.MAYBE, ("the call, of which only a text is known",))
TERM_FIELDS = frozenset(
    {"runs", "touches", "reaches", "unreadable", "ready_made", "is_off", "repeats", "stops_turn"}
)
MOST_PARTS_SHOWN = 2  # of a call in the reason of a ruling
LONGEST_PART_SHOWN = 120  # characters
UNREADABLE_REASON = "This part of the call cannot be read:"


@dataclass(frozen=True, slots=True)
class PartialCall:
    """A call as far as it could be read: `tool` and `text` are None where they could not.

    `agent_id` counts only where it is known who calls. `program` is the agent program, None where it is not known.
    """

    tool: str | None = None
    text: str | None = None
    agent_id: str | None = None
    agent_known: bool = False
    program: str | None = None

    @property
    def is_fully_known(self) -> bool:
        known_parts = self.tool, self.text, self.program
        return None not in known_parts and self.agent_known


def tool_may_run_commands(tool: str) -> bool:
    """Say whether calls of a tool may run commands, as far as its name is known."""
    tool_fields = TOOLS.get(tool)
    return tool_fields is None or tool_fields.is_command


def validate_tool_rule(rule: DecisionRule) -> None:
    """Raise UnprocessableRequest, in words for the person who wrote it, for a rule that could not be followed."""
    if not rule.tool.strip():
        raise UnprocessableRequest(f"Rule {rule.number} names no tool. `*` means every tool.")
    if unknown := tool_kinds.find_unknown_tool_kinds(rule.tool):
        known_kinds = ", ".join(f"{tool_kinds.PREFIX}{name}" for name in tool_kinds.KINDS)
        raise UnprocessableRequest(
            f"Rule {rule.number}: there is no {unknown[0][:100]!r}. Known kinds of tools: {known_kinds}."
        )
    if rule.program and rule.program not in AGENT_TITLES:
        raise UnprocessableRequest(f"Rule {rule.number}: there is no agent program {rule.program[:100]!r}.")
    if rule.verdict not in RuleVerdict.values:
        raise UnprocessableRequest(f"Rule {rule.number}: {rule.verdict!r} is not a verdict.")
    if len(rule.pattern) > LONGEST_PATTERN:
        raise UnprocessableRequest(
            f"Rule {rule.number}: a pattern may have at most {LONGEST_PATTERN} characters."
        )
    if rule.wait_seconds is not None and not 0 < rule.wait_seconds <= LONGEST_WAIT:
        raise UnprocessableRequest(
            f"Rule {rule.number}: a person can be asked for 1 to {LONGEST_WAIT} seconds."
        )
    if rule.unreadable not in terms.UNREADABLE_CHOICES:
        raise UnprocessableRequest(f"Rule {rule.number}: {rule.unreadable[:100]!r} is not known.")
    try:
        parsed, repetition = rule.parsed_terms, rule.parsed_repetition_condition
    except UnprocessableRequest as problem:
        raise UnprocessableRequest(f"Rule {rule.number}: {problem.detail}") from None
    if parsed.lifts_guards and rule.verdict in {ALLOW, OBSERVE}:
        raise UnprocessableRequest(
            f"Rule {rule.number}: `{terms.WITHOUT_SANDBOX}` is for rules that deny or ask."
        )
    if (parsed.has_new_hosts or repetition) and rule.verdict in {ALLOW, OBSERVE}:
        about = repetition or NEW_HOSTS
        raise UnprocessableRequest(f"Rule {rule.number}: `{about}` is for rules that deny or ask.")
    if rule.stops_turn and rule.verdict != DENY:
        raise UnprocessableRequest(f"Rule {rule.number}: only a rule that denies can end the turn.")
    try:
        compile_rule_pattern(rule.pattern, rule.verdict == ALLOW)
    except re2.error as problem:
        problem_text = problem.args[0] if problem.args else problem
        problem_text = (
            problem_text.decode("utf-8", "replace") if isinstance(problem_text, bytes) else str(problem_text)
        )
        raise UnprocessableRequest(
            f"Rule {rule.number}: the pattern cannot be read ({problem_text}). "
            "Look-around and back-references do not work."
        ) from None


@lru_cache(maxsize=1024)
def pattern_allows_multiline_text(pattern: str) -> bool:
    """Say whether an allow pattern is written for texts of several lines: it has a `\\n` to be met, or the flag `s`.

    Not the second half of an escaped backslash (`C:\\\\notes`), nor a `\\n` that a class shuts out (`[^\\n]`).
    """
    for piece in _PIECES.findall(pattern):
        if piece == r"\n" or (piece.startswith("(?") and "s" in piece):
            return True
        if piece[0] == "[" and piece[1] != "^" and r"\n" in re.findall(r"\\.", piece, re.DOTALL):
            return True
    return False


@lru_cache(maxsize=1024)
def compile_rule_pattern(pattern: str, matches_whole: bool) -> Any:
    """Return the pattern ready to match. Raises re2.error. `.` stays within a line where the whole must match."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 4 << 20
    options.dot_nl = not matches_whole
    return re2.compile(pattern, options)


def pattern_found_in_text(text: str, pattern: str) -> bool:
    """Say whether a deny or ask rule's pattern fits anywhere in a text of a call."""
    expression = compile_rule_pattern(f"(?m){pattern}" if isinstance(text, JoinedTexts) else pattern, False)
    return isinstance(text, UnsearchableText) or bool(expression.search(text))


@lru_cache(maxsize=1024)
def compile_tool_name_pattern(names: str) -> re.Pattern[str]:
    name_patterns = [
        fnmatch.translate(re.sub(r"\*+", "*", name)) for name in tool_kinds.expand_tool_kinds(names)
    ]
    return re.compile("|".join(name_patterns) or r"(?!)")


def rule_names_include_tool_server(names: str, tool: str, server: str) -> bool:
    """Say whether one of the names that fit the tool speaks of its server, or of several at once (`mcp__*`, `*`)."""
    if not server:
        return True
    return any(
        matches_tool_name(name, tool) and (plain.startswith(server) or "__" not in plain.removeprefix(PREFIX))
        for name in tool_kinds.expand_tool_kinds(names)
        for plain in [_WILD.split(name, 1)[0]]
    )


def wildcard_covers_other_servers(names: str, server_ids: Iterable[str]) -> bool:
    """Say whether a star in `names` takes in tools of a registered server that they do not speak of."""
    known_servers = list(server_ids)
    return any(
        is_prefix_of_other_server_calls(_WILD.split(name, 1)[0], known_servers)
        for name in tool_kinds.expand_tool_kinds(names)
    )


def matches_tool_name(names: str, tool: str) -> bool:
    """Say whether `names`, as rules write them (`Edit|Write`, `kind:command`, `mcp__github__*`), name this tool."""
    return compile_tool_name_pattern(names).match(tool) is not None


def load_saved_tool_rules() -> tuple[DecisionRule, ...]:
    rows = ToolRule.objects.order_by("position", "id")
    return tuple(decision_rule_from_row(row, number) for number, row in enumerate(rows, 1))


def decision_rule_from_row(row: ToolRule, number: int) -> DecisionRule:
    """Return one saved rule as it decides. Agents that cannot be read are nobody's."""
    agents = row.agents
    if agents is not None:
        agents = tuple(str(agent) for agent in agents) if isinstance(agents, list) else ()
    pattern = row.pattern.removeprefix(TERMS_ALONE) if row.is_off else row.pattern
    has_no_pattern = pattern == TERMS_ALONE and (row.runs or row.touches or row.reaches or row.repeats)
    return DecisionRule(
        number,
        row.tool,
        row.verdict,
        "" if has_no_pattern else pattern,
        agents,
        row.reason,
        row.wait_seconds,
        row.deny_at_deadline,
        row.program,
        row.runs,
        row.touches,
        row.reaches,
        row.unreadable,
        row.ready_made,
        bool(row.is_off),
        row.repeats,
        bool(row.stops_turn),
    )


def decision_rule_as_value_list(rule: DecisionRule) -> list[Any]:
    """Return what a rule says. One without terms has the values that it had before rules had any."""
    values = [getattr(rule, name) for name in DecisionRule.__slots__ if name not in TERM_FIELDS]
    terms_of_rule = {name: value for name in sorted(TERM_FIELDS) if (value := getattr(rule, name))}
    return [*values, *([terms_of_rule] if terms_of_rule else [])]


def digest_tool_rules(rules: Iterable[DecisionRule]) -> str:
    """Return a short text that two lists of rules share exactly when they are the same."""
    packed = json.dumps([decision_rule_as_value_list(rule) for rule in rules])
    return hashlib.sha256(packed.encode()).hexdigest()[:16]


def find_history_needs_of_rules(
    rules: Sequence[DecisionRule],
    tool: str,
    text: str,
    agent_id: str | None,
    program: str = "",
    *,
    servers: Iterable[str] = (),
) -> HistoryNeeds:
    """Return what must be known of the time before a call for the first rule that fits to be found."""
    server, needs = server_call_prefix_or_empty(tool, servers), HistoryNeeds()
    for rule in rules:
        try:
            repetition = rule.parsed_repetition_condition
            uncounted = replace(rule, repeats="") if repetition is not None else rule
            if not uncounted.matches_call(tool, text, agent_id, program, server):
                continue
            has_new_hosts = rule.parsed_terms.has_new_hosts
        except (re2.error, UnprocessableRequest):
            break  # it decides
        if repetition is not None:
            needs = needs.merge_needs(HistoryNeeds(frozenset({repetition})))
        if has_new_hosts and isinstance(text, CallText):
            hosts = {address.host for address in text.describe_call(tool).addresses if address.host}
            needs = needs.merge_needs(HistoryNeeds(hosts=frozenset(hosts)))
        if repetition is None and not has_new_hosts:
            break
    return needs


def has_history_rules(rules: Iterable[DecisionRule]) -> bool:
    """Say whether a rule asks about the time before a call."""
    return any(not rule.is_off and (rule.repeats or NEW_HOSTS in rule.reaches) for rule in rules)


def history_of_call_text(text: str) -> CallHistory:
    return (text.history if isinstance(text, CallText) else None) or NO_HISTORY


def tool_ruling_or_no_opinion(
    rules: Sequence[DecisionRule],
    tool: str,
    text: str,
    agent_id: str | None,
    program: str = "",
    *,
    servers: Iterable[str] = (),
) -> Ruling:
    """Return what the first rule that fits says; no opinion where none does.

    `program` is the agent program that makes the call; a rule that names one fits no call of which it is not known.
    `servers` are the registered MCP servers, by which is known whose tool it is.
    """
    server = server_call_prefix_or_empty(tool, servers)
    for rule in rules:
        try:
            fits = rule.matches_call(tool, text, agent_id, program, server)
            if fits:
                return ruling_of_matching_rule(rule, match_explanation_or_empty(rule, tool, text))
        except (re2.error, UnprocessableRequest):
            return ruling_for_unreadable_rule(rule)
    return NO_OPINION


def list_call_parts_matched_by_rule(rule: DecisionRule, tool: str, text: str) -> tuple[str, ...]:
    """Return the parts of a call for which a rule that denies or asks matches it, where the rule says what calls do."""
    if rule.verdict not in {DENY, ASK}:
        return ()
    try:
        return rule.assess_restricting_rule_match(text, tool).parts[:MOST_PARTS_SHOWN]
    except (re2.error, UnprocessableRequest):
        return ()


def match_explanation_or_empty(rule: DecisionRule, tool: str, text: str) -> str:
    """Return which part of a call cannot be read, where the rule matches it for that; "" else."""
    if rule.verdict not in {DENY, ASK}:
        return ""
    if (repetition := rule.parsed_repetition_condition) is not None:
        return f"This is the {repetition}."
    if not (rule.has_terms or rule.matches_unreadable):
        return ""
    restriction = rule.assess_restricting_rule_match(text, tool)
    if restriction.match != Match.MAYBE:
        return ""
    shown_matches = [
        part if len(part) <= LONGEST_PART_SHOWN else f"{part[: LONGEST_PART_SHOWN - 1]}…"
        for part in restriction.parts[:MOST_PARTS_SHOWN]
    ]
    return f"{UNREADABLE_REASON} {', '.join(shown_matches)}."


def ruling_for_unreadable_rule(rule: DecisionRule) -> Ruling:
    """What another program wrote so that it cannot be read is asked."""
    return Ruling(ASK, "The rule cannot be read.", f"rule {rule.number}", ground=rule)


def ruling_of_matching_rule(rule: DecisionRule, explanation: str = "") -> Ruling:
    """Return what a rule that fits says. `explanation` is added to its reason."""
    if rule.verdict not in RuleVerdict.values:
        return ruling_for_unreadable_rule(rule)
    reason = rule.reason or f"{RuleVerdict(rule.verdict).label} {rule.tool}".strip()
    reason = f"{reason.rstrip('.')}. {explanation}" if explanation else reason
    by = f"rule {rule.number}"
    return Ruling(rule.verdict, reason, by, rule.wait_seconds, rule.deny_at_deadline, rule, rule.stops_turn)


def strictest_ruling_for_partial_call(
    rules: Sequence[DecisionRule], call: PartialCall, servers: Iterable[str] = ()
) -> Ruling:
    """Return the strictest that the rules may say of a call of which not all is known."""
    worst, server = NO_OPINION, server_call_prefix_or_empty(call.tool or "", servers)
    for rule in rules:
        try:
            fits = rule.can_match_partial_call(call, server)
        except (re2.error, UnprocessableRequest):
            return stricter_ruling(worst, ruling_for_unreadable_rule(rule))
        if fits:
            worst = stricter_ruling(worst, ruling_of_matching_rule(rule))
            if call.is_fully_known:
                break  # of the rules that fit, the first decides
    return worst


def ruling_from_grant_verdict(verdict: Verdict) -> Ruling:
    """Return what the grants say of an MCP tool. Only a grant allows or asks."""
    if verdict.source == UNKNOWN_SERVER:
        return Ruling(DENY, f"{verdict.reason} Servers that are not registered are denied.", "grants")
    by = f"grant {verdict.grant.id}" if verdict.grant else f"calls without a grant to {verdict.server_id}"
    if verdict.requires_approval:
        # Who set it wants a person's word, so nobody's word is a no.
        return Ruling(ASK, verdict.reason, by, deny_at_deadline=True, ground=verdict.grant)
    if verdict.is_denied:
        return Ruling(DENY, verdict.reason, by, ground=verdict.grant)
    return Ruling(ALLOW, verdict.reason, by, ground=verdict.grant) if verdict.grant else NO_OPINION


def stricter_ruling(ruling: Ruling, other: Ruling) -> Ruling:
    """Return the ruling that lets less happen; of two that ask, one that denies at the deadline."""
    return min(ruling, other, key=ruling_leniency_sort_key)


def ruling_leniency_sort_key(ruling: Ruling) -> tuple[int, bool]:
    return STRICTEST_FIRST.index(ruling.decision), not ruling.deny_at_deadline


@dataclass(frozen=True, slots=True)
class ApplicableGrants:
    """The registered MCP servers, and the grants that apply to some calls."""

    managed: ManagedServers
    policy: AccessPolicy

    def decide_by_applicable_grants(self, tool: str, agent_id: str, now: datetime) -> Verdict | None:
        """Return what the grants say of a call, or None where they say nothing."""
        return self.managed.decide_call_by_grants(self.policy, tool, agent_id, now)


def load_grants_for_calls(calls: Iterable[tuple[str, str]], now: datetime) -> ApplicableGrants:
    """Return the grants for these tools and agents, in one query."""
    servers_managed = managed.load_managed_servers(now)
    servers_by_call = [
        (agent_id, servers_managed.find_server_tools_of_call(tool)) for tool, agent_id in calls
    ]
    servers = {server for _, places in servers_by_call for server, _ in places}
    agents = {agent_id for agent_id, places in servers_by_call if places}
    return ApplicableGrants(
        servers_managed, access.load_policy_for_agents(agents, servers, now) if servers else AccessPolicy()
    )


def stricter_of_ruling_and_grant_verdict(ruling: Ruling, verdict: Verdict | None) -> Ruling:
    """Return the stricter of what the rules and the grants say, as the endpoint does."""
    return stricter_ruling(ruling, ruling_from_grant_verdict(verdict) if verdict else NO_OPINION)
