"""The waterfall: when each row of a window happened, drawn as bars on a common scale of time.

This draws the first page. static/js/waterfall.js draws again as rows come and go, by the same rules, from what each
row says of its span: which rows a page holds is its reader's own business.

Where nothing happens for long (a person was at lunch), time is folded, so that the seconds that matter keep
their width. Geometry is in percent, as attributes: the policy allows no styles.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from coordinator.lib.times import format_duration
from dashboard.timeline.rows import TimelineRowDisplay
from dashboard.timeline.spans import build_row_span

ROW = 9  # pixels from one bar to the next
TOP = 20
FOLD_SHARE = 0.06  # of the busy time: how much an idle stretch may take
LEAST_FOLD_US = 2_000_000
MOST_FOLDS = 20  # with more, their lines are a grey that hides the bars
LEAST_WIDTH = 0.6  # percent: a call of a millisecond must still be seen and pressed


@dataclass(frozen=True, slots=True)
class WaterfallBar:
    """One row's bar: where it stands (percent and pixels), how it looks and what it says."""

    target: str
    x: float
    width: float
    y: int
    css_class: str
    label: str

    @property
    def span_y(self) -> int:
        """Return where the drawn bar begins, within the higher stripe that can be hit."""
        return self.y + 2


@dataclass(frozen=True, slots=True)
class WaterfallFold:
    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Waterfall:
    """A window's bars, from top to bottom, with the scale they stand on."""

    bars: list[WaterfallBar]
    folds: list[WaterfallFold]
    height: int
    spans: str


class FoldedTimeScale:
    """Time to percent, with idle stretches folded."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self.edges = [min(start for start, _ in spans)]
        self.offsets = [0]
        self.folded: list[tuple[int, int]] = []
        busy = merge_spans(spans)
        most = max(LEAST_FOLD_US, int(sum(end - start for start, end in busy) * FOLD_SHARE))
        for (start, end), (following, _) in zip(busy, [*busy[1:], (busy[-1][1], 0)], strict=True):
            self.add_scale_edge(end, self.offsets[-1] + end - start)
            gap = following - end
            if gap > most:
                self.folded.append((self.offsets[-1] + most // 2, gap))
            self.add_scale_edge(following, self.offsets[-1] + min(gap, most))
        self.total = max(self.offsets[-1], 1)

    def add_scale_edge(self, edge: int, offset: int) -> None:
        self.edges.append(edge)
        self.offsets.append(offset)

    def instant_to_percent(self, at_us: int) -> float:
        right = min(max(bisect_right(self.edges, at_us), 1), len(self.edges) - 1)
        first, last = self.edges[right - 1], self.edges[right]
        share = min(max((at_us - first) / (last - first), 0), 1) if last > first else 0
        offset = self.offsets[right - 1] + share * (self.offsets[right] - self.offsets[right - 1])
        return float(100 * offset / self.total)


def merge_spans(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the stretches in which anything happened, in order, none overlapping."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def build_waterfall(rows: Iterable[TimelineRowDisplay], now_us: int) -> Waterfall | None:
    """Return the waterfall of these rows, or None where there is nothing to draw."""
    drawn = [drawn_row for drawn_row in rows if drawn_row.row.happened_at is not None]
    if not drawn:
        return None
    row_spans = [build_row_span(shown) for shown in drawn]
    spans = [(span.from_us, max(span.to_us, now_us) if span.goes_on else span.to_us) for span in row_spans]
    scale = FoldedTimeScale(spans)
    bars = []
    for number, (span, (start, end)) in enumerate(zip(row_spans, spans, strict=True)):
        x = min(scale.instant_to_percent(start), 100 - LEAST_WIDTH)
        width = max(scale.instant_to_percent(end) - x, LEAST_WIDTH)
        bars.append(
            WaterfallBar(
                span.target, round(x, 2), round(width, 2), TOP + number * ROW, span.css_class, span.label
            )
        )
    folds = [
        WaterfallFold(
            round(100 * offset / scale.total, 2),
            f"{format_duration(timedelta(microseconds=gap))} without events",
        )
        for offset, gap in scale.folded
        if len(scale.folded) <= MOST_FOLDS
    ]
    total_time = timedelta(microseconds=max(end for _, end in spans) - spans[0][0])
    return Waterfall(bars, folds, TOP + len(bars) * ROW + 4, format_duration(total_time))
