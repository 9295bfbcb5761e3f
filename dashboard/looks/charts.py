"""Charts: what their rows hold, in percent of a drawing that is stretched to its place.

Each is drawn by a template of templates/components: `_bar_chart.html` a bar, `_day_columns.html` a column a day,
`_stacked_columns.html` a column a day or hour in pieces.
static/css/charts.css says how they look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

COLUMN = 0.8  # of its day's width; the rest is the gap to the next


@dataclass(frozen=True, slots=True)
class CountBar:
    """One bar, `share` of the longest; `parts` split it by outcome."""

    label: str
    number: int
    share: float
    parts: tuple[BarSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A piece of a bar: where it begins and how long it is."""

    outcome: str
    number: int
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class DayColumn:
    """One day's column; `words` say what it stands for, nothing on a day that has none."""

    day: date
    words: str
    x: float
    width: float
    height: float

    @property
    def top_percent(self) -> float:
        return round(100 - self.height, 3)


def build_day_columns(
    heights: Mapping[date, tuple[float, str]], last: date, days: int
) -> Sequence[DayColumn]:
    """Return a column for each of the `days` days up to `last`: its share of the tallest and its words, by day."""
    each = 100 / days
    columns = []
    for index in range(days):
        day = last - timedelta(days=days - 1 - index)
        share, label = heights.get(day, (0.0, ""))
        columns.append(
            DayColumn(day, label, round(index * each, 3), round(each * COLUMN, 3), round(100 * share, 3))
        )
    return columns


MOST_SERIES = 6  # told apart by colour; the rest is one more


@dataclass(frozen=True, slots=True)
class ColumnPiece:
    """A piece of a column: of which series (its number, from 1), and what it stands for."""

    series: int
    words: str
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class StackedColumn:
    """The column of one slot of time, with its pieces from the bottom up."""

    label: str
    x: float
    width: float
    pieces: tuple[ColumnPiece, ...]


def build_stacked_columns(
    slots: Sequence[str],
    series: Sequence[str],
    values: Mapping[tuple[str, str], tuple[float, str]],
) -> list[StackedColumn]:
    """Return a column for each slot: the values by slot and series, in shares of the tallest, and their words."""
    sums = {slot: sum(values.get((slot, name), (0.0, ""))[0] for name in series) for slot in slots}
    tallest = max(sums.values(), default=0.0) or 1.0
    each = 100 / max(len(slots), 1)
    columns = []
    for index, slot in enumerate(slots):
        pieces, top = [], 100.0
        for number, name in enumerate(series, 1):
            value, label = values.get((slot, name), (0.0, ""))
            height = 100 * value / tallest
            top -= height
            if value > 0:
                pieces.append(ColumnPiece(number, f"{name}: {label}", round(top, 3), round(height, 3)))
        columns.append(StackedColumn(slot, round(index * each, 3), round(each * COLUMN, 3), tuple(pieces)))
    return columns
