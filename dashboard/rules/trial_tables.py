"""The tables of a trial: counts of decisions by rule, agent and week, with links to the counted calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from urllib.parse import quote, urlencode

from coordinator.lib import instants
from coordinator.models.agent_names import agent_labels_by_id
from coordinator.policy.suggestions.history import NOBODY
from coordinator.policy.suggestions.rule_trials import (
    CHANGED,
    DECISIONS,
    NOTHING,
    OTHERS,
    DecisionCounts,
    RuleTrial,
)

WORDS = {"deny": "Denied", "ask": "Asked", "allow": "Allowed", "observe": "Observed"}
SHOWN = 12  # rows of a table before the rest is folded


@dataclass(frozen=True, slots=True)
class TrialCount:
    """A number in a table."""

    label: str
    number: int
    query: str  # the query string of the list of counted calls; "" if the number is 0
    now: int = 0  # the number under the saved rules


@dataclass(frozen=True, slots=True)
class TrialTableLine:
    """A row of a table."""

    name: str
    counts: list[TrialCount]


@dataclass(frozen=True, slots=True)
class TrialTable:
    """A table of a trial. `folded` are the rows that are hidden until a person opens them."""

    title: str
    lines: list[TrialTableLine]
    folded: list[TrialTableLine]


@dataclass(frozen=True, slots=True)
class TrialView:
    """A trial as the page shows it."""

    calls: int
    totals: list[TrialCount]
    changed: TrialCount
    tables: list[TrialTable]
    labels: list[str]
    oldest: datetime | None
    share: float
    is_done: bool


def build_trial_display(trial: RuleTrial, *, is_open: bool) -> TrialView:
    """Return what a page shows of a trial.

    `is_open` is True for a trial with unsaved edits. Its tables also count the decisions that these change.
    """
    counts = trial.tally
    return TrialView(
        counts.calls,
        [
            replace(count, now=now)
            for count, now in zip(build_trial_counts(counts.then, {}, is_open=False), counts.now, strict=True)
        ],
        TrialCount(
            "answered differently", counts.then[CHANGED], build_trial_filter_query_string(changed="1")
        ),
        build_trial_tables(counts, is_open=is_open),
        [*WORDS.values(), *(["Changed"] if is_open else [])],
        instants.instant_from_microseconds(trial.oldest_us) if trial.oldest_us else None,
        round(trial.rule_trial_progress_fraction, 3),
        trial.is_done,
    )


def build_trial_tables(counts: DecisionCounts, *, is_open: bool) -> list[TrialTable]:
    def busiest_first_key(item: tuple[str, list[int]]) -> tuple[bool, int, str]:
        return (item[0] == OTHERS, -sum(item[1][:CHANGED]), item[0])

    by = dict(sorted(counts.by.items(), key=lambda item: decision_source_sort_key(item[0])))
    agents = dict(sorted(counts.agents.items(), key=busiest_first_key))
    weeks = dict(sorted(counts.weeks.items(), reverse=True))
    return [
        build_trial_table("What decides", "by", by, is_open=is_open),
        build_trial_table("Agent", "agent", agents, agent_labels_by_id(), is_open=is_open),
        build_trial_table("Week from", "week", weeks, is_open=is_open),
    ]


def decision_source_sort_key(by: str) -> tuple[int, int, str]:
    """Return a sort key for what decided a call: rules by number, then grants and policies, then nothing."""
    kind, _, number = by.partition(" ")
    if kind == "rule" and number.isdigit():
        return (0, int(number), "")
    return (2 if by == NOTHING else 1, 0, by)


def build_trial_table(
    title: str,
    name: str,
    rows: Mapping[str, list[int]],
    labels: Mapping[str, str] = MappingProxyType({}),
    *,
    is_open: bool,
) -> TrialTable:
    lines = [
        TrialTableLine(
            labels.get(value) or format_trial_label(name, value),
            build_trial_counts(row, {} if value == OTHERS else {name: value}, is_open=is_open),
        )
        for value, row in rows.items()
    ]
    return TrialTable(title, lines[:SHOWN], lines[SHOWN:])


def format_trial_label(name: str, value: str) -> str:
    if name == "agent" and value == NOBODY:
        return "No agent named"
    if name == "by":
        return "No rule and no grant" if value == NOTHING else value[:1].upper() + value[1:]
    return value


def build_trial_counts(row: list[int], query_fields: Mapping[str, str], *, is_open: bool) -> list[TrialCount]:
    counts = [
        TrialCount(
            WORDS[decision],
            row[place],
            build_trial_filter_query_string(decision=decision, **query_fields) if row[place] else "",
        )
        for place, decision in enumerate(DECISIONS)
    ]
    if is_open:
        counts.append(
            TrialCount(
                "Changed",
                row[CHANGED],
                build_trial_filter_query_string(changed="1", **query_fields) if row[CHANGED] else "",
            )
        )
    return counts


def build_trial_filter_query_string(**query_fields: str) -> str:
    return f"?{urlencode(query_fields, quote_via=quote)}"
