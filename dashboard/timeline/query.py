"""What the query string of a session's page says: what to show, and where in the session to stand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from django.http import QueryDict
from django.utils.http import urlencode

from coordinator.lib import instants
from coordinator.search.index import Walk
from coordinator.sessions.timeline import EventPlace, Filters, Timeline, Window, row_place
from coordinator.sessions.timeline.reading import CATEGORIES

CATEGORY_NAMES = (*CATEGORIES, "other")  # `kind` in addresses, as saved links have it
WINDOW = 100  # events in a page: with its result, most calls are two
Edge = Literal["", "start", "end"]


@dataclass(frozen=True, slots=True)
class Query:
    """A reader's wishes. At most one of the places is set; none means where reading naturally begins."""

    categories: tuple[str, ...] = ()
    tool: str = ""
    errors: bool = False
    text: str = ""
    edge: Edge = ""
    after: EventPlace | None = None
    before: EventPlace | None = None
    at: EventPlace | None = None
    event_id: int | None = None

    @classmethod
    def of(cls, data: QueryDict) -> Query:
        """Read a query string; unreadable values are ignored."""
        edge = data.get("from", "")
        event = data.get("event", "")
        return cls(
            categories=tuple(category for category in CATEGORY_NAMES if category in data.getlist("kind")),
            tool=data.get("tool", ""),
            errors=data.get("errors", "") == "1",
            text=data.get("q", "").strip()[:200],
            edge=edge if edge in ("start", "end") else "",  # type: ignore[arg-type]
            after=EventPlace.parse(data.get("after", "")),
            before=EventPlace.parse(data.get("before", "")),
            at=_moment(data.get("at", "")),
            event_id=int(event) if event.isascii() and event.isdigit() and len(event) < 19 else None,
        )

    @property
    def filtered(self) -> bool:
        return bool(self.categories or self.tool or self.errors or self.text)

    @property
    def is_natural(self) -> bool:
        """Say whether the reader asked for no place, so that a running session's end is followed."""
        return not (self.after or self.before or self.at or self.event_id is not None or self.edge == "start")

    def filters(self, found: Walk | None) -> Filters:
        """Return the timeline's filters; `found` is what the search for `text` found."""
        ids = None if found is None else tuple(found.ids)
        return Filters(categories=self.categories, tool=self.tool, errors=self.errors, found=ids)

    def with_place(self, **place: object) -> str:
        """Return the query string of the same filters at another place: `with_place(after=place)`."""
        return self._encode([(name.rstrip("_"), str(value)) for name, value in place.items()])

    def with_category(self, category: str) -> str:
        """Return the query string with a category switched on, or off if it was on."""
        categories = tuple(one for one in CATEGORY_NAMES if (one in self.categories) != (one == category))
        return self._encode([], categories=categories)

    def with_tool(self, tool: str) -> str:
        """Return the query string for one tool, or for all if it was that one."""
        return self._encode([], tool="" if tool == self.tool else tool)

    @property
    def with_errors(self) -> str:
        """The query string with "errors only" switched over."""
        return self._encode([], errors=not self.errors)

    @property
    def fields(self) -> list[tuple[str, str]]:
        pairs = [("kind", category) for category in self.categories] + [
            ("tool", self.tool),
            ("errors", "1" if self.errors else ""),
        ]
        return [pair for pair in pairs if pair[1]]

    @property
    def without_text(self) -> str:
        return replace(self, text="").without_place

    @property
    def without_place(self) -> str:
        return self._encode([])

    @property
    def with_event(self) -> str:
        """The query string with the event that the reader was led to, if any, and no other place."""
        return self._encode([] if self.event_id is None else [("event", str(self.event_id))])

    @property
    def all(self) -> str:
        return "?"

    def _encode(
        self,
        place: list[tuple[str, str]],
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
        return "?" + urlencode([*changed.fields, *text, *place])


def _moment(text: str) -> EventPlace | None:
    """Return the place of an instant: ISO-8601, as a browser's datetime-local field gives it (UTC)."""
    try:
        moment = instants.parse(text) or datetime.fromisoformat(text)
        return EventPlace.at(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None


def window_of(query: Query, timeline: Timeline, *, live: bool) -> Window:
    """Return the window that the query asks for; a running session (`live`) is read from its end."""
    place = query.at or (_place_of(query.event_id, query, timeline) if query.event_id is not None else None)
    if place is not None:
        return timeline.around(place, WINDOW)
    if query.after is not None:
        return timeline.after(query.after, WINDOW)
    if query.before is not None:
        return timeline.before(query.before, WINDOW)
    if query.edge == "end" or (live and not query.edge):
        return timeline.last(WINDOW)
    return timeline.first(WINDOW)


def _place_of(event_id: int, query: Query, timeline: Timeline) -> EventPlace | None:
    """Return where an event is read: with its call, unless a filter shows results on their own."""
    return timeline.place_of(event_id) if query.filtered else row_place(timeline, event_id)
