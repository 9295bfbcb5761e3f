"""How a session's time was used: its critical path, and the shares of people, calls and the agent."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from coordinator.lib.times import format_duration
from coordinator.sessions.timeline.spans import SessionSpan
from dashboard.timeline.time_scale import merge_spans

# Calls that run another agent. The critical path contains that agent's calls instead.
_OPENS_AGENT = re.compile(r"^(task|agent|spawn_?agent|delegate)$|agent_session$", re.IGNORECASE)
Stretch = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TimePart:
    """A share of the session's time, and its position in a bar."""

    key: str
    label: str
    length_us: int
    x: float  # where it begins, in percent of the whole
    percent: float  # its width

    @property
    def length_label(self) -> str:
        return format_duration(timedelta(microseconds=self.length_us))

    @property
    def percent_label(self) -> str:
        return f"{self.percent:.0f} %" if self.percent >= 1 else "under 1 %"


def critical_path_span_keys(spans: Sequence[SessionSpan], until_us: int) -> set[tuple[str, str]]:
    """Return the kinds and keys of the spans on the critical path.

    If one of these spans had been shorter, the session could have been. The path is found from the end: the
    span that ended last, then the span that ended last before that one began, and so on. For a call that runs
    another agent, the spans of that agent are on the path instead.
    """
    leaves = sorted(
        (span for span in list_spans_of_calls_and_children(spans) if span.to_us <= until_us),
        key=lambda span: (span.to_us, span.length_us),
    )
    path: set[tuple[str, str]] = set()
    here_us = until_us
    for span in reversed(leaves):
        if span.to_us <= here_us and span.length_us:
            path.add((span.kind, span.key))
            here_us = span.from_us
    return path


def list_spans_of_calls_and_children(spans: Iterable[SessionSpan]) -> list[SessionSpan]:
    """Return the spans of calls and child sessions, without calls that only run another agent."""
    work = [span for span in spans if span.kind in ("call", "child")]
    begun = sorted(span.from_us for span in work if span.lane or span.kind == "child")
    return [
        span
        for span in work
        if not (
            span.kind == "call"
            and _OPENS_AGENT.search(span.name)
            and bisect_left(begun, span.from_us) < bisect_left(begun, span.to_us)
        )
    ]


def divide_time_by_activity(spans: Sequence[SessionSpan], from_us: int, to_us: int) -> list[TimePart]:
    """Return how the time from `from_us` to `to_us` was used. The parts add up to all of it.

    Time in which a request waited for a person counts as such, also within a call. Time without activity
    before a person's next prompt counts as waiting for it. The remaining time is the agent's.
    """
    requests = merge_spans([(span.from_us, span.to_us) for span in spans if span.kind == "wait"])
    waits = clip_stretches(requests, from_us, to_us)
    calls = merge_spans([(span.from_us, span.to_us) for span in list_spans_of_calls_and_children(spans)])
    busy = merge_spans([*waits, *calls])
    idle = clip_stretches(list_idle_stretches_before_prompts(spans, busy), from_us, to_us)
    work = clip_stretches(busy, from_us, to_us)
    people_us, prompts_us, busy_us = (sum(end - start for start, end in part) for part in (waits, idle, work))
    total_us = max(to_us - from_us, 1)
    lengths = [
        ("people", "Waited for people", people_us),
        ("calls", "Calls", busy_us - people_us),
        ("agent", "The agent itself", max(total_us - busy_us - prompts_us, 0)),
        ("prompts", "Waited for a prompt", prompts_us),
    ]
    parts, x = [], 0.0
    for key, label, length_us in lengths:
        percent = 100 * length_us / total_us
        if length_us > 0:
            parts.append(TimePart(key, label, length_us, round(x, 2), round(percent, 2)))
        x += percent
    return parts


def list_idle_stretches_before_prompts(
    spans: Sequence[SessionSpan], busy: Sequence[Stretch]
) -> list[Stretch]:
    """Return the periods without activity before each prompt of a person, except the first prompt."""
    prompts = sorted(span.from_us for span in spans if span.kind == "prompt")
    message_times = sorted(span.from_us for span in spans if span.kind == "said")
    ends = [end for _, end in busy]
    stretches: list[Stretch] = []
    for earlier, prompt in pairwise(prompts):
        index = bisect_left(ends, prompt)
        if index < len(busy) and busy[index][0] < prompt:
            continue  # a call or request was in progress
        message_index = bisect_left(message_times, prompt)
        start = max(
            earlier,
            ends[index - 1] if index else earlier,
            message_times[message_index - 1] if message_index else earlier,
        )
        stretches.append((start, prompt))
    return stretches


def clip_stretches(stretches: Iterable[Stretch], from_us: int, to_us: int) -> list[Stretch]:
    clipped = ((max(start, from_us), min(end, to_us)) for start, end in stretches)
    return [(start, end) for start, end in clipped if end > start]
