"""Charts as data.

Positions and sizes are in percent of the drawing, which is stretched to the available space.

Each kind is drawn by a template in templates/components:

- `_bar_chart.html`: bars.
- `_day_columns.html`: a column for each day.
- `_stacked_columns.html`: a column for each day or hour, split into pieces.
- `_axis_chart.html`: the same with axes.
- `_heat_map.html`: a square for each day.
- `_heat_rows.html`: rows with a square for each hour.
- `_link_graph.html`: boxes in columns with lines between them.
- `_link_outline.html`: the same as nested lists, for phones.

static/css/charts.css has their styles.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from dashboard.templatetags.signalbox import count_of

COLUMN = 0.8  # of the width of a day; the rest is the gap


@dataclass(frozen=True, slots=True)
class CountBar:
    """One bar. `share` is its length in percent of the longest bar; `parts` split it by outcome."""

    label: str
    number: int
    share: float
    parts: tuple[BarSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A piece of a bar: its outcome, its number, and its start and width in percent."""

    outcome: str
    number: int
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class DayColumn:
    """The column of one day. `words` describe its value, or are empty."""

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
    """Return a column for each of the `days` days up to `last`.

    `heights` has the share of the tallest column (0 to 1) and the description of each day's value.
    """
    each = 100 / days
    columns = []
    for index in range(days):
        day = last - timedelta(days=days - 1 - index)
        share, label = heights.get(day, (0.0, ""))
        columns.append(
            DayColumn(day, label, round(index * each, 3), round(each * COLUMN, 3), round(100 * share, 3))
        )
    return columns


MOST_SERIES = 6  # colours that can be told apart; further series are combined into one more


@dataclass(frozen=True, slots=True)
class ColumnPiece:
    """A piece of a column: its series (numbered from 1), description, and top and height in percent."""

    series: int
    words: str
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class StackedColumn:
    """The column of one time slot, with its pieces from the bottom up."""

    label: str
    x: float
    width: float
    pieces: tuple[ColumnPiece, ...]


def build_stacked_columns(
    slots: Sequence[str],
    series: Sequence[str],
    values: Mapping[tuple[str, str], tuple[float, str]],
    *,
    tallest: float = 0.0,
) -> list[StackedColumn]:
    """Return a column for each slot, as high as its share of the tallest column.

    Args:
        slots: The labels of the columns.
        series: The names of the series.
        values: The value and its description, by slot and series.
        tallest: The value of the chart's full height, if it is more than the tallest column.
    """
    sums = {slot: sum(values.get((slot, name), (0.0, ""))[0] for name in series) for slot in slots}
    tallest = max(tallest, *sums.values(), 0.0) or 1.0
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


HEAT_LEVELS = 4  # shades of days with a value


@dataclass(frozen=True, slots=True)
class HeatMapDay:
    """A square of a heat map: its day, week, weekday, and a shade from 0 (no value) to HEAT_LEVELS."""

    day: date
    week: int
    weekday: int  # 0 is Monday
    level: int
    words: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The days of a year in columns of weeks. `months` are the names above the weeks in which they begin."""

    days: Sequence[HeatMapDay]
    weeks: int
    months: Sequence[tuple[int, str]]

    @property
    def rows(self) -> list[tuple[date, list[HeatMapDay | None]]]:
        """Return the weeks as rows of a table, Monday first; None for days outside the map."""
        days = {(square.week, square.weekday): square for square in self.days}
        first = self.days[0].day - timedelta(days=self.days[0].weekday)
        return [
            (first + timedelta(weeks=week), [days.get((week, weekday)) for weekday in range(7)])
            for week in range(self.weeks)
        ]


def heat_levels_by_value(values: Iterable[float]) -> dict[float, int]:
    """Return the shade of each value above 0, by its quartile among them."""
    in_order = sorted(value for value in values if value > 0)
    return {
        value: -(-HEAT_LEVELS * bisect_right(in_order, value) // len(in_order))  # the smallest has rank 1
        for value in in_order
    }


def build_daily_heat_map(values: Mapping[date, tuple[float, str]], last: date, days: int) -> HeatMap:
    """Return the squares of the `days` days up to `last`.

    A day's shade is its quartile among days with a value.

    `values` has the value and the description of each day.
    """
    first = last - timedelta(days=days - 1)
    monday = first - timedelta(days=first.weekday())
    levels = heat_levels_by_value(value for value, _ in values.values())
    squares, months = [], []
    for number in range(days):
        day = first + timedelta(days=number)
        value, label = values.get(day, (0.0, ""))
        week = (day - monday).days // 7
        squares.append(HeatMapDay(day, week, day.weekday(), levels.get(value, 0), label))
        if day.day == 1:
            months.append((week, f"{day:%b}"))
    return HeatMap(squares, squares[-1].week + 1, months)


@dataclass(frozen=True, slots=True)
class HeatSquare:
    """A square in a row: its column, shade, number and description."""

    x: int
    level: int
    number: int
    words: str


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A row of squares: its label and subject, its squares with a number, and their sum."""

    label: str
    subject: Any
    squares: tuple[HeatSquare, ...]
    total: int


