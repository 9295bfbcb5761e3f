"""Trials of rules and grants on all recorded calls: how many would be denied, asked, allowed, and by what.

A trial runs in pieces (policy.suggestions.history). Between them the caller carries its state as plain values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from coordinator.identity.actors import Actor
from coordinator.mcp.servers.calls import load_listed_names_by_called_tool
from coordinator.mcp.servers.names import PREFIX, ServerTool
from coordinator.policy.grants import access, managed
from coordinator.policy.grants.access import Verdict
from coordinator.policy.grants.edits import GrantEdit, build_policy_after_edits
from coordinator.policy.rules import history_queries, tool_rules
from coordinator.policy.rules.call_history import TimedCall
from coordinator.policy.rules.call_text import CallText
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, OBSERVE, DecisionRule, Ruling
from coordinator.policy.suggestions.history import (
    BIGGEST_ID,
    CallHistoryReader,
    RecordedCall,
    WalkTimeLimit,
    iterate_call_history_within_budget,
)

DECISIONS = (DENY, ASK, ALLOW, OBSERVE)
CHANGED = len(DECISIONS)  # the place of "answered differently" behind the decisions
NOTHING = "nothing"  # what decides where no rule fits and no grant speaks
MOST_NAMES = 400  # of each kind that are counted by themselves
OTHERS = "others"


class RecordedCallJudge:
    """What some rules and grants say of recorded calls, as the endpoint would say it now. Memoises what repeats."""

    def __init__(self, rules: Sequence[DecisionRule], now: datetime, edits: Sequence[GrantEdit] = ()) -> None:
        self._rules = rules
        self._has_history_rules = tool_rules.has_history_rules(rules)
        self._now = now
        self._edits = edits
        self.managed = managed.load_managed_servers(now)
        if edits and self.managed.servers:
            self.managed = replace(self.managed, strict=True)
        self._by_tool: dict[str, list[DecisionRule]] = {}
        self._verdicts: dict[tuple[str, str], Verdict | None] = {}
        self._listed_names: dict[ServerTool, str] | None = None

    def cache_grant_verdicts_for_calls(self, calls: Iterable[RecordedCall]) -> None:
        """Read the grants for these calls in one query."""
        pairs = {(call.tool, call.agent) for call in calls if call.tool.startswith(PREFIX)}
        unknown = pairs - self._verdicts.keys()
        if not unknown:
            return
        agents = {agent for _, agent in unknown}
        servers = {
            server for tool, _ in unknown for server, _ in self.managed.find_server_tools_of_call(tool)
        }
        policy = access.load_policy_for_agents(agents, servers, self._now)
        if self._edits:
            matching_edits = [
                edit for edit in self._edits if edit.agent_id in agents and edit.server_id in servers
            ]
            policy = build_policy_after_edits(
                policy, matching_edits, actor=Actor("system", "trial"), now=self._now
            )
        for tool, agent in unknown:
            self._verdicts[tool, agent] = self.managed.decide_call_by_grants(policy, tool, agent, self._now)

    def decide_recorded_call(self, call: RecordedCall) -> Ruling:
        """Return what would be decided about the call, which `learn` has seen."""
        return tool_rules.stricter_of_ruling_and_grant_verdict(
            self.decide_call_by_rules(
                call.tool, self.attach_history_to_call_text(call), call.agent, call.program
            ),
            self.cached_grant_verdict(call),
        )

    def attach_history_to_call_text(self, call: RecordedCall) -> str:
        """Return the call's text with what rules ask about the time before it, as it was recorded."""
        about = call.about
        if not self._has_history_rules or not isinstance(about, CallText):
            return about
        needs = tool_rules.find_history_needs_of_rules(
            self._rules, call.tool, about, call.agent or None, call.program, servers=self.managed.servers
        )
        if not needs:
            return about
        moment = TimedCall(
            call.session_id,
            call.tool,
            about.tool_input,
            call.called_at,
            event_id=call.event_id,
            folder=about.folder,
        )
        return about.copy_with_call_history(history_queries.evaluate_history_conditions(needs, moment))

    def decide_call_by_rules(self, tool: str, about: str, agent: str, program: str = "") -> Ruling:
        """Return what the rules alone say."""
        rules = self._by_tool.get(tool)
        if rules is None:
            rules = self._by_tool[tool] = [rule for rule in self._rules if rule.rule_applies_to_tool(tool)]
        return tool_rules.tool_ruling_or_no_opinion(
            rules, tool, about, agent or None, program, servers=self.managed.servers
        )

    def server_tools_to_grant(self, tool: str) -> list[ServerTool]:
        """Return the servers and tools that a call means, by the names under which the servers list the tools."""
        if self._listed_names is None:
            self._listed_names = load_listed_names_by_called_tool(self.managed.servers)
        called_tools = self.managed.find_server_tools_of_call(tool)
        return [(called[0], self._listed_names.get(called, called[1])) for called in called_tools]

    def cached_grant_verdict(self, call: RecordedCall) -> Verdict | None:
        """Return what the grants alone say; None where they say nothing."""
        return self._verdicts.get((call.tool, call.agent))


