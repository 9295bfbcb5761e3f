"""Converts times to percent of a chart's width, with idle periods shortened, and makes the marks of its axis.

A long idle period, such as a person's lunch break, is shortened so that the busy seconds remain visible.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.lib.times import format_duration

FOLD_SHARE = 0.06  # of the busy time: the most that an idle period may take
MOST_FOLDS = 20  # with more, the lines of the folds hide the bars
LEAST_APART = 7.5  # percent between two marks, so that their labels fit
MOST_MARKS = 14
STEPS_US = tuple(
    int(seconds * 1_000_000)
    for seconds in (
        *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
        *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
        *(3600 * hours for hours in (1, 2, 3, 6, 12, 24, 48, 96, 240, 480, 2400, 24_000)),
    )
)


@dataclass(frozen=True, slots=True)
class AxisMark:
    """A mark of the axis, with its position in percent and its label.

    `is_fold` marks an idle period that is shortened.
    """

    x: float
    label: str
    is_fold: bool = False


class FoldedTimeScale:
    """A conversion of times to percent, in which idle periods longer than `least_fold_us` are shortened."""

    def __init__(self, spans: Sequence[tuple[int, int]], least_fold_us: int = 2_000_000) -> None:
        self.busy = merge_spans(spans)
        self.edges = [self.busy[0][0]]
        self.offsets = [0]
        self.folded: list[tuple[int, int]] = []
        most = max(least_fold_us, int(sum(end - start for start, end in self.busy) * FOLD_SHARE))
        for (start, end), (following, _) in zip(
            self.busy, [*self.busy[1:], (self.busy[-1][1], 0)], strict=True
        ):
            self.add_scale_edge(end, self.offsets[-1] + end - start)
            gap = following - end
            if gap > most:
                self.folded.append((self.offsets[-1] + most // 2, gap))
            self.add_scale_edge(following, self.offsets[-1] + min(gap, most))
        self.total = max(self.offsets[-1], 1)

    def add_scale_edge(self, edge: int, offset: int) -> None:
        self.edges.append(edge)
        self.offsets.append(offset)

    def microseconds_to_percent(self, at_us: int) -> float:
        return 100 * interpolate_between_edges(self.edges, self.offsets, at_us) / self.total

    def percent_to_microseconds(self, percent: float) -> int:
        return int(interpolate_between_edges(self.offsets, self.edges, percent * self.total / 100))

    def list_axis_marks(self, began_us: int) -> list[AxisMark]:
        """Return the marks of the axis: round times since `began_us`, and the shortened idle periods."""
        marks: list[AxisMark] = []
        taken_positions: list[float] = []
        for offset, gap in self.folded if len(self.folded) <= MOST_FOLDS else []:
            x = 100 * offset / self.total
            has_room = not taken_positions or x - taken_positions[-1] >= LEAST_APART
            taken_positions += [x] if has_room else []
            label = format_duration(gap / 1_000_000) if has_room else ""
            marks.append(AxisMark(round(x, 2), label, is_fold=True))
        step = next((step for step in STEPS_US if self.total / step <= MOST_MARKS), STEPS_US[-1])
        for number in range(-(-self.total // step) + 1):
            at_us = self.percent_to_microseconds(100 * number * step / self.total)
            rounded_us = began_us + round((at_us - began_us) / step) * step
            x = self.microseconds_to_percent(rounded_us)
            is_free = all(abs(x - other) >= LEAST_APART for other in taken_positions)
            if is_free and x <= 100 - LEAST_APART / 2 and self.edges[0] <= rounded_us <= self.edges[-1]:
                taken_positions.append(x)
                marks.append(AxisMark(round(x, 2), format_axis_mark_time(rounded_us - began_us, step)))
        return sorted(marks, key=lambda mark: mark.x)


def interpolate_between_edges(origin: Sequence[int], target: Sequence[int], value: float) -> float:
    """Return `value` converted from one list of edges to another, by linear interpolation."""
    right = min(max(bisect_right(origin, value), 1), len(origin) - 1)
    first, last = origin[right - 1], origin[right]
    share = min(max((value - first) / (last - first), 0), 1) if last > first else 0
    return target[right - 1] + share * (target[right] - target[right - 1])


def merge_spans(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the busy periods in order, with overlapping spans merged."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def format_axis_mark_time(offset_us: int, step_us: int) -> str:
    """Return `0:04`, `12:30`, `1:02:09`, with parts of a second where the step is shorter than one."""
    minutes, seconds = divmod(offset_us / 1_000_000, 60)
    hours, minutes = divmod(int(minutes), 60)
    digits = 0 if step_us >= 1_000_000 else 1 if step_us >= 100_000 else 3
    clock = f"{seconds:0{3 + digits if digits else 2}.{digits}f}"
    return f"{hours}:{minutes:02}:{clock}" if hours else f"{minutes}:{clock}"
