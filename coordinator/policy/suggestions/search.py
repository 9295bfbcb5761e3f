"""Search for narrow rules and grants that would have let most recorded calls run unasked, with evidence. Only reads.

The history is walked through twice, then the requests that people answered once: first the calls that somebody may be
asked about are grouped by what they have in common (suggestions.generalizing), then what follows from the largest
groups is tried on every call as the endpoint would, and on every answer. What would let through one call that a person
refused is dropped. Rules are for the agents that are registered and made such calls. Calls of agents that are not
registered make rules for their agent program, because the endpoint knows nothing else of them.
A person accepts what they choose (actions.policy.tool_rules, actions.policy.grants); nothing here decides anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any

from coordinator.calls.descriptions import CallDescription
from coordinator.calls.paths import replace_home_with_tilde
from coordinator.calls.tools import TOOLS
from coordinator.errors import UnprocessableRequest
from coordinator.mcp.servers.names import name_in_calls, server_call_prefix_or_empty
from coordinator.models import Agent, DismissedSuggestion
from coordinator.policy.grants.access import ALLOW as GRANTED
from coordinator.policy.grants.access import DEFAULT_POLICY
from coordinator.policy.grants.edits import GrantEdit
from coordinator.policy.grants.end_parsing import default_grant_end
from coordinator.policy.grants.managed import ManagedServers
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.call_text import CallText, text_for_allow_rules
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, DecisionRule
from coordinator.policy.suggestions.generalizing import (
    CallTerms,
    append_missing_items,
    generalize_call,
    reason_against_permanent_allow,
)
from coordinator.policy.suggestions.history import (
    BIGGEST_ID,
    AnsweredRequest,
    CallHistoryReader,
    RecordedCall,
    WalkTimeLimit,
    iterate_call_history_within_budget,
)
from coordinator.policy.suggestions.rule_trials import RecordedCallJudge, processed_share_of_id_range

GOAL = 0.95  # of the calls that nobody refused
FEWEST = 2  # calls that a suggestion would have let run
MOST_GROUPS = 3_000
MOST_TRIED = 60  # suggestions
MOST_AGENTS = 40  # for which a rule is suggested, each by name
MOST_DECIDED_BY = 10  # rules and grants that are named as deciding a suggestion's calls now
MOST_REFUSED = 10_000  # refused calls that are remembered one by one
MOST_COMPARED = 2_000  # of those, and of the requests that people denied, before anything is suggested
LONGEST_EXACT = 300  # characters of a call that is suggested word for word
MASK = "[masked:"  # how a secret appears in what is recorded: no call will ever look like this
MOST_SUGGESTED = 25
MOST_EXAMPLES = 5  # of calls that a suggestion would allow, and as many of the nearest that it would not
# Tools that only plan, look things up or hand on work whose own calls are judged.
HARMLESS_TOOLS = frozenset(
    """
    TodoWrite TodoRead todowrite todoread todo_write update_plan write_todos Task task Agent TaskOutput BashOutput
    ToolSearch WebSearch websearch web_search google_web_search
    """.split()  # noqa: SIM905 - one word of a list a word of the text
)
LEARN, PROVE, ANSWERS, DONE = "learn", "prove", "answers", "done"
_NAMES_ONE = re.compile(r"[^|,*?\[\]\s]+")  # a tool that a rule can name by itself
WORD_FOR_WORD = "Nothing else: only exactly this text."
WHATEVER_INPUT = "Every call of this tool, whatever its input."
IN_TERMS = (
    "The same commands in another order, with other files there, other tests and other numbers. No other program, "
    "sub-command or option, no other folder, no file with credentials, and nothing that is written elsewhere."
)
ONE_TOOL = "Every call of this tool by this agent, whatever its input."
CLOSES = (
    " It also closes something: once there is a grant, calls of MCP servers that are not registered here are "
    "denied."
)


@dataclass(slots=True)
class SimilarCallGroup:
    """Calls of one kind: how many, the terms that cover them, who made them, by which programs."""

    calls: int = 0
    terms: CallTerms = field(default_factory=CallTerms)
    agents: dict[str, int] = field(default_factory=dict)
    programs: dict[str, int] = field(default_factory=dict)

    @classmethod
    def deserialize_call_group(cls, values: Any) -> SimilarCallGroup:
        calls, terms, agents, programs = values
        return cls(calls, CallTerms.deserialize_call_terms(terms), agents, programs)

    def serialize_call_group_as_list(self) -> list[Any]:
        return [self.calls, self.terms.serialize_call_terms_as_list(), self.agents, self.programs]

    @property
    def common_program_or_empty(self) -> str:
        """The agent program that made all of the calls; "" where several did, or nobody knows."""
        return next(iter(self.programs)) if len(self.programs) == 1 else ""

    def add_call_to_group(self, call: RecordedCall, terms: CallTerms) -> None:
        self.calls += 1
        self.terms.extend_with_call_terms(terms)
        if call.agent in self.agents or len(self.agents) < MOST_AGENTS:
            self.agents[call.agent] = self.agents.get(call.agent, 0) + 1
        self.programs[call.program] = self.programs.get(call.program, 0) + 1


@dataclass(slots=True)
class RuleSuggestion:
    """A rule, or a grant (`slot`: agent, server, tool), and its evidence.

    A rule is for the `program` it is all of. It has a `pattern`, or terms (`runs`, `touches`, `reaches`).

    `calls` of the history would have run unasked by it: `closed` of them are denied by a server's default
    policy now, and `approval_needed` are asked about. People `approved` and `refused` so many calls that it fits.
    `loosely` says what else it would have allowed. `examples` are events of calls that it would have allowed, and
    `nearest` of the most alike that it would not, with how alike they are; each by a digest of the call's text. `key`
    names what it is about.
    """

    tool: str
    pattern: str = ""
    runs: str = ""
    touches: str = ""
    reaches: str = ""
    agents: list[str] | None = None
    program: str = ""
    slot: list[str] | None = None
    loosely: str = ""
    calls: int = 0
    closed: int = 0
    approval_needed: int = 0
    approved: int = 0
    refused: int = 0
    examples: dict[str, int] = field(default_factory=dict)
    nearest: dict[str, list[float]] = field(default_factory=dict)
    callers: dict[str, int] = field(default_factory=dict)
    now: dict[str, int] = field(default_factory=dict)
    newest_us: int = 0
    oldest_us: int = 0
    key: str = ""

    @property
    def suggestion_digest(self) -> str:
        """A digest of what the suggestion is about: dismissing it dismisses every later one about the same."""
        return blake2b(self.key.encode("utf-8", "replace"), digest_size=16).hexdigest()

    def serialize_rule_suggestion_as_list(self) -> list[Any]:
        return [getattr(self, name) for name in RuleSuggestion.__slots__]

    @property
    def is_grant(self) -> bool:
        return self.slot is not None

    def suggested_rule(self, number: int, reason: str = "") -> DecisionRule:
        agents = None if self.agents is None else tuple(self.agents)
        return DecisionRule(
            number,
            self.tool,
            ALLOW,
            self.pattern,
            agents,
            reason,
            program=self.program,
            runs=self.runs,
            touches=self.touches,
            reaches=self.reaches,
        )

    def require_suggested_grant_edit(
        self, now: datetime, reason: str | None = None, seen_version: str | None = None
    ) -> GrantEdit:
        """Return the edit that makes the grant. Only for one."""
        assert self.slot is not None
        agent, server, tool = self.slot
        return GrantEdit(agent, server, tool, GRANTED, default_grant_end(now), reason, seen_version)

    def suggestion_matches_tool_call(self, tool: str, about: str, managed: ManagedServers) -> bool:
        """Say whether it matches this call, regardless of the agent and its program."""
        if self.slot is not None:
            called_tool = self.slot[1], name_in_calls(self.slot[2])
            return called_tool in managed.find_server_tools_of_call(tool)
        return replace(self.suggested_rule(0), agents=None, program="").matches_call(
            tool, about, None, server=server_call_prefix_or_empty(tool, managed.servers)
        )

    def suggestion_applies_to_caller(self, agent: str, program: str) -> bool:
        if self.slot is not None:
            return self.slot[0] == agent
        return (self.agents is None or agent in self.agents) and self.program in {"", program}

    @property
    def is_worth_suggesting(self) -> bool:
        """Say whether it may be suggested: it helps, nobody refused, somebody approved what is denied or asked now."""
        return (
            self.calls >= FEWEST
            and not self.refused
            and (self.approved > 0 or not (self.closed or self.approval_needed))
        )

    def record_call_allowed_by_suggestion(self, call: RecordedCall, decision: str, by: str) -> None:
        """Take in a call that it would have let run."""
        self.calls += 1
        self.callers[call.agent] = self.callers.get(call.agent, 0) + 1
        name = f"{decision} {by}".strip()
        if name in self.now or len(self.now) < MOST_DECIDED_BY:
            self.now[name] = self.now.get(name, 0) + 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.setdefault(digest_call_text(call), call.event_id)
        self.newest_us = max(self.newest_us, call.at_us)
        self.oldest_us = min(self.oldest_us or call.at_us, call.at_us)

    def add_similar_unallowed_call(self, call: RecordedCall, nearness: float) -> None:
        """Keep a call that it would not have allowed, if it is one of those that are most like what it allows."""
        digest = digest_call_text(call)
        if digest in self.nearest:
            return
        self.nearest[digest] = [nearness, call.event_id]
        if len(self.nearest) > MOST_EXAMPLES:
            del self.nearest[min(self.nearest, key=lambda name: self.nearest[name][0])]

    def similarity_of_call_to_suggestion(self, call: RecordedCall) -> float:
        """Return how much a call is like those that it allows, from 0: the same tool, folder, programs, hosts."""
        if not tool_rules.matches_tool_name(self.tool, call.tool):
            return 0.0
        description = call_description_or_none(call)
        if description is None:
            return 0.0
        programs = {command.program for command in description.commands if command.program}
        allowed_commands = {
            program.rpartition("/")[2]
            for line in self.runs.splitlines()
            for program in next(word for word in line.split() if "=" not in word).split("|")
        }
        shared = (
            len(programs & allowed_commands) / len(programs | allowed_commands)
            if programs | allowed_commands
            else 1.0
        )
        if (programs or allowed_commands) and not shared:
            return 0.0
        hosts = {address.host for address in description.addresses if address.host}
        is_same_site = any(
            host.split(".")[-2:] == line.split(".")[-2:]
            for host in hosts
            for line in self.reaches.splitlines()
        )
        is_here = f"in {replace_home_with_tilde(description.folder or '')}" in self.touches.splitlines()
        return 0.1 + 2 * shared + is_here + is_same_site


def build_rule_suggestion_with_examples(
    rule: DecisionRule, call: RecordedCall, reader: CallHistoryReader, budget: WalkTimeLimit
) -> RuleSuggestion:
    """Return a rule for calls like one, with recorded calls that it allows and the nearest that it does not.

    The newest recorded calls are looked at, as far as the budget goes.
    """
    compared = build_comparison_suggestion(rule, call)
    record_history_examples_in_suggestion(compared, rule, reader, budget)
    return compared


def build_preset_suggestion_with_examples(
    rule: DecisionRule, reader: CallHistoryReader, budget: WalkTimeLimit
) -> RuleSuggestion:
    """Return a rule with recorded calls that it allows, of different programs, and the nearest that it does not."""
    compared = RuleSuggestion(rule.tool, runs=rule.runs, touches=rule.touches, reaches=rule.reaches)
    varied = record_history_examples_in_suggestion(compared, rule, reader, budget)
    examples = {digest_call_text(call): call.event_id for call in varied} | compared.examples
    compared.examples = dict(list(examples.items())[:MOST_EXAMPLES])
    return compared


def build_comparison_suggestion(rule: DecisionRule, call: RecordedCall) -> RuleSuggestion:
    """Return what other calls are compared with: the programs and the folder of one call."""
    description = call_description_or_none(call)
    programs = (
        {command.program for command in description.commands if command.program} if description else set()
    )
    folder = replace_home_with_tilde(description.folder or "") if description else ""
    return RuleSuggestion(
        rule.tool,
        runs="\n".join(sorted(filter(None, programs))),
        touches=f"in {folder}",
        reaches=rule.reaches,
    )


def record_history_examples_in_suggestion(
    compared: RuleSuggestion, rule: DecisionRule, reader: CallHistoryReader, budget: WalkTimeLimit
) -> list[RecordedCall]:
    """Note recorded calls in what they are compared with; return one that the rule allows of each kind of call."""
    varied: dict[tuple[str, ...], RecordedCall] = {}
    for step in iterate_call_history_within_budget(reader, BIGGEST_ID, budget):
        for recorded in step.calls:
            if rule.matches_call(recorded.tool, recorded.about, recorded.agent or None, recorded.program):
                compared.record_call_allowed_by_suggestion(recorded, "", "")
                description = call_description_or_none(recorded)
                commands = description.commands if description else ()
                varied.setdefault((recorded.tool, *(command.program or "" for command in commands)), recorded)
            elif nearness := compared.similarity_of_call_to_suggestion(recorded):
                compared.add_similar_unallowed_call(recorded, nearness)
    return list(varied.values())


def digest_call_text(call: RecordedCall) -> str:
    return blake2b(call.about.encode("utf-8", "replace"), digest_size=6).hexdigest()


def call_description_or_none(call: RecordedCall) -> CallDescription | None:
    """Return what a recorded call does; None where only a text of it is known."""
    return call.about.describe_call(call.tool) if isinstance(call.about, CallText) else None


def nearest_event_ids_outside_suggestion(suggestion: RuleSuggestion) -> list[int]:
    """Return the events of the calls that are most like what is suggested and not allowed by it, the nearest first."""
    return [int(event) for _, event in sorted(suggestion.nearest.values(), reverse=True)]


def insert_rules_after_last_deny(
    saved: Sequence[DecisionRule], added: Sequence[DecisionRule]
) -> list[DecisionRule]:
    """Return the saved rules with some that allow: behind the last that denies, so that no denial is weakened."""
    behind = find_position_after_last_deny(saved)
    rules = [*saved[:behind], *added, *saved[behind:]]
    return [replace(rule, number=number) for number, rule in enumerate(rules, 1)]


def find_position_after_last_deny(saved: Sequence[DecisionRule]) -> int:
    """Return how many of the saved rules come before the position where one that allows may be added."""
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
    groups: dict[str, SimilarCallGroup] = field(default_factory=dict)
    tried: list[RuleSuggestion] = field(default_factory=list)

    @classmethod
    def start_suggestion_search_over_history(cls, reader: CallHistoryReader) -> SuggestionSearch:
        first, last = reader.event_id_range()
        return cls(first, last, last + 1)

    @classmethod
    def deserialize_suggestion_search(cls, values: Any) -> SuggestionSearch:
        """Return the search that `as_values` described. Raises ValueError or TypeError for anything else."""
        *plain, groups, tried = values
        search = cls(*plain)
        search.groups = {
            key: SimilarCallGroup.deserialize_call_group(suggestion_values)
            for key, suggestion_values in groups.items()
        }
        search.tried = [RuleSuggestion(*one) for one in tried]
        return search

    def serialize_suggestion_search_as_list(self) -> list[Any]:
        """Return the search as JSON can carry it."""
        plain = [getattr(self, name) for name in SuggestionSearch.__slots__[:-2]]
        groups = {key: group.serialize_call_group_as_list() for key, group in self.groups.items()}
        return [*plain, groups, [suggestion.serialize_rule_suggestion_as_list() for suggestion in self.tried]]

    @property
    def is_done(self) -> bool:
        return self.phase == DONE

    @property
    def suggestion_search_progress_fraction(self) -> float:
        """How much of the work is done, from 0 to 1; the answers are few compared to the calls."""
        walked = processed_share_of_id_range(self.first, self.last, self.before)
        return {LEARN: 0.0, PROVE: 0.5, ANSWERS: 0.97, DONE: 1.0}[self.phase] + (
            walked / 2 if self.phase == LEARN else walked * 0.47 if self.phase == PROVE else 0.0
        )

    # --- walking ------------------------------------------------------------------------------------------

    def continue_suggestion_search(
        self, reader: CallHistoryReader, saved: Sequence[DecisionRule], now: datetime, budget: WalkTimeLimit
    ) -> None:
        """Search on from where it stopped until the budget is spent."""
        judge = RecordedCallJudge(saved, now)
        while not self.is_done:
            if self.phase == LEARN:
                self.continue_grouping_recorded_calls(reader, judge, budget)
            elif self.phase == PROVE:
                self.try_suggestions_on_calls(reader, judge, saved, now, budget)
            else:
                self.continue_recording_answers(reader, judge.managed, budget)
            if budget.is_walk_time_used_up:
                return

    def continue_grouping_recorded_calls(
        self, reader: CallHistoryReader, judge: RecordedCallJudge, budget: WalkTimeLimit
    ) -> None:
        agent_rows, refused = set(Agent.objects.values_list("pk", flat=True)), set(self.refused)
        for step in iterate_call_history_within_budget(reader, self.before, budget):
            refused_call_ids = reader.find_refused_call_ids(
                step.before, step.floor
            )  # newest first: a result comes before its call
            self.record_refused_call_ids(reader, refused_call_ids)
            refused.update(refused_call_ids)
            judge.cache_grant_verdicts_for_calls(step.calls)
            for call in step.calls:
                self.sort_call_into_group(call, judge, agent_rows, was_refused=call.event_id in refused)
            self.before = step.floor
        if len(self.groups) > MOST_GROUPS:
            self.drop_rare_call_groups()
        if not self.before:
            self.tried = build_suggestions_from_call_groups(
                self.groups, self.load_refused_tools_and_texts(reader), judge
            )
            self.groups = {}
            self.phase, self.before = PROVE, self.last + 1

    def sort_call_into_group(
        self, call: RecordedCall, judge: RecordedCallJudge, known_names: set[str], *, was_refused: bool
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
        is_registered = call.agent in known_names
        if not is_registered and (not call.program or judge.managed.find_server_tools_of_call(call.tool)):
            self.strangers += 1  # nothing that a rule or a grant could name is known of the caller
            return
        key, terms = call_group_key_and_terms(call, judge, is_registered=is_registered)
        if key is None:
            self.varied += 1
            return
        self.groups.setdefault(key, SimilarCallGroup()).add_call_to_group(call, terms)

    def drop_rare_call_groups(self) -> None:
        common_groups = sorted(self.groups.items(), key=lambda item: item[1].calls, reverse=True)
        self.varied += sum(group.calls for _, group in common_groups[MOST_GROUPS // 2 :])
        self.groups = dict(common_groups[: MOST_GROUPS // 2])

    def record_refused_call_ids(self, reader: CallHistoryReader, ids: Sequence[int]) -> None:
        free_count = MOST_REFUSED - len(self.refused)
        self.refused.extend(ids[: max(free_count, 0)])
        if beyond := ids[max(free_count, 0) :]:
            self.overlooked = sorted(
                {*self.overlooked, *(call.tool for call in reader.load_recorded_calls_of_ids(beyond))}
            )

    def load_refused_tools_and_texts(self, reader: CallHistoryReader) -> list[tuple[str, str]]:
        """Return tool and text of calls that people refused, as far as they are compared beforehand."""
        refused_calls = [
            (call.tool, call.about)
            for call in reader.load_recorded_calls_of_ids(self.refused[:MOST_COMPARED])
        ]
        newest = reader.read_answered_requests(BIGGEST_ID, reader.request_batch_lower_id(BIGGEST_ID))
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
        """Count on which calls the suggestions would have made a difference, by the rules of the endpoint."""
        suggested = [suggestion for suggestion in self.tried if not suggestion.is_grant]
        together = insert_rules_after_last_deny(saved, [one.suggested_rule(0) for one in suggested])
        by_rule = {
            f"rule {place}": one
            for place, one in enumerate(suggested, find_position_after_last_deny(saved) + 1)
        }
        by_slot = {
            tuple(suggestion.slot): suggestion for suggestion in self.tried if suggestion.slot is not None
        }
        then = RecordedCallJudge(
            together,
            now,
            [
                suggestion.require_suggested_grant_edit(now)
                for suggestion in self.tried
                if suggestion.is_grant
            ],
        )
        refused, compared = set(self.refused), set[str]()
        for step in iterate_call_history_within_budget(reader, self.before, budget):
            judge.cache_grant_verdicts_for_calls(step.calls)
            then.cache_grant_verdicts_for_calls(step.calls)
            for call in step.calls:
                if call.event_id in refused:
                    self.record_refusal_for_suggestions(call.tool, call.about, judge.managed)
                    self.refused_calls += judge.decide_recorded_call(call).decision not in {ALLOW, DENY}
                    continue
                credited = credit_allowing_suggestion(call, judge, then, by_rule, by_slot)
                if (digest := digest_call_text(call)) not in compared:
                    compared.add(digest)
                    add_call_to_similar_suggestions(suggested, call, credited)
            self.before = step.floor
        if not self.before:
            self.phase, self.before = ANSWERS, BIGGEST_ID

    def record_refusal_for_suggestions(self, tool: str, about: str, managed: ManagedServers) -> None:
        for suggestion in self.tried:
            suggestion.refused += suggestion.suggestion_matches_tool_call(tool, about, managed)

    def continue_recording_answers(
        self, reader: CallHistoryReader, managed: ManagedServers, budget: WalkTimeLimit
    ) -> None:
        """Count what people said of calls that the suggestions fit."""
        while True:
            floor = reader.request_batch_lower_id(self.before)
            for answer in reader.read_answered_requests(self.before, floor):
                self.record_answer_for_suggestions(answer, managed)
            self.before = floor
            if not floor:
                self.retain_best_suggestions()
                return
            if budget.is_walk_time_used_up:
                return

    def record_answer_for_suggestions(self, answer: AnsweredRequest, managed: ManagedServers) -> None:
        if not answer.allowed:
            self.record_refusal_for_suggestions(answer.tool, answer.about, managed)
            return
        for suggestion in self.tried:
            suggestion.approved += suggestion.suggestion_applies_to_caller(
                answer.agent, answer.program
            ) and suggestion.suggestion_matches_tool_call(answer.tool, answer.about, managed)

    def retain_best_suggestions(self) -> None:
        """Keep as few of what is sound as reach the goal, the most useful first."""
        sound = [
            suggestion
            for suggestion in self.tried
            if suggestion.is_worth_suggesting and suggestion.tool not in self.overlooked
        ]
        sound.sort(key=lambda one: (-one.calls, one.tool, one.pattern, one.runs))
        self.openable = sum(one.closed for one in sound)
        chosen: list[RuleSuggestion] = []
        while sound and len(chosen) < MOST_SUGGESTED and self.share_of_calls_suggestions_allow(chosen) < GOAL:
            chosen.append(sound.pop(0))
        self.tried, self.phase = chosen, DONE

    # --- what came of it ----------------------------------------------------------------------------------

    @property
    def count_calls_that_may_be_allowed(self) -> int:
        """How many calls are to run unasked as far as possible: all but those that policy or a person refuses."""
        return self.calls - self.denied - self.refused_calls + self.openable

    def count_calls_allowed_by_suggestions(self, chosen: Sequence[RuleSuggestion]) -> int:
        """How many of them would have run unasked with these."""
        return self.allowed + sum(suggestion.calls for suggestion in chosen)

    def share_of_calls_suggestions_allow(self, chosen: Sequence[RuleSuggestion]) -> float:
        """Which share of them that is, from 0 to 1."""
        return (
            self.count_calls_allowed_by_suggestions(chosen) / self.count_calls_that_may_be_allowed
            if self.count_calls_that_may_be_allowed
            else 1.0
        )


def call_group_key_and_terms(
    call: RecordedCall, judge: RecordedCallJudge, *, is_registered: bool
) -> tuple[str | None, CallTerms]:
    """Return the name of the group that a call belongs to, None for a call that nothing is learnt from."""
    server_tools = judge.server_tools_to_grant(call.tool)
    if server_tools:
        server, tool = server_tools[0]
        return join_group_key_parts("grant", call.tool, call.agent, server, tool), CallTerms()
    scope = "" if is_registered else call.program
    if call.tool in HARMLESS_TOOLS:
        return join_group_key_parts("any", call.tool, scope), CallTerms()
    description = call_description_or_none(call)
    if description is None or not _NAMES_ONE.fullmatch(call.tool):
        return None, CallTerms()
    generalized = generalize_call(call.tool, description)
    if generalized is not None:
        return join_group_key_parts("terms", call.tool, scope, generalized.key), generalized.terms
    if can_suggest_exact_call(call, description):
        return join_group_key_parts("exact", call.tool, scope, text_for_allow_rules(call.about)), CallTerms()
    return None, CallTerms()


def can_suggest_exact_call(call: RecordedCall, description: CallDescription) -> bool:
    """Say whether a call may be suggested word for word: one of a tool of which nobody knows what it does."""
    text = text_for_allow_rules(call.about)
    is_short = len(text) <= LONGEST_EXACT and "\n" not in text and MASK not in text
    return call.tool not in TOOLS and is_short and not reason_against_permanent_allow(description)


def join_group_key_parts(*parts: str) -> str:
    return "\x1f".join(part.replace("\x1f", " ") for part in parts)


def build_suggestions_from_call_groups(
    groups: dict[str, SimilarCallGroup], refusals: Iterable[tuple[str, str]], judge: RecordedCallJudge
) -> list[RuleSuggestion]:
    """Return what follows from the largest groups, without what fits a refused call."""
    refused: dict[str, list[str]] = {}
    dismissed = set(DismissedSuggestion.objects.values_list("digest", flat=True))
    for tool, about in refusals:
        refused.setdefault(tool, []).append(about)
    suggestions: list[RuleSuggestion] = []
    for key, group in sorted(groups.items(), key=lambda item: (-item[1].calls, item[0])):
        if group.calls < FEWEST or len(suggestions) >= MOST_TRIED:
            break
        suggestion = build_group_suggestion(key, group, judge.managed.strict)
        if suggestion is None or suggestion.suggestion_digest in dismissed:
            continue
        for tool, texts in refused.items():
            for about in texts:
                if suggestion is not None and suggestion.suggestion_matches_tool_call(
                    tool, about, judge.managed
                ):
                    suggestion = rebuild_suggestion_without_call(key, group, suggestion, tool, about)
        if suggestion is not None and is_suggested_rule_valid(suggestion):
            suggestions.append(suggestion)
    return suggestions


def rebuild_suggestion_without_call(
    key: str, group: SimilarCallGroup, suggestion: RuleSuggestion, tool: str, about: str
) -> RuleSuggestion | None:
    """Return a suggestion without the commands or files of a call that a person refused; None where that fails."""
    if not isinstance(about, CallText):
        return None
    description = about.describe_call(tool)
    if suggestion.runs:
        generalized = generalize_call(tool, description)
        for words in generalized.terms.commands if generalized is not None else ():
            group.terms.commands.pop(words, None)
        if generalized is None or not group.terms.commands:
            return None
    else:
        refused_paths = [replace_home_with_tilde(use.path) for use in description.paths if use.path]
        append_missing_items(group.terms.touches, [f"!{path}" for path in refused_paths])
    left = build_group_suggestion(key, group, is_strict=True)
    if left is None or replace(left.suggested_rule(0), agents=None, program="").matches_call(
        tool, about, None
    ):
        return None
    return left


def is_suggested_rule_valid(suggestion: RuleSuggestion) -> bool:
    try:
        tool_rules.validate_tool_rule(suggestion.suggested_rule(1))
    except UnprocessableRequest:
        return False
    return True


def build_group_suggestion(key: str, group: SimilarCallGroup, is_strict: bool) -> RuleSuggestion | None:
    """Return what a group suggests; None where its calls are too varied.

    `is_strict`: unregistered servers are denied already (policy.grants.managed).
    """
    kind, tool, *rest = key.split("\x1f")
    if kind == "grant":
        agent, server, name = rest
        return RuleSuggestion(
            tool, slot=[agent, server, name], loosely=ONE_TOOL if is_strict else ONE_TOOL + CLOSES, key=key
        )
    agents = None if rest[0] else sorted(group.agents)
    program = rest[0] or group.common_program_or_empty
    if kind == "any":
        return RuleSuggestion(tool, agents=agents, program=program, loosely=WHATEVER_INPUT, key=key)
    if kind == "exact":
        return RuleSuggestion(
            tool, escape_pattern_text(rest[1]), agents=agents, program=program, loosely=WORD_FOR_WORD, key=key
        )
    if group.terms.are_call_terms_too_varied:
        return None
    return RuleSuggestion(
        tool,
        runs="\n".join(group.terms.format_command_term_lines()),
        touches="\n".join(group.terms.format_path_term_lines()),
        reaches="\n".join(sorted(group.terms.reaches)),
        agents=agents,
        program=program,
        loosely=IN_TERMS,
        key=key,
    )


def escape_pattern_text(text: str) -> str:
    """Return a pattern that fits exactly this text."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text).replace("\n", r"\n")