@dataclass(slots=True)
class DecisionCounts:
    """How many calls got which decision: in all, and by what decided, by agent and by week.

    Each row counts by DECISIONS and, last, the calls that are answered differently than now.
    """

    calls: int = 0
    now: list[int] = field(default_factory=lambda: [0] * len(DECISIONS))
    then: list[int] = field(default_factory=lambda: [0] * (CHANGED + 1))
    by: dict[str, list[int]] = field(default_factory=dict)
    agents: dict[str, list[int]] = field(default_factory=dict)
    weeks: dict[str, list[int]] = field(default_factory=dict)

    def add_call_to_decision_counts(self, call: RecordedCall, before: Ruling, after: Ruling) -> None:
        """Count one call."""
        index = DECISIONS.index(after.decision)
        changed = before.decision != after.decision
        self.calls += 1
        self.now[DECISIONS.index(before.decision)] += 1
        rows = (
            self.then,
            get_or_create_decision_count_row(self.by, after.by or NOTHING),
            get_or_create_decision_count_row(self.agents, call.agent),
            get_or_create_decision_count_row(self.weeks, call.week_start),
        )
        for row in rows:
            row[index] += 1
            row[CHANGED] += changed

    def serialize_decision_counts_as_list(self) -> list[Any]:
        return [self.calls, self.now, self.then, self.by, self.agents, self.weeks]


def get_or_create_decision_count_row(rows: dict[str, list[int]], name: str) -> list[int]:
    if name not in rows and len(rows) >= MOST_NAMES:
        name = OTHERS
    return rows.setdefault(name, [0] * (CHANGED + 1))


@dataclass(slots=True)
class RuleTrial:
    """How far a trial has come: before which event it goes on (0: it is done), and what was counted so far.

    `first` and `last` are the ends of the history when it began, `oldest_us` when the oldest call counted was made.
    """

    first: int
    last: int
    before: int
    tally: DecisionCounts = field(default_factory=DecisionCounts)
    oldest_us: int = 0

    @classmethod
    def start_rule_trial_over_history(cls, reader: CallHistoryReader) -> RuleTrial:
        first, last = reader.event_id_range()
        return cls(first, last, last + 1 if last else 0)

    @classmethod
    def deserialize_rule_trial(cls, values: Any) -> RuleTrial:
        """Return the trial that `as_values` described. Raises ValueError or TypeError for anything else."""
        first, last, before, oldest, counts = values
        return cls(first, last, before, DecisionCounts(*counts), oldest)

    def serialize_rule_trial_as_list(self) -> list[Any]:
        """Return the trial as JSON can carry it."""
        return [
            self.first,
            self.last,
            self.before,
            self.oldest_us,
            self.tally.serialize_decision_counts_as_list(),
        ]

    @property
    def is_done(self) -> bool:
        return self.before == 0

    @property
    def rule_trial_progress_fraction(self) -> float:
        """How much of the history has been walked through, from 0 to 1."""
        return processed_share_of_id_range(self.first, self.last, self.before)

    def continue_rule_trial(
        self,
        reader: CallHistoryReader,
        now: RecordedCallJudge,
        then: RecordedCallJudge,
        budget: WalkTimeLimit,
    ) -> None:
        """Count on from where the trial stopped until the budget is spent."""
        if self.is_done:
            return
        for step in iterate_call_history_within_budget(reader, self.before, budget):
            now.cache_grant_verdicts_for_calls(step.calls)
            then.cache_grant_verdicts_for_calls(step.calls)
            for call in step.calls:
                ruling = now.decide_recorded_call(call)
                self.tally.add_call_to_decision_counts(
                    call, ruling, ruling if now is then else then.decide_recorded_call(call)
                )
            if step.calls:
                self.oldest_us = min(call.at_us for call in step.calls)
            self.before = step.floor


