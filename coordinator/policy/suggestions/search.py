"""Which narrow rules and grants would have let most recorded calls run unasked, each with its evidence. Only reads.

The history is walked through twice, then the requests that people answered once: first the calls that somebody may be
asked about are grouped by what they have in common (policy.shapes), then what follows from the largest groups is tried
on every call as the door would, and on every answer. What would let through one call that a person refused is dropped.
Rules are for the agents that are known by name and made such calls, and for the agent program with which all of them
were made, if it is one: what others call is not learnt from.
A person accepts what they choose (actions.tool_rules, actions.grants); nothing here decides anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from coordinator.errors import UnprocessableRequest
from coordinator.mcp.servers.names import find_call_prefix
from coordinator.models import Agent
from coordinator.policy.grants.access import ALLOW as GRANTED
from coordinator.policy.grants.access import DEFAULT_POLICY
from coordinator.policy.grants.edits import GrantEdit
from coordinator.policy.grants.lengths import default_grant_end
from coordinator.policy.grants.managed import ManagedServers
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.call_text import text_for_allow_rules
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, DecisionRule
from coordinator.policy.suggestions.history import (
    BIGGEST_ID,
    AnsweredRequest,
    CallHistoryReader,
    RecordedCall,
    WalkTimeLimit,
    iterate_history_steps,
)
from coordinator.policy.suggestions.shapes import (
    LONGEST_EXACT,
    MASK,
    MOST_EXACT,
    CallShape,
    CommandPart,
    build_shape_pattern,
    classify_call_shape,
    describe_shape_pattern,
    escape_pattern_text,
)
from coordinator.policy.suggestions.trials import RecordedCallJudge, walked_share

GOAL = 0.95  # of the calls that nobody refused
FEWEST = 2  # calls that a suggestion would have let run
MOST_GROUPS = 3_000
MOST_TRIED = 60  # suggestions
MOST_AGENTS = 40  # for which a rule is suggested, each by name
MOST_DECIDED_BY = 10  # rules and grants that are named as deciding a suggestion's calls now
MOST_REFUSED = 10_000  # refused calls that are remembered one by one
MOST_COMPARED = 2_000  # of those, and of the requests that people denied, before anything is suggested
EXACTLY = 0.8  # the share of a group's calls from which on one text is suggested instead of a pattern
EXAMPLES = 3
LEARN, PROVE, ANSWERS, DONE = "learn", "prove", "answers", "done"
_NAMES_ONE = re.compile(r"[^|,*?\[\]\s]+")  # a tool that a rule can name by itself
WORD_FOR_WORD = "Nothing else: only exactly this text."
ONE_TOOL = "Every call of this tool by this agent, whatever its input."
CLOSES = (
    " It also closes something: once there is a grant, calls of MCP servers that are not registered here are "
    "denied."
)


@dataclass(slots=True)
class CallGroup:
    """Calls of one shape: how many, the parts that differ, the commonest texts, who made them, by which programs."""

    calls: int = 0
    parts: list[CommandPart] = field(default_factory=list)
    texts: dict[str, int] = field(default_factory=dict)
    agents: dict[str, int] = field(default_factory=dict)
    programs: dict[str, int] = field(default_factory=dict)

    @classmethod
    def group_from_values(cls, values: Any) -> CallGroup:
        calls, parts, texts, agents, programs = values
        return cls(calls, [CommandPart(*part) for part in parts], texts, agents, programs)

    def group_as_values(self) -> list[Any]:
        parts = [part.part_as_values() for part in self.parts]
        return [self.calls, parts, self.texts, self.agents, self.programs]

    @property
    def common_program(self) -> str:
        """The agent program that made all of the calls; "" where several did, or nobody knows."""
        return next(iter(self.programs)) if len(self.programs) == 1 else ""

    def add_call_to_group(self, call: RecordedCall, shape: CallShape) -> None:
        self.calls += 1
        if not self.parts:
            self.parts = shape.parts
        else:
            for part, seen_values in zip(self.parts, shape.parts, strict=True):
                part.merge_part(seen_values)
        if call.agent in self.agents or len(self.agents) < MOST_AGENTS:
            self.agents[call.agent] = self.agents.get(call.agent, 0) + 1
        self.programs[call.program] = self.programs.get(call.program, 0) + 1
        count_frequent_text(self.texts, text_for_allow_rules(call.about))


def count_frequent_text(texts: dict[str, int], text: str) -> None:
    """Count the commonest texts (Misra and Gries 1982: what makes up more than a fifth is never lost)."""
    if len(text) > LONGEST_EXACT or MASK in text:
        return
    if text in texts or len(texts) < MOST_EXACT:
        texts[text] = texts.get(text, 0) + 1
        return
    for other in list(texts):
        texts[other] -= 1
        if not texts[other]:
            del texts[other]


@dataclass(slots=True)
class RuleSuggestion:
    """A rule, or a grant (`slot`: agent, server, tool), and its evidence.

    A rule is for the `program` it is all of.

    `calls` of the history would have run unasked by it: `closed` of them are denied by a server's default
    policy now, and `asked` are asked about. People `approved` and `refused` so many calls that it fits.
    `describe_shape_pattern` says what else it would have allowed.
    """

    tool: str
    pattern: str = ""
    agents: list[str] | None = None
    program: str = ""
    slot: list[str] | None = None
    loosely: str = ""
    calls: int = 0
    closed: int = 0
    asked: int = 0
    approved: int = 0
    refused: int = 0
    examples: list[int] = field(default_factory=list)
    callers: dict[str, int] = field(default_factory=dict)
    now: dict[str, int] = field(default_factory=dict)
    newest_us: int = 0
    oldest_us: int = 0

    def suggestion_as_values(self) -> list[Any]:
        return [getattr(self, name) for name in RuleSuggestion.__slots__]

    @property
    def is_grant(self) -> bool:
        return self.slot is not None

    def suggested_rule(self, number: int, reason: str = "") -> DecisionRule:
        agents = None if self.agents is None else tuple(self.agents)
        return DecisionRule(number, self.tool, ALLOW, self.pattern, agents, reason, program=self.program)

    def suggested_grant_edit(
        self, now: datetime, reason: str | None = None, seen: str | None = None
    ) -> GrantEdit:
        """Return the edit that makes the grant. Only for one."""
        assert self.slot is not None
        agent, server, tool = self.slot
        return GrantEdit(agent, server, tool, GRANTED, default_grant_end(now), reason, seen)

    def matches_tool_call(self, tool: str, about: str, managed: ManagedServers) -> bool:
        """Say whether it matches this call, whoever makes it with whichever program."""
        if self.slot is not None:
            return (self.slot[1], self.slot[2]) in managed.find_server_tools(tool)
        return replace(self.suggested_rule(0), agents=None, program="").matches_call(
            tool, about, None, server=find_call_prefix(tool, managed.servers)
        )

    def is_for_caller(self, agent: str, program: str) -> bool:
        if self.slot is not None:
            return self.slot[0] == agent
        return (self.agents is None or agent in self.agents) and self.program in {"", program}

    @property
    def is_worth_suggesting(self) -> bool:
        """Say whether it may be suggested: it helps, nobody refused, somebody approved what is denied or asked now."""
        return (
            self.calls >= FEWEST
            and not self.refused
            and (self.approved > 0 or not (self.closed or self.asked))
        )

    def count_allowed_call(self, call: RecordedCall, decision: str, by: str) -> None:
        """Take in a call that it would have let run."""
        self.calls += 1
        self.callers[call.agent] = self.callers.get(call.agent, 0) + 1
        name = f"{decision} {by}".strip()
        if name in self.now or len(self.now) < MOST_DECIDED_BY:
            self.now[name] = self.now.get(name, 0) + 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(call.event_id)
        self.newest_us = max(self.newest_us, call.at_us)
        self.oldest_us = min(self.oldest_us or call.at_us, call.at_us)


def insert_rules_after_denials(
    saved: Sequence[DecisionRule], added: Sequence[DecisionRule]
) -> list[DecisionRule]:
    """Return the saved rules with some that allow: behind the last that denies, so that no denial is weakened."""
    behind = count_rules_through_denials(saved)
    rules = [*saved[:behind], *added, *saved[behind:]]
    return [replace(rule, number=number) for number, rule in enumerate(rules, 1)]


def count_rules_through_denials(saved: Sequence[DecisionRule]) -> int:
    """Return how many of the saved rules stand before the place where one that allows may be added."""
    return max((place for place, rule in enumerate(saved, 1) if rule.verdict == DENY), default=0)


@dataclass(slots=True)
class SuggestionSearch:
    """How far the search has come, as it is carried along between its pieces.

    `first`, `last`, `before` are ids of events (of requests in the phase ANSWERS). Of all `calls`, `allowed` run
    unasked already, `denied` are denied by policy, and people refused the calls of the ids in `refused`; `overlooked`
    are tools of refused calls beyond those. `varied` calls are like no others, `strangers` are calls of agents that are
    not known by name, and of the denied ones suggestions would open `openable`.
    """

    first: int
    last: int
    before: int
    phase: str = LEARN
    calls: int = 0
    allowed: int = 0
    denied: int = 0
    varied: int = 0
    strangers: int = 0
    refused: list[int] = field(default_factory=list)
    refused_calls: int = 0
    overlooked: list[str] = field(default_factory=list)
    openable: int = 0
    groups: dict[str, CallGroup] = field(default_factory=dict)
    tried: list[RuleSuggestion] = field(default_factory=list)

    @classmethod
    def start_search(cls, reader: CallHistoryReader) -> SuggestionSearch:
        first, last = reader.event_id_range()
        return cls(first, last, last + 1)

    @classmethod
    def search_from_values(cls, values: Any) -> SuggestionSearch:
        """Return the search that `as_values` told of. Raises ValueError or TypeError for anything else."""
        *plain, groups, tried = values
        search = cls(*plain)
        search.groups = {
            key: CallGroup.group_from_values(suggestion_values) for key, suggestion_values in groups.items()
        }
        search.tried = [RuleSuggestion(*one) for one in tried]
        return search

    def search_as_values(self) -> list[Any]:
        """Return the search as JSON can carry it."""
        plain = [getattr(self, name) for name in SuggestionSearch.__slots__[:-2]]
        groups = {key: group.group_as_values() for key, group in self.groups.items()}
        return [*plain, groups, [suggestion.suggestion_as_values() for suggestion in self.tried]]

    @property
    def is_done(self) -> bool:
        return self.phase == DONE

    @property
    def search_progress(self) -> float:
        """How much of the work is done, from 0 to 1; the answers are few beside the calls."""
        walked = walked_share(self.first, self.last, self.before)
        return {LEARN: 0.0, PROVE: 0.5, ANSWERS: 0.97, DONE: 1.0}[self.phase] + (
            walked / 2 if self.phase == LEARN else walked * 0.47 if self.phase == PROVE else 0.0
        )

    # --- walking ------------------------------------------------------------------------------------------

    def continue_search(
        self, reader: CallHistoryReader, saved: Sequence[DecisionRule], now: datetime, budget: WalkTimeLimit
    ) -> None:
        """Search on from where it stopped until the budget is spent."""
        judge = RecordedCallJudge(saved, now)
        while not self.is_done:
            if self.phase == LEARN:
                self.group_recorded_calls(reader, judge, budget)
            elif self.phase == PROVE:
                self.try_suggestions_on_calls(reader, judge, saved, now, budget)
            else:
                self.compare_with_answers(reader, judge.managed, budget)
            if budget.is_time_spent:
                return

    def group_recorded_calls(
        self, reader: CallHistoryReader, judge: RecordedCallJudge, budget: WalkTimeLimit
    ) -> None:
        agent_rows, refused = set(Agent.objects.values_list("pk", flat=True)), set(self.refused)
        for step in iterate_history_steps(reader, self.before, budget):
            refused_call_ids = reader.find_refused_call_ids(
                step.before, step.floor
            )  # newest first: a result stands before its call
            self.record_refused_ids(reader, refused_call_ids)
            refused.update(refused_call_ids)
            judge.load_grants_for_calls(step.calls)
            for call in step.calls:
                self.sort_call_into_group(call, judge, agent_rows, was_refused=call.event_id in refused)
            self.before = step.floor
        if len(self.groups) > MOST_GROUPS:
            self.drop_rare_groups()
        if not self.before:
            self.tried = build_suggestions(self.groups, self.find_refused_calls(reader), judge)
            self.groups = {}
            self.phase, self.before = PROVE, self.last + 1

    def sort_call_into_group(
        self, call: RecordedCall, judge: RecordedCallJudge, known: set[str], *, was_refused: bool
    ) -> None:
        """Count one call, and put it to its like where somebody may be asked about it."""
        ruling, verdict = judge.decide_recorded_call(call), judge.cached_grant_verdict(call)
        self.calls += 1
        if ruling.decision == ALLOW:
            self.allowed += 1
            return
        by_default = verdict is not None and not verdict.is_allowed and verdict.source == DEFAULT_POLICY
        if ruling.decision == DENY:
            self.denied += 1
            if (
                not by_default
                or judge.decide_call_by_rules(call.tool, call.about, call.agent, call.program).decision
                == DENY
            ):
                return
        if was_refused:
            return
        if call.agent not in known:
            self.strangers += 1
            return
        key, shape = call_group_key(call, judge.managed)
        if key is None:
            self.varied += 1
            return
        self.groups.setdefault(key, CallGroup()).add_call_to_group(call, shape)

    def drop_rare_groups(self) -> None:
        common_groups = sorted(self.groups.items(), key=lambda item: item[1].calls, reverse=True)
        self.varied += sum(group.calls for _, group in common_groups[MOST_GROUPS // 2 :])
        self.groups = dict(common_groups[: MOST_GROUPS // 2])

    def record_refused_ids(self, reader: CallHistoryReader, ids: Sequence[int]) -> None:
        room = MOST_REFUSED - len(self.refused)
        self.refused.extend(ids[: max(room, 0)])
        if beyond := ids[max(room, 0) :]:
            self.overlooked = sorted(
                {*self.overlooked, *(call.tool for call in reader.read_calls_by_id(beyond))}
            )

    def find_refused_calls(self, reader: CallHistoryReader) -> list[tuple[str, str]]:
        """Return tool and text of calls that people refused, as far as they are compared beforehand."""
        refused_calls = [
            (call.tool, call.about) for call in reader.read_calls_by_id(self.refused[:MOST_COMPARED])
        ]
        newest = reader.read_answered_requests(BIGGEST_ID, reader.request_stretch_floor(BIGGEST_ID))
        return [
            *refused_calls,
            *((newest_call.tool, newest_call.about) for newest_call in newest if not newest_call.allowed),
        ]

    def try_suggestions_on_calls(
        self,
        reader: CallHistoryReader,
        judge: RecordedCallJudge,
        saved: Sequence[DecisionRule],
        now: datetime,
        budget: WalkTimeLimit,
    ) -> None:
        """Count on which calls the suggestions would have made a difference, by the rules of the door."""
        suggested = [suggestion for suggestion in self.tried if not suggestion.is_grant]
        together = insert_rules_after_denials(saved, [one.suggested_rule(0) for one in suggested])
        by_rule = {
            f"rule {place}": one
            for place, one in enumerate(suggested, count_rules_through_denials(saved) + 1)
        }
        by_slot = {
            tuple(suggestion.slot): suggestion for suggestion in self.tried if suggestion.slot is not None
        }
        then = RecordedCallJudge(
            together,
            now,
            [suggestion.suggested_grant_edit(now) for suggestion in self.tried if suggestion.is_grant],
        )
        refused = set(self.refused)
        for step in iterate_history_steps(reader, self.before, budget):
            judge.load_grants_for_calls(step.calls)
            then.load_grants_for_calls(step.calls)
            for call in step.calls:
                if call.event_id in refused:
                    self.count_refusal_for_suggestions(call.tool, call.about, judge.managed)
                    self.refused_calls += judge.decide_recorded_call(call).decision not in {ALLOW, DENY}
                    continue
                credit_allowing_suggestion(call, judge, then, by_rule, by_slot)
            self.before = step.floor
        if not self.before:
            self.phase, self.before = ANSWERS, BIGGEST_ID

    def count_refusal_for_suggestions(self, tool: str, about: str, managed: ManagedServers) -> None:
        for suggestion in self.tried:
            suggestion.refused += suggestion.matches_tool_call(tool, about, managed)

    def compare_with_answers(
        self, reader: CallHistoryReader, managed: ManagedServers, budget: WalkTimeLimit
    ) -> None:
        """Count what people said of calls that the suggestions fit."""
        while True:
            floor = reader.request_stretch_floor(self.before)
            for answer in reader.read_answered_requests(self.before, floor):
                self.count_answer_for_suggestions(answer, managed)
            self.before = floor
            if not floor:
                self.choose_best_suggestions()
                return
            if budget.is_time_spent:
                return

    def count_answer_for_suggestions(self, answer: AnsweredRequest, managed: ManagedServers) -> None:
        if not answer.allowed:
            self.count_refusal_for_suggestions(answer.tool, answer.about, managed)
            return
        for suggestion in self.tried:
            suggestion.approved += suggestion.is_for_caller(
                answer.agent, answer.program
            ) and suggestion.matches_tool_call(answer.tool, answer.about, managed)

    def choose_best_suggestions(self) -> None:
        """Keep as few of what is sound as reach the goal, the most useful first."""
        sound = [
            suggestion
            for suggestion in self.tried
            if suggestion.is_worth_suggesting and suggestion.tool not in self.overlooked
        ]
        sound.sort(key=lambda one: (-one.calls, one.tool, one.pattern))
        self.openable = sum(one.closed for one in sound)
        chosen: list[RuleSuggestion] = []
        while sound and self.unasked_share(chosen) < GOAL:
            chosen.append(sound.pop(0))
        self.tried, self.phase = chosen, DONE

    # --- what came of it ----------------------------------------------------------------------------------

    @property
    def askable_call_count(self) -> int:
        """How many calls are to run unasked as far as possible: all but those that policy or a person refuses."""
        return self.calls - self.denied - self.refused_calls + self.openable

    def count_unasked_calls(self, chosen: Sequence[RuleSuggestion]) -> int:
        """How many of them would have run unasked with these."""
        return self.allowed + sum(suggestion.calls for suggestion in chosen)

    def unasked_share(self, chosen: Sequence[RuleSuggestion]) -> float:
        """Which share of them that is, from 0 to 1."""
        return self.count_unasked_calls(chosen) / self.askable_call_count if self.askable_call_count else 1.0


def call_group_key(call: RecordedCall, managed: ManagedServers) -> tuple[str | None, CallShape]:
    """Return the name of the group that a call belongs to, None for a call that is like no others."""
    places = managed.find_server_tools(call.tool)
    if places:
        server, tool = places[0]
        return join_key_parts("grant", call.tool, call.agent, server, tool), CallShape("any")
    if not _NAMES_ONE.fullmatch(call.tool):
        return None, CallShape("")
    text = text_for_allow_rules(call.about)
    shape = classify_call_shape(call.field, call.about) if text == call.about else CallShape("")
    if shape.key:
        return join_key_parts("rule", call.tool, shape.key), shape
    if len(text) > LONGEST_EXACT or "\n" in text or MASK in text:
        return None, shape
    return join_key_parts("exact", call.tool, text), CallShape("")


def join_key_parts(*parts: str) -> str:
    return "\x1f".join(part.replace("\x1f", " ") for part in parts)


def build_suggestions(
    groups: dict[str, CallGroup], refusals: Iterable[tuple[str, str]], judge: RecordedCallJudge
) -> list[RuleSuggestion]:
    """Return what follows from the largest groups, narrowest first choice, without what fits a refused call."""
    refused: dict[str, list[str]] = {}
    for tool, about in refusals:
        refused.setdefault(tool, []).append(about)
    suggestions: list[RuleSuggestion] = []
    for key, group in sorted(groups.items(), key=lambda item: (-item[1].calls, item[0])):
        if group.calls < FEWEST or len(suggestions) >= MOST_TRIED:
            break
        for candidate in iterate_group_candidates(key, group, judge.managed.strict):
            if can_save_suggested_rule(candidate) and not any(
                candidate.matches_tool_call(tool, about, judge.managed)
                for tool, texts in refused.items()
                for about in texts
            ):
                suggestions.append(candidate)
                break
    return suggestions


def can_save_suggested_rule(one: RuleSuggestion) -> bool:
    try:
        tool_rules.validate_tool_rule(one.suggested_rule(1))
    except UnprocessableRequest:
        return False
    return True


def iterate_group_candidates(key: str, group: CallGroup, is_strict: bool) -> Iterable[RuleSuggestion]:
    """Yield what a group may suggest, the first that nobody refused counts.

    `is_strict`: unregistered servers are denied already (policy.managed).
    """
    kind, tool, *rest = key.split("\x1f")
    if kind == "grant":
        agent, server, name = rest
        yield RuleSuggestion(
            tool, slot=[agent, server, name], loosely=ONE_TOOL if is_strict else ONE_TOOL + CLOSES
        )
        return
    agents, program = sorted(group.agents), group.common_program
    if kind == "exact":
        yield RuleSuggestion(tool, escape_pattern_text(rest[0]), agents, program, loosely=WORD_FOR_WORD)
        return
    texts = sorted(group.texts.items(), key=lambda item: (-item[1], item[0]))
    exact = [
        RuleSuggestion(tool, escape_pattern_text(text), agents, program, loosely=WORD_FOR_WORD)
        for text, times in texts
        if times >= FEWEST and "\n" not in text and rest[0] != "any"
    ]
    if exact and texts[0][1] >= EXACTLY * group.calls:
        yield exact[0]
    shape = CallShape(rest[0], group.parts)
    pattern = build_shape_pattern(shape)
    if pattern is not None:
        yield RuleSuggestion(tool, pattern, agents, program, loosely=describe_shape_pattern(shape))
    yield from exact


def credit_allowing_suggestion(
    call: RecordedCall,
    judge: RecordedCallJudge,
    then: RecordedCallJudge,
    by_rule: dict[str, RuleSuggestion],
    by_slot: dict[tuple[str, ...], RuleSuggestion],
) -> None:
    """Count a call for the suggestion that would have let it run."""
    before = judge.decide_recorded_call(call)
    if before.decision == ALLOW:
        return
    after = then.decide_recorded_call(call)
    if after.decision != ALLOW:
        return
    suggestion = by_rule.get(after.by)
    verdict = then.cached_grant_verdict(call)
    if suggestion is None and verdict is not None and verdict.grant is not None:
        grant = verdict.grant
        suggestion = by_slot.get((grant.agent_id, grant.server_id, grant.tool_name or ""))
    if suggestion is not None:
        suggestion.closed += before.decision == DENY
        suggestion.asked += before.decision == ASK
        suggestion.count_allowed_call(call, before.decision, before.by)


def find_newly_refused_request(
    one: RuleSuggestion, reader: CallHistoryReader, managed: ManagedServers
) -> AnsweredRequest | None:
    """Return a request of a call that the suggestion fits and a person refused, looking through all of them."""
    before = BIGGEST_ID
    while before:
        floor = reader.request_stretch_floor(before)
        for answer in reader.read_answered_requests(before, floor):
            if not answer.allowed and one.matches_tool_call(answer.tool, answer.about, managed):
                return answer
        before = floor
    return None
