"""The query string of a session's page: the filters, and the position in the session."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from django.http import QueryDict
from django.utils.http import urlencode

from coordinator.lib import instants
from coordinator.search.index import IndexWalkResult
from coordinator.sessions.timeline import (
    EventPosition,
    EventWindow,
    SessionTimeline,
    TimelineFilters,
    find_timeline_row_position,
)
from coordinator.sessions.timeline.reading import CATEGORIES

CATEGORY_NAMES = (*CATEGORIES, "other")  # values of `kind` in the query string, also in saved links
WINDOW = 100  # events of a page; most calls have two, the call and its result
Edge = Literal["", "start", "end"]


@dataclass(frozen=True, slots=True)
class TimelineQuery:
    """The filters and the position that a reader chose.

    At most one position is set. Without any, the page shows the end of a live session and the start of any
    other.
    """

    categories: tuple[str, ...] = ()
    tool: str = ""
    errors: bool = False
    text: str = ""
    edge: Edge = ""
    after: EventPosition | None = None
    before: EventPosition | None = None
    at: EventPosition | None = None
    event_id: int | None = None

    @classmethod
    def parse_timeline_query(cls, data: QueryDict) -> TimelineQuery:
        """Return the query of a query string. Invalid values are ignored."""
        edge = data.get("from", "")
        event = data.get("event", "")
        return cls(
            categories=tuple(category for category in CATEGORY_NAMES if category in data.getlist("kind")),
            tool=data.get("tool", ""),
            errors=data.get("errors", "") == "1",
            text=data.get("q", "").strip()[:200],
            edge=edge if edge in ("start", "end") else "",  # type: ignore[arg-type]
            after=EventPosition.parse_event_position_or_none(data.get("after", "")),
            before=EventPosition.parse_event_position_or_none(data.get("before", "")),
            at=parse_instant_position_or_none(data.get("at", "")),
            event_id=int(event) if event.isascii() and event.isdigit() and len(event) < 19 else None,
        )

    @property
    def has_timeline_filters(self) -> bool:
        return bool(self.categories or self.tool or self.errors or self.text)

    @property
    def is_at_default_position(self) -> bool:
        """Return whether no position is set, so that the page follows the end of a live session."""
        return not (self.after or self.before or self.at or self.event_id is not None or self.edge == "start")

    def build_event_filters_of_query(self, search_result: IndexWalkResult | None) -> TimelineFilters:
        """Return the timeline's filters.

        `search_result` is the result of the search for `text`, None without a search.
        """
        ids = None if search_result is None else tuple(search_result.ids)
        return TimelineFilters(categories=self.categories, tool=self.tool, errors=self.errors, found_ids=ids)

    def query_string_at_position(self, **position: object) -> str:
        """Return the query string of the same filters at another position.

        Example: `query_string_at_position(after=position)`.
        """
        return self.encode_changed_query([(name.rstrip("_"), str(value)) for name, value in position.items()])

    def query_with_category_toggled(self, category: str) -> str:
        """Return the query string with a category switched on, or off if it is on."""
        categories = tuple(one for one in CATEGORY_NAMES if (one in self.categories) != (one == category))
        return self.encode_changed_query([], categories=categories)

    def query_with_tool_toggled(self, tool: str) -> str:
        """Return the query string for one tool, or for all tools if that tool is already chosen."""
        return self.encode_changed_query([], tool="" if tool == self.tool else tool)

    @property
    def query_with_errors_toggled(self) -> str:
        """The query string with the filter "errors only" switched on or off."""
        return self.encode_changed_query([], errors=not self.errors)

    @property
    def filter_parameter_pairs(self) -> list[tuple[str, str]]:
        pairs = [("kind", category) for category in self.categories] + [
            ("tool", self.tool),
            ("errors", "1" if self.errors else ""),
        ]
        return [pair for pair in pairs if pair[1]]

    @property
    def query_without_text(self) -> str:
        return replace(self, text="").query_without_position

    @property
    def query_without_position(self) -> str:
        return self.encode_changed_query([])

    @property
    def query_string_with_event(self) -> str:
        """The query string with the event that the page was opened at, if any, and no other position."""
        return self.encode_changed_query([] if self.event_id is None else [("event", str(self.event_id))])

    @property
    def query_for_everything(self) -> str:
        return "?"

    def encode_changed_query(
        self,
        position_fields: list[tuple[str, str]],
        *,
        categories: tuple[str, ...] | None = None,
        tool: str | None = None,
        errors: bool | None = None,
    ) -> str:
        changed = replace(
            self,
            categories=self.categories if categories is None else categories,
            tool=self.tool if tool is None else tool,
            errors=self.errors if errors is None else errors,
        )
        text = [("q", self.text)] if self.text else []
        return "?" + urlencode([*changed.filter_parameter_pairs, *text, *position_fields])


def parse_instant_position_or_none(text: str) -> EventPosition | None:
    """Return the position of a time, or None for invalid text.

    The text is in ISO 8601, as a browser's datetime-local field sends it. A time without an offset is in UTC.
    """
    try:
        moment = instants.parse_instant_or_none(text) or datetime.fromisoformat(text)
        return EventPosition.position_before_moment(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None


def load_query_window(query: TimelineQuery, timeline: SessionTimeline, *, live: bool) -> EventWindow:
    """Return the window that the query asks for. With `live`, the default is the end of the session."""
    position = query.at or (
        find_position_that_shows_event(query.event_id, query, timeline)
        if query.event_id is not None
        else None
    )
    if position is not None:
        return timeline.read_window_around_position(position, WINDOW)
    if query.after is not None:
        return timeline.read_window_after_position(query.after, WINDOW)
    if query.before is not None:
        return timeline.read_window_before_position(query.before, WINDOW)
    if query.edge == "end" or (live and not query.edge):
        return timeline.read_last_window(WINDOW)
    return timeline.read_first_events(WINDOW)


def find_position_that_shows_event(
    event_id: int, query: TimelineQuery, timeline: SessionTimeline
) -> EventPosition | None:
    """Return the position that shows an event: that of its call's row, or its own if filters are set."""
    return (
        timeline.find_event_position(event_id)
        if query.has_timeline_filters
        else find_timeline_row_position(timeline, event_id)
    )