@dataclass(frozen=True, slots=True)
class HeatRows:
    """Rows of squares over the same columns. `marks` are the labels below the columns."""

    rows: Sequence[HeatRow]
    columns: Sequence[str]
    marks: Sequence[str]

    @property
    def table_rows(self) -> list[tuple[HeatRow, list[int]]]:
        """Return each row with its number in every column, 0 if it has no square there."""
        column_indexes = range(len(self.columns))
        numbers = [{square.x: square.number for square in row.squares} for row in self.rows]
        return [
            (row, [known.get(place, 0) for place in column_indexes])
            for row, known in zip(self.rows, numbers, strict=True)
        ]


def build_heat_rows(
    rows: Sequence[tuple[str, Any, Mapping[int, int]]],
    columns: Sequence[str],
    marks: Sequence[str],
    unit: str,
) -> HeatRows:
    """Return rows of squares.

    Args:
        rows: The label, the subject, and the numbers by column of each row.
        columns: The labels of the columns.
        marks: The labels below the columns.
        unit: The noun for what is counted, in the singular.
    """
    levels = heat_levels_by_value(number for *_, numbers in rows for number in numbers.values())
    return HeatRows(
        [
            HeatRow(
                label,
                subject,
                tuple(
                    HeatSquare(x, levels[number], number, f"{columns[x]}: {count_of(number, unit)}")
                    for x, number in sorted(numbers.items())
                    if number > 0
                ),
                sum(numbers.values()),
            )
            for label, subject, numbers in rows
        ],
        columns,
        marks,
    )


NICE_STEPS = (1, 2, 5, 10)
# Steps for an axis of durations, in seconds.
NICE_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400)


@dataclass(frozen=True, slots=True)
class AxisTick:
    """A horizontal line of a chart: its position in percent from the top, and its label."""

    top: float
    label: str


def find_axis_top(largest: float, steps: Sequence[float] = ()) -> float:
    """Return the value of a chart's full height: the smallest round number that is not below `largest`.

    With `steps` it is one of these, or a multiple of the last.
    """
    if steps:
        rounded = next((step for step in steps if step >= largest), None)
        return rounded if rounded is not None else math.ceil(largest / steps[-1]) * steps[-1]
    power: int = 10 ** math.floor(math.log10(max(largest, 1)))
    return next(step * power for step in NICE_STEPS if step * power >= largest)


def build_axis_ticks(top: float, label: Callable[[float], str], pieces: int = 2) -> list[AxisTick]:
    """Return the horizontal lines of a chart with the height `top`, from the highest to 0.

    `pieces` is the number of intervals between them.
    """
    return [
        AxisTick(round(100 * (1 - piece / pieces), 3), label(top * piece / pieces) if piece else "0")
        for piece in range(pieces, -1, -1)
    ]


MIN_AXIS_STEPS = 2  # of a chart of amounts; there are at most five
UNITS = ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k"))
NEARLY_EQUAL = 1e-9  # relative rounding error of a quotient of floats


@dataclass(frozen=True, slots=True)
class StackedChart:
    """Columns with horizontal lines, from the highest to 0, and the labels below them."""

    columns: list[StackedColumn]
    ticks: list[AxisTick]
    marks: Sequence[str] = ()

    @property
    def axis_interval_count(self) -> int:
        """Return the number of intervals between the lines."""
        return len(self.ticks) - 1


