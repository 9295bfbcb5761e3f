"""The waterfall: a session's activity as bars on one time scale.

There are lanes for people, the agent and its subagents. Each bar is a row of a table, so that it can be read
without the graphic. The URL contains the range that is shown, so zooming is following a link. Positions are
percentages in attributes, because the content security policy forbids inline styles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.http import QueryDict
from django.urls import reverse
from django.utils.http import urlencode

from coordinator.lib.times import format_duration
from coordinator.models import Session
from coordinator.sessions.list_facts import session_start_microseconds
from coordinator.sessions.timeline import CallRow, SessionTimeline
from coordinator.sessions.timeline.spans import SessionSpan, SessionSpans, load_session_spans_or_none
from dashboard.timeline.rows import build_timeline_row_displays, format_time_offset
from dashboard.timeline.time_scale import AxisMark, FoldedTimeScale
from dashboard.timeline.time_use import TimePart, critical_path_span_keys, divide_time_by_activity

MOST_BARS = 100
MOST_OTHER_BARS = 30
MOST_LANES = 24  # the further subagents share a lane
LEAST_WIDTH = 0.3  # percent, so that a call of a millisecond is visible
LEAST_STRETCH_US = 1_000
FOLD_FROM_US = 60_000_000
PEOPLE, AGENT, CHILDREN, OTHERS = "People", "Agent", "Child sessions", "Further subagents"


@dataclass(frozen=True, slots=True)
class WaterfallBar:
    """A row: a span, with the position of its bar in percent."""

    span: SessionSpan
    name: str
    title: str
    x: float
    width: float
    is_critical: bool
    offset_label: str
    url: str
    zoom_query: str

    @property
    def length_label(self) -> str:
        return format_duration(timedelta(microseconds=self.span.length_us))

    @property
    def state_label(self) -> str:
        """The state and the critical path as text for screen readers; begins with a comma, or is empty."""
        words = [self.span.state] if self.span.state != "done" else []
        return "".join(
            f", {word}" for word in [*words, *(["on the critical path"] if self.is_critical else [])]
        )

    @property
    def css_class(self) -> str:
        """The CSS classes that select the bar's colour."""
        return f"{self.span.kind} {self.span.state.replace(' ', '-')}"


@dataclass(frozen=True, slots=True)
class LaneStretch:
    """Spans of a lane that touch at this scale and are shown as one rectangle. Its position is in percent."""

    x: float
    width: float
    css_class: str


@dataclass(frozen=True, slots=True)
class WaterfallLane:
    """The activity of people, of the agent or of one subagent."""

    name: str
    stretches: list[LaneStretch]  # all spans
    bars: list[WaterfallBar]  # the spans that have a row
    count: int  # of all spans
    length_us: int  # the sum of all spans

    @property
    def length_label(self) -> str:
        return format_duration(timedelta(microseconds=self.length_us))


@dataclass(frozen=True, slots=True)
class WaterfallQuery:
    """The range that is shown, in microseconds, and whether only the critical path is shown."""

    from_us: int | None = None
    to_us: int | None = None
    path_only: bool = False

    @classmethod
    def parse_waterfall_query(cls, data: QueryDict) -> WaterfallQuery:
        """Return the query of a query string. Invalid values are ignored."""
        first, last = (parse_microseconds_or_none(data.get(name, "")) for name in ("from", "to"))
        return cls(first, last, data.get("path") == "1")

    def query_between(self, from_us: float, to_us: float) -> str:
        """Return the query string for another range."""
        return self.encode_query([("from", str(int(from_us))), ("to", str(int(to_us)))])

    @property
    def query_for_everything(self) -> str:
        return self.encode_query([])

    @property
    def query_with_critical_path_toggled(self) -> str:
        other = replace(self, path_only=not self.path_only)
        stretch = [("from", self.from_us), ("to", self.to_us)]
        return other.encode_query([(name, str(value)) for name, value in stretch if value is not None])

    def encode_query(self, pairs: list[tuple[str, str]]) -> str:
        return "?" + urlencode([*pairs, *([("path", "1")] if self.path_only else [])])


@dataclass(frozen=True, slots=True)
class Waterfall:
    """A waterfall, ready for display."""

    lanes: list[WaterfallLane]
    marks: list[AxisMark]
    parts: list[TimePart]
    from_us: int
    to_us: int
    is_whole: bool  # whether the range is the whole session
    total: int  # spans in the range
    left_out: int  # spans without a row, because they are shorter than those with one
    is_cut: bool  # whether the session has more events than are loaded
    from_label: str
    links: dict[str, str]

    @property
    def length_label(self) -> str:
        return format_duration(timedelta(microseconds=self.to_us - self.from_us))


