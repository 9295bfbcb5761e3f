"""The comparison of two sessions: what each was asked, did, changed and cost, and the differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from coordinator.lib import instants
from coordinator.lib.times import format_duration
from coordinator.models import EventContext, Session
from coordinator.policy.rules.tool_kinds import KINDS
from coordinator.search.files import list_session_touched_file_counts
from coordinator.sessions import titles
from coordinator.sessions.list_facts import session_start_microseconds
from coordinator.sessions.statuses import LIVE
from coordinator.sessions.timeline import SessionEventCounts, load_session_event_counts
from coordinator.sessions.timeline.spans import load_session_spans_or_none
from coordinator.usage import reading as usage
from coordinator.usage.reading import TokenUsage
from dashboard.sessions.summary import SessionSummary, load_session_summary
from dashboard.timeline.time_use import TimePart, divide_time_by_activity

MOST_CANDIDATES = 12
MOST_FILES = 200


@dataclass(frozen=True, slots=True)
class ComparedSession:
    """One of the two sessions, with its figures."""

    session: Session
    title: str
    summary: SessionSummary
    counts: SessionEventCounts
    usage: TokenUsage
    models: list[str]
    length: timedelta
    parts: list[TimePart]
    paths: list[str]


@dataclass(frozen=True, slots=True)
class ComparedFact:
    """A row of the comparison: the value of each session, and how the second differs from the first."""

    label: str
    first: str
    second: str
    difference: str = ""


def load_compared_session(session: Session, title: str, now: datetime) -> ComparedSession:
    counts = load_session_event_counts(session.pk)
    by_model = usage.load_session_usage_by_model(session.pk)
    last = EventContext.objects.filter(session_id=session.pk).order_by("-instant_us", "-event_id")
    last_us = last.values_list("instant_us", flat=True).first()
    end_us = instants.instant_to_microseconds(now) if session.status in LIVE else last_us
    began_us = session_start_microseconds(session)
    loaded = load_session_spans_or_none(session, now)
    writers = sorted({tool for tool, _ in counts.tools} & set(KINDS["write"].tools))
    return ComparedSession(
        session,
        title,
        load_session_summary(session, counts),
        counts,
        usage.sum_token_usages(by_model) if by_model else TokenUsage(),
        list(by_model),
        timedelta(microseconds=max((end_us or began_us) - began_us, 0)),
        divide_time_by_activity(loaded.spans, loaded.from_us, loaded.to_us) if loaded else [],
        [path for path, _ in list_session_touched_file_counts(session.pk, writers)],
    )


def build_session_comparison_context(first: ComparedSession, second: ComparedSession) -> dict[str, Any]:
    """Return the context of `sessions/compare.html` for two sessions."""
    tools = [dict(one.counts.tools) for one in (first, second)]
    names = sorted(
        {*tools[0], *tools[1]}, key=lambda name: (-max(tools[0].get(name, 0), tools[1].get(name, 0)), name)
    )
    return {
        "facts": [
            compare_durations("Took", first.length, second.length),
            compare_numbers("Calls", first.counts.call_count, second.counts.call_count),
            compare_numbers(
                "Messages", first.counts.categories["messages"], second.counts.categories["messages"]
            ),
            compare_numbers("Errors", first.counts.errors, second.counts.errors),
            compare_numbers("Tokens", first.usage.total_tokens, second.usage.total_tokens),
            ComparedFact(
                "Cost",
                first.usage.cost_label if first.usage.total_tokens else "not reported",
                second.usage.cost_label if second.usage.total_tokens else "not reported",
                describe_difference_to_second_number(first.usage.cost, second.usage.cost),
            ),
            compare_numbers(
                "Requests to people", first.summary.waits.requests, second.summary.waits.requests
            ),
            compare_durations("Waited for people", first.summary.waits.total, second.summary.waits.total),
            compare_numbers(
                "Files changed", count_files_changed_in_session(first), count_files_changed_in_session(second)
            ),
            compare_text_values("Agent", first.session.agent_name, second.session.agent_name),
            compare_text_values("Models", ", ".join(first.models), ", ".join(second.models)),
            compare_text_values("Host", first.session.hostname, second.session.hostname),
            compare_text_values("Directory", first.session.project_dir, second.session.project_dir),
        ],
        "tools": [
            compare_numbers(name, tools[0].get(name, 0), tools[1].get(name, 0)) for name in names[:MOST_FILES]
        ],
        "files": list_shared_and_separate_paths(first.paths, second.paths),
    }


def count_files_changed_in_session(compared: ComparedSession) -> int:
    return compared.summary.changes.files if compared.summary.changes else 0


def compare_numbers(label: str, first: int, second: int) -> ComparedFact:
    return ComparedFact(
        label, f"{first:,}", f"{second:,}", describe_difference_to_second_number(first, second)
    )


def compare_durations(label: str, first: timedelta, second: timedelta) -> ComparedFact:
    change = describe_difference_to_second_number(first.total_seconds(), second.total_seconds())
    lengths = [format_duration(length) if length else "none" for length in (first, second)]
    return ComparedFact(label, lengths[0], lengths[1], change)


def compare_text_values(label: str, first: str | None, second: str | None) -> ComparedFact:
    return ComparedFact(
        label, first or "unknown", second or "unknown", "another" if (first or "") != (second or "") else ""
    )


def describe_difference_to_second_number(first: float, second: float) -> str:
    """Return how the second number differs from the first: `+25 %`, `3.0 times`, or "" if they are equal."""
    if first == second:
        return ""
    if not first or not second:
        return "only here" if second else "not here"
    if second >= 2 * first:
        return f"{second / first:.1f} times"
    percent = 100 * (second - first) / first
    return f"{percent:+.0f} %" if abs(percent) >= 1 else "about the same"


def list_shared_and_separate_paths(
    first: Sequence[str], second: Sequence[str]
) -> list[tuple[str, list[str]]]:
    """Return the files that both sessions wrote, and those that only one of them wrote.

    Empty groups are left out.
    """
    groups = [
        ("Both", sorted({*first} & {*second})),
        ("Only this session", sorted({*first} - {*second})),
        ("Only the other", sorted({*second} - {*first})),
    ]
    return [(label, paths[:MOST_FILES]) for label, paths in groups if paths]


def list_comparison_candidates(session: Session) -> list[tuple[str, str, Session]]:
    """Return other sessions of the same agent or parent as (id, title, session), the latest first."""
    other_sessions = Session.objects.exclude(pk=session.pk).order_by("-created_at", "-session_id")
    rows = (
        list(other_sessions.filter(agent_name=session.agent_name)[:MOST_CANDIDATES])
        if session.agent_name
        else []
    )
    if session.parent_session_id:
        rows += other_sessions.filter(parent_session_id=session.parent_session_id)[:MOST_CANDIDATES]
    rows = list({row.pk: row for row in rows}.values())
    names = titles.load_session_titles(row.pk for row in rows)
    return [(row.pk, names.get(row.pk) or row.pk, row) for row in rows]