def processed_share_of_id_range(first: int, last: int, before: int) -> float:
    """Return how much of the ids from `last` down to `first` is behind a walk that has come to `before`."""
    return 1.0 if before == 0 or last <= first else min(1.0, (last + 1 - before) / (last + 1 - first))


@dataclass(frozen=True, slots=True)
class TrialCallFilter:
    """Which calls of a trial are to be listed; "" and False do not narrow it."""

    decision: str = ""
    by: str = ""
    agent: str | None = None
    week: str = ""
    changed: bool = False

    def is_trial_call_matching_filter(self, call: RecordedCall, before: Ruling, after: Ruling) -> bool:
        return (
            (not self.decision or after.decision == self.decision)
            and (not self.by or (after.by or NOTHING) == self.by)
            and (self.agent is None or call.agent == self.agent)
            and (not self.week or call.week_start == self.week)
            and (not self.changed or before.decision != after.decision)
        )


@dataclass(frozen=True, slots=True)
class JudgedCall:
    """A recorded call with what the rules and grants of now say of it, and what those on trial would."""

    call: RecordedCall
    before: Ruling
    after: Ruling

    @property
    def is_decision_changed(self) -> bool:
        return self.before.decision != self.after.decision

    @property
    def matched_parts(self) -> tuple[str, ...]:
        """The parts of the call for which a rule that denies or asks matches it, where the rule says what calls do."""
        rule = self.after.ground
        if not isinstance(rule, DecisionRule):
            return ()
        return tool_rules.list_call_parts_matched_by_rule(rule, self.call.tool, self.call.about)


@dataclass(frozen=True, slots=True)
class JudgedCallPage:
    """Some calls, newest first, and before which event the next ones are (0: there are none).

    `is_full`: there are as many as were asked for. Else the time was up, or that was all.
    """

    calls: list[JudgedCall]
    before: int
    is_full: bool


def load_judged_call_page(
    reader: CallHistoryReader,
    now: RecordedCallJudge,
    then: RecordedCallJudge,
    call_filter: TrialCallFilter,
    *,
    before: int,
    most: int,
    budget: WalkTimeLimit,
) -> JudgedCallPage:
    """Return up to `most` calls that fit, from `before` back, as far as the budget goes."""
    judged_calls: list[JudgedCall] = []
    for step in iterate_call_history_within_budget(reader, before or BIGGEST_ID, budget):
        before = step.floor
        now.cache_grant_verdicts_for_calls(step.calls)
        then.cache_grant_verdicts_for_calls(step.calls)
        for call in step.calls:
            judged = JudgedCall(call, now.decide_recorded_call(call), then.decide_recorded_call(call))
            if not call_filter.is_trial_call_matching_filter(call, judged.before, judged.after):
                continue
            if len(judged_calls) == most:
                return JudgedCallPage(judged_calls, judged_calls[-1].call.event_id, True)
            judged_calls.append(judged)
    return JudgedCallPage(judged_calls, before, False)