def build_amount_chart(
    slots: Sequence[str],
    series: Sequence[str],
    values: Mapping[tuple[str, str], tuple[float, str]],
    *,
    is_money: bool = False,
    top: float = 0.0,
    marks: Sequence[str] = (),
) -> StackedChart:
    """Return stacked columns of money or of numbers, with lines at round amounts.

    `top` is the value of the full height, if it is more than the tallest column.
    """
    sums = (sum(values.get((slot, name), (0.0, ""))[0] for name in series) for slot in slots)
    largest = max(sums, default=0.0)
    if top >= largest and top > 0:
        step, pieces = top / MIN_AXIS_STEPS, MIN_AXIS_STEPS
    else:
        step = find_axis_step(largest or 1.0, is_money=is_money)
        pieces = math.ceil(largest / step - NEARLY_EQUAL) or 1
    ticks = build_axis_ticks(
        step * pieces, lambda value: format_axis_amount(value, step, is_money=is_money), pieces
    )
    return StackedChart(build_stacked_columns(slots, series, values, tallest=step * pieces), ticks, marks)


def find_axis_step(largest: float, *, is_money: bool = False) -> float:
    """Return the largest round step that fits MIN_AXIS_STEPS times into `largest`.

    It is at least 1, unless it is money.
    """
    magnitude = 10.0 ** math.floor(math.log10(largest / MIN_AXIS_STEPS))
    most = largest / MIN_AXIS_STEPS * (1 + NEARLY_EQUAL)
    step = magnitude * max(nice for nice in NICE_STEPS if nice * magnitude <= most)
    return step if is_money else max(step, 1.0)


def format_axis_amount(value: float, step: float, *, is_money: bool) -> str:
    """Return an amount as short as its step allows, such as `1.5 M` or `$0.25`."""
    size, unit = next(((size, unit) for size, unit in UNITS if value >= size * (1 - NEARLY_EQUAL)), (1.0, ""))
    if not is_money or step >= 1:
        return f"{'$' if is_money else ''}{value / size:,.4g}{unit}"
    return f"${value:,.{max(2, len(f'{step:.8f}'.rstrip('0').partition('.')[2]))}f}"


GRAPH_COLUMN, GRAPH_ROW, GRAPH_BOX = 340, 34, 220  # pixels: column to column, row height, box width
GRAPH_INSET = 3  # pixels between boxes of neighbouring rows


@dataclass(frozen=True, slots=True)
class GraphBox:
    """A box of a graph: its label, its link, and its position in pixels."""

    label: str
    url: str
    x: int
    y: int

    @property
    def label_y_position(self) -> int:
        return self.y + GRAPH_ROW // 2 - GRAPH_INSET + 5


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A line between two boxes: its SVG path, its tone (a CSS class), and its description."""

    path: str
    tone: str
    words: str


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """Boxes in columns, and the lines between them. Sizes are in pixels."""

    boxes: Sequence[GraphBox]
    edges: Sequence[GraphEdge]
    height: int
    width: int
    box_width: int = GRAPH_BOX
    box_height: int = GRAPH_ROW - 2 * GRAPH_INSET


def build_link_graph(
    columns: Sequence[Mapping[Hashable, tuple[str, str]]],
    links: Sequence[tuple[tuple[int, Hashable], tuple[int, Hashable], str, str]],
) -> LinkGraph:
    """Return a graph. A shorter column is spread over the height of the longest.

    Args:
        columns: The label and the URL of each box, by key, for each column.
        links: The start, end, tone and description of each line. An end is a column's number and a key in it.
    """
    rows = max((len(column) for column in columns), default=0)
    boxes: dict[tuple[int, Hashable], GraphBox] = {}
    for number, column in enumerate(columns):
        slot = rows * GRAPH_ROW / max(len(column), 1)
        for row, (key, (label, url)) in enumerate(column.items()):
            top = round((row + 0.5) * slot) - GRAPH_ROW // 2 + GRAPH_INSET
            boxes[number, key] = GraphBox(label, url, number * GRAPH_COLUMN, top)
    middle = GRAPH_ROW // 2 - GRAPH_INSET
    edges = []
    for source, target, tone, words in links:
        start, end = boxes[source], boxes[target]
        x1, y1, x2, y2 = start.x + GRAPH_BOX, start.y + middle, end.x, end.y + middle
        bend = (x1 + x2) // 2
        edges.append(GraphEdge(f"M{x1} {y1}C{bend} {y1} {bend} {y2} {x2} {y2}", tone, words))
    return LinkGraph(
        list(boxes.values()), edges, rows * GRAPH_ROW, (len(columns) - 1) * GRAPH_COLUMN + GRAPH_BOX
    )


@dataclass(slots=True)
class OutlineNode:
    """An item of a nested list: its label, its link, and the tone and description of its line."""

    label: str
    url: str
    tone: str = ""
    note: str = ""
    children: list[OutlineNode] = field(default_factory=list)