def load_waterfall_or_none(
    session: Session, query: WaterfallQuery, now: datetime, *, drag: tuple[float, float] | None = None
) -> Waterfall | None:
    """Return the waterfall of a range of the session, or None if nothing in the session has a time.

    `drag` narrows the range to the part between two positions of the chart, in percent.
    """
    loaded = load_session_spans_or_none(session, now)
    if loaded is None:
        return None
    from_us, to_us = clip_requested_time_range(loaded, query)
    scale = build_scale(loaded.spans, from_us, to_us)
    if drag is not None:
        first, last = (scale.percent_to_microseconds(percent) for percent in sorted(drag))
        from_us, to_us = clip_requested_time_range(loaded, WaterfallQuery(first, last))
        scale = build_scale(loaded.spans, from_us, to_us)
    inside = [
        span
        for span in loaded.spans
        if span.kind in ("call", "wait", "child") and span.to_us >= from_us and span.from_us <= to_us
    ]
    path = critical_path_span_keys(loaded.spans, loaded.to_us)
    if query.path_only:
        inside = [span for span in inside if (span.kind, span.key) in path]
    drawn = choose_drawn_spans(inside)
    began_us = session_start_microseconds(session)
    length = to_us - from_us
    is_whole = from_us <= loaded.from_us and to_us >= loaded.to_us
    links = {
        "in": query.query_between(from_us + length // 4, to_us - length // 4)
        if length > 2 * LEAST_STRETCH_US
        else "",
        "out": "" if is_whole else query.query_between(from_us - length // 2, to_us + length // 2),
        "earlier": ""
        if from_us <= loaded.from_us
        else query.query_between(from_us - length // 2, to_us - length // 2),
        "later": ""
        if to_us >= loaded.to_us
        else query.query_between(from_us + length // 2, to_us + length // 2),
        "whole": "" if is_whole else query.query_for_everything,
        "path": query.query_with_critical_path_toggled,
    }
    return Waterfall(
        lanes=BarBuilder(session, query, scale, path, began_us, from_us, to_us).group_spans_into_lanes(
            inside, drawn
        ),
        marks=scale.list_axis_marks(began_us),
        parts=divide_time_by_activity(loaded.spans, from_us, to_us),
        from_us=from_us,
        to_us=to_us,
        is_whole=is_whole,
        total=len(inside),
        left_out=len(inside) - len(drawn),
        is_cut=loaded.is_cut,
        from_label=format_time_offset(from_us, began_us),
        links=links,
    )


def clip_requested_time_range(loaded: SessionSpans, query: WaterfallQuery) -> tuple[int, int]:
    """Return the requested range, clipped to the session and at least LEAST_STRETCH_US long."""
    from_us = loaded.from_us if query.from_us is None else query.from_us
    to_us = loaded.to_us if query.to_us is None else query.to_us
    length = max(to_us - from_us, LEAST_STRETCH_US)
    from_us = min(max(from_us, loaded.from_us), max(loaded.to_us - LEAST_STRETCH_US, loaded.from_us))
    return from_us, max(min(from_us + length, loaded.to_us), from_us + LEAST_STRETCH_US)


def build_scale(spans: Iterable[SessionSpan], from_us: int, to_us: int) -> FoldedTimeScale:
    busy = [
        (max(span.from_us, from_us), min(span.to_us, to_us))
        for span in spans
        if span.to_us >= from_us and span.from_us <= to_us
    ]
    return FoldedTimeScale([(from_us, from_us), *busy, (to_us, to_us)], FOLD_FROM_US)


def choose_drawn_spans(spans: Sequence[SessionSpan]) -> list[SessionSpan]:
    """Return the spans that get a row: the longest ones, of which at most MOST_OTHER_BARS are not calls."""
    by_length = sorted(spans, key=lambda span: -span.length_us)
    other_spans = [span for span in by_length if span.kind != "call"][:MOST_OTHER_BARS]
    calls = [span for span in by_length if span.kind == "call"][: MOST_BARS - len(other_spans)]
    chosen = {(span.kind, span.key) for span in (*other_spans, *calls)}
    return [span for span in spans if (span.kind, span.key) in chosen]


@dataclass(frozen=True, slots=True)
class BarBuilder:
    """Builds the lanes and bars of spans, clipped to the range of the scale."""

    session: Session
    query: WaterfallQuery
    scale: FoldedTimeScale
    path: set[tuple[str, str]]
    began_us: int
    from_us: int
    to_us: int

    def group_spans_into_lanes(
        self, spans: Sequence[SessionSpan], drawn: Sequence[SessionSpan]
    ) -> list[WaterfallLane]:
        """Return the lanes with all spans of the range. Spans in `drawn` get a row."""
        names = load_call_names_by_event(
            self.session, [int(span.key) for span in drawn if span.kind == "call"]
        )
        lanes: dict[str, list[SessionSpan]] = {PEOPLE: [], AGENT: []}
        for span in spans:
            lane_name = {"wait": PEOPLE, "child": CHILDREN}.get(span.kind, span.lane or AGENT)
            if lane_name not in lanes and span.kind == "call" and len(lanes) >= MOST_LANES:
                lane_name = OTHERS
            lanes.setdefault(lane_name, []).append(span)
        has_row = {(span.kind, span.key) for span in drawn}
        return [
            WaterfallLane(
                name,
                self.merge_spans_into_stretches(lane_spans),
                [
                    self.build_bar(
                        span,
                        *(names.get(span.key, (span.name, "")) if span.kind == "call" else (span.name, "")),
                    )
                    for span in lane_spans
                    if (span.kind, span.key) in has_row
                ],
                len(lane_spans),
                sum(span.length_us for span in lane_spans),
            )
            for name, lane_spans in lanes.items()
            if lane_spans
        ]

    def merge_spans_into_stretches(self, spans: Sequence[SessionSpan]) -> list[LaneStretch]:
        """Return a lane's spans as rectangles. Neighbours of the same colour that touch are merged."""
        stretches: list[list[Any]] = []
        for span in spans:
            x, width = self.span_position_and_width_percent(span)
            css_class = f"{span.kind} {span.state.replace(' ', '-')}"
            last = stretches[-1] if stretches else None
            if last is not None and last[2] == css_class and x <= last[1] + LEAST_WIDTH / 2:
                last[1] = max(last[1], x + width)
            else:
                stretches.append([x, x + width, css_class])
        return [
            LaneStretch(round(first, 2), round(last - first, 2), css_class)
            for first, last, css_class in stretches
        ]

    def span_position_and_width_percent(self, span: SessionSpan) -> tuple[float, float]:
        """Return the position and width of a span, in percent."""
        first, last = (
            self.scale.microseconds_to_percent(min(max(at_us, self.from_us), self.to_us))
            for at_us in (span.from_us, span.to_us)
        )
        x = min(first, 100 - LEAST_WIDTH)
        return x, max(last - x, LEAST_WIDTH)

    def build_bar(self, span: SessionSpan, name: str, title: str) -> WaterfallBar:
        x, width = self.span_position_and_width_percent(span)
        margin = max(span.length_us // 10, LEAST_STRETCH_US)
        return WaterfallBar(
            span,
            name,
            span.state if span.kind == "wait" else title,
            round(x, 2),
            round(width, 2),
            (span.kind, span.key) in self.path,
            format_time_offset(span.from_us, self.began_us),
            bar_url(self.session, span),
            self.query.query_between(span.from_us - margin, span.to_us + margin),
        )


def bar_url(session: Session, span: SessionSpan) -> str:
    """Return the URL to which a bar links: the event, the request, or the child's page."""
    if span.kind == "wait":
        return reverse("approvals:detail", args=[span.key])
    if span.kind == "child":
        return reverse("sessions:detail", args=[span.key])
    return f"{reverse('sessions:detail', args=[session.pk])}?event={span.key}#event-{span.key}"


def load_call_names_by_event(session: Session, event_ids: Sequence[int]) -> dict[str, tuple[str, str]]:
    """Return the name of each call and its title, as in its timeline row, by the event's id."""
    if not event_ids:
        return {}
    events = SessionTimeline(session.pk).read_events_with_ids(event_ids)
    rows = [CallRow(event.event_position, event, None, may_run=False) for event in events]
    shown_rows = build_timeline_row_displays(rows, session, 0)
    return {
        str(row.event.id): (
            f"{row.call_display.server} {row.call_display.name}"
            if row.call_display.server
            else row.call_display.name,
            row.call_display.title[:160],
        )
        for row in shown_rows
    }


def parse_microseconds_or_none(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