def add_call_to_similar_suggestions(
    suggested: Sequence[RuleSuggestion], call: RecordedCall, credited: RuleSuggestion | None
) -> None:
    """Let each suggestion that does not allow a call keep it, if it is like those that it allows."""
    for suggestion in suggested:
        if suggestion is credited or not (nearness := suggestion.similarity_of_call_to_suggestion(call)):
            continue
        is_full = len(suggestion.nearest) >= MOST_EXAMPLES
        if is_full and nearness <= min(value for value, _ in suggestion.nearest.values()):
            continue
        rule = replace(suggestion.suggested_rule(0), agents=None, program="")
        if not rule.matches_call(call.tool, call.about, None):
            suggestion.add_similar_unallowed_call(call, nearness)


def credit_allowing_suggestion(
    call: RecordedCall,
    judge: RecordedCallJudge,
    then: RecordedCallJudge,
    by_rule: dict[str, RuleSuggestion],
    by_slot: dict[tuple[str, ...], RuleSuggestion],
) -> RuleSuggestion | None:
    """Count a call for the suggestion that would have let it run, and return it."""
    before = judge.decide_recorded_call(call)
    if before.decision == ALLOW:
        return None
    after = then.decide_recorded_call(call)
    if after.decision != ALLOW:
        return None
    suggestion = by_rule.get(after.by)
    verdict = then.cached_grant_verdict(call)
    if suggestion is None and verdict is not None and verdict.grant is not None:
        grant = verdict.grant
        suggestion = by_slot.get((grant.agent_id, grant.server_id, grant.tool_name or ""))
    if suggestion is not None:
        suggestion.closed += before.decision == DENY
        suggestion.approval_needed += before.decision == ASK
        suggestion.record_call_allowed_by_suggestion(call, before.decision, before.by)
    return suggestion


def find_refused_request_matching_suggestion(
    suggestion: RuleSuggestion, reader: CallHistoryReader, managed: ManagedServers
) -> AnsweredRequest | None:
    """Return a request of a call that the suggestion fits and a person refused, looking through all of them."""
    before = BIGGEST_ID
    while before:
        floor = reader.request_batch_lower_id(before)
        for answer in reader.read_answered_requests(before, floor):
            if not answer.allowed and suggestion.suggestion_matches_tool_call(
                answer.tool, answer.about, managed
            ):
                return answer
        before = floor
    return None
