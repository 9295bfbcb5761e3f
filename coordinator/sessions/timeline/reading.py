"""Reads windows of a session's events, from any place, in both directions, whatever the session's size.

The order is (instant, event id), and the index of `event_context` serves it. An event that another program has
just written, or that an older database brought along, has no context row yet. Such a session is told by two
counts and read by a slower query that works the instants out, so that no event is ever missing from a page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db import models
from django.db.models import Case, F, Func, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce, Substr

from coordinator.models import Event, EventContext, UnreadableText
from coordinator.models.fields import Instant, decoded
from coordinator.models.gateway import BY_GATEWAY
from coordinator.sessions import spans
from coordinator.sessions.events import EVENT_COLUMNS, JSON_COLUMNS
from coordinator.sessions.timeline.places import EventPlace
from coordinator.sessions.timeline.wide import SessionCache, edge_of

# Longer values are read to this many characters at first. As long as there is room they are then read whole,
# because cut JSON cannot be decoded; of the rest, people see the beginning.
READ_UP_TO = 32_768
ROOM_PER_VALUE = 2_000_000
ROOM_PER_WINDOW = 6_000_000
# An unreadable timestamp that nobody has given an instant yet stands at the end: it has only just come.
LAST_INSTANT = 2**62

CALL_STARTS, CALL_ENDS = "pre_tool", "post_tool"
# What a reader can filter a timeline by, with the event types of each category; all others are `other`.
CATEGORIES: dict[str, tuple[str, ...]] = {
    "messages": ("message", "result"),
    "calls": (CALL_STARTS, CALL_ENDS),
    "lifecycle": ("session_start", "session_stop", "run_start", "run_completed", "turn_end"),
}


# Events, annotated with `at_us` or not: the stubs cannot follow annotations through methods.
Events = QuerySet[Any, Any]


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A JSON column as far as it was read: its decoded value if `whole`, else the beginning of its text."""

    value: Any
    size: int
    whole: bool = True


@dataclass(frozen=True, slots=True)
class GatewayTimes:
    """What the MCP gateway told of a call's time, in milliseconds: the wait for people, the server's, its own.

    `resumed` is how often it asked the server for the rest of an answer, whose stream had ended before the result.
    """

    waited_ms: float
    upstream_ms: float
    own_ms: float
    resumed: int = 0


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One event with its context, as a timeline needs it."""

    id: int
    at_us: int
    event_type: str
    timestamp: str
    tool_name: str | None
    tool_input: StoredValue | None
    tool_output: StoredValue | None
    content: StoredValue | None
    error: str | None
    exit_code: int | None
    reason: str | None
    role: str | None
    tool_use_id: str | None
    subagent: str | None
    duration_ms: int | None
    model: str | None
    source: str | None
    # Tokens that the model read, cached ones too, and wrote; of a request to a model only.
    tokens_in: int | None = None
    tokens_out: int | None = None
    masked: int = 0
    prompt_id: str | None = None
    gateway: GatewayTimes | None = None

    @property
    def place(self) -> EventPlace:
        return EventPlace(self.at_us, self.id)

    @property
    def by_gateway(self) -> bool:
        """Say whether the MCP gateway told it."""
        return self.source == BY_GATEWAY

    @property
    def at(self) -> datetime | None:
        """When it happened, or None where nobody can tell."""
        return self.place.moment


@dataclass(frozen=True, slots=True)
class Filters:
    """What a reader wants to see: CATEGORIES of events, one tool, errors only, or events found by a search."""

    categories: tuple[str, ...] = ()
    tool: str = ""
    errors: bool = False
    found: tuple[int, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self.categories or self.tool or self.errors or self.found is not None)

    @property
    def narrow(self) -> bool:
        """Say whether few events are likely to match, so that sorting them beats walking the timeline."""
        return self.errors or self.found is not None

    def apply(self, events: Events) -> Events:
        """Return those of `events` that match."""
        if self.categories:
            events = events.filter(_of_categories(self.categories))
        if self.tool:
            events = events.filter(event_type__in=CATEGORIES["calls"], tool_name=self.tool)
        if self.errors:
            events = events.filter(error__isnull=False)
        if self.found is not None:
            events = events.filter(id__in=self.found)
        return events


@dataclass(frozen=True, slots=True)
class Window:
    """Neighbouring events of a timeline in their order, and whether there are more on either side."""

    events: list[TimelineEvent]
    older: bool
    newer: bool


class _Bytes(Func):
    """How many bytes a text column holds; PostgreSQL does not unpack the text for it."""

    function = "octet_length"
    template = "%(function)s(%(expressions)s)"
    output_field = models.BigIntegerField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template="length(CAST(%(expressions)s AS BLOB))", **context)


# Where each field of a TimelineEvent is read from, but for the JSON columns.
_SOURCES = {
    **{name: name for name in ("id", "at_us", *EVENT_COLUMNS) if name not in {"session_id", *JSON_COLUMNS}},
    "error": "error_head",
    **{
        name: f"context__{name}"
        for name in ("tool_use_id", "subagent", "duration_ms", "model", "source", "masked", "prompt_id")
    },
    "tokens_in": "tokens_in",
    "tokens_out": "context__output_tokens",
    "gateway": "gateway_told",
}
_GATEWAY_TOLD = Case(
    When(context__source=BY_GATEWAY, then=F("context__extra__text")), output_field=models.TextField()
)
_READ = sum(
    (Coalesce(F(f"context__{kind}_tokens"), 0) for kind in ("cache_read", "cache_write")),
    F("context__input_tokens"),
)


# The id below which all events of a wide session have a context.
_complete: SessionCache[int] = SessionCache()


class Timeline:
    """One session's events, seen through `filters`. Every method is one or two queries."""

    def __init__(self, session_id: str, filters: Filters | None = None) -> None:
        self.session_id = session_id
        self.filters = filters or Filters()

    def seen_through(self, filters: Filters | None = None) -> Timeline:
        """Return the same timeline with other filters; what is known of the session need not be counted again."""
        other = Timeline(self.session_id, filters)
        known = ("complete", "_span")
        other.__dict__.update({name: self.__dict__[name] for name in known if name in self.__dict__})
        return other

    @cached_property
    def complete(self) -> bool:
        """Say whether every event has its context, so that the index knows the whole order."""
        edge = edge_of(self._span)
        if edge is None:
            return self._is_complete(self._events(), self._contexts())
        upto = _complete.get(self.session_id)
        if upto is None:
            if not self._is_complete(
                self._events().filter(id__lt=edge), self._contexts().filter(event_id__lt=edge)
            ):
                return False
            upto = edge
            _complete.put(self.session_id, upto)
        return self._is_complete(
            self._events().filter(id__gte=upto), self._contexts().filter(event_id__gte=upto)
        )

    @staticmethod
    def _is_complete(events: Events, contexts: QuerySet[EventContext]) -> bool:
        return events.count() == contexts.count()

    @cached_property
    def _span(self) -> tuple[int, int] | None:
        """Where the session's events lie, as far as that is known when the timeline is opened."""
        return spans.of(self.session_id)

    def _events(self) -> Events:
        events: Events = Event.objects.filter(session_id=self.session_id)
        return spans.bounded(events, self._span, "id")

    def _contexts(self) -> QuerySet[EventContext]:
        return spans.bounded(EventContext.objects.filter(session_id=self.session_id), self._span, "event_id")

    def first(self, limit: int) -> Window:
        events = self._read(self._ordered(), limit + 1)
        return Window(events[:limit], older=False, newer=len(events) > limit)

    def last(self, limit: int) -> Window:
        events = self._read(self._ordered().reverse(), limit + 1)
        return Window(events[:limit][::-1], older=len(events) > limit, newer=False)

    def after(self, place: EventPlace, limit: int) -> Window:
        """Return what follows `place`, which itself is left out."""
        events = self._read(self._beyond(place), limit + 1)
        return Window(events[:limit], older=self._any_until(place), newer=len(events) > limit)

    def before(self, place: EventPlace, limit: int) -> Window:
        """Return what comes before `place`, which itself is left out."""
        events = self._read(self._short_of(place).reverse(), limit + 1)
        newer = self._from(place).exists()
        return Window(events[:limit][::-1], older=len(events) > limit, newer=newer)

    def between(self, first: EventPlace, last: EventPlace, limit: int) -> Window:
        """Return what stands from `first` to `last`, both included."""
        events = self._read(self._from(first), limit + 1)
        inside = [event for event in events if event.place <= last]
        return Window(inside[:limit], older=True, newer=True)

    def around(self, place: EventPlace, limit: int) -> Window:
        """Return a window in which `place` stands a third of the way down."""
        before = self._read(self._short_of(place).reverse(), limit // 3 + 1)
        from_here = self._read(self._from(place), limit - limit // 3 + 1)
        kept = before[: limit // 3]
        return Window(
            kept[::-1] + from_here[: limit - limit // 3],
            older=len(before) > len(kept),
            newer=len(from_here) > limit - limit // 3,
        )

    def place_of(self, event_id: int) -> EventPlace | None:
        """Return where an event of this session stands, whatever the filters, or None if it is not one."""
        row = self._all().filter(id=event_id).values_list("at_us", flat=True).first()
        return None if row is None else EventPlace(row, event_id)

    def next_place(self, place: EventPlace, *, backwards: bool = False) -> EventPlace | None:
        """Return the nearest place beyond `place` (or before it) that the filters let through."""
        events = self._short_of(place).reverse() if backwards else self._beyond(place)
        found = events.values_list("at_us", "id").first()
        return EventPlace(*found) if found else None

    def arrived(self, ids: Iterable[int]) -> list[TimelineEvent]:
        """Return those of these events that the filters let through, in timeline order, however they are dated."""
        new = self.filters.apply(self._all(indexed=False).filter(id__in=list(ids)))
        return sorted(self._read(new, None), key=lambda event: event.place)

    def events(self, ids: Iterable[int]) -> list[TimelineEvent]:
        """Return these events of the session, in timeline order."""
        found = self._read(self._all(indexed=False).filter(id__in=list(ids)), None)
        return sorted(found, key=lambda event: event.place)

    def by_tool_use(self, tool_use_ids: Iterable[str]) -> list[TimelineEvent]:
        """Return the beginnings and ends of the calls with these ids."""
        ids = self._contexts().filter(tool_use_id__in=list(tool_use_ids)).values_list("event_id", flat=True)
        return self.events(ids)

    def _all(self, *, indexed: bool = True) -> Events:
        """Return the session's events with `at_us`; `indexed` lets the timeline's index lead the way."""
        events: Events
        if indexed and self.complete:
            events = Event.objects.filter(context__session_id=self.session_id)
            events = spans.bounded(events, self._span, "id", "context__event_id")
            at_us: Any = F("context__instant_us")
        else:
            events = self._events()
            at_us = Coalesce(
                F("context__instant_us"),
                Instant(F("timestamp")),
                Value(LAST_INSTANT),
                output_field=models.BigIntegerField(),
            )
        dated: Events = events.annotate(at_us=at_us)
        return dated

    def _ordered(self) -> Events:
        events: Events
        if self.filters.narrow and self.complete:
            # Few match: find them by their own index, then look their instants up and sort.
            events = spans.bounded(self._events(), self._span, "context__event_id")
            events = events.filter(context__isnull=False).annotate(at_us=F("context__instant_us"))
        else:
            events = self._all()
        events = self.filters.apply(events)
        by = ("context__instant_us", "context__event_id") if self.complete else ("at_us", "id")
        return events.order_by(*by)

    def _beyond(self, place: EventPlace) -> Events:
        later = Q(at_us__gt=place.at_us) | Q(id__gt=place.event_id)
        return self._ordered().filter(later, at_us__gte=place.at_us)

    def _from(self, place: EventPlace) -> Events:
        return self._beyond(EventPlace(place.at_us, place.event_id - 1))

    def _short_of(self, place: EventPlace) -> Events:
        earlier = Q(at_us__lt=place.at_us) | Q(id__lt=place.event_id)
        return self._ordered().filter(earlier, at_us__lte=place.at_us)

    def _any_until(self, place: EventPlace) -> bool:
        return self._short_of(EventPlace(place.at_us, place.event_id + 1)).exists()

    def _read(self, events: Events, limit: int | None) -> list[TimelineEvent]:
        heads = {f"{name}_head": Substr(f"{name}__text", 1, READ_UP_TO) for name in JSON_COLUMNS}
        sizes = {f"{name}_size": _Bytes(F(name)) for name in JSON_COLUMNS}
        rows = events.annotate(**heads, **sizes, error_head=Substr("error", 1, READ_UP_TO), tokens_in=_READ)
        rows = rows.annotate(gateway_told=_GATEWAY_TOLD)
        values = rows.values_list(*_SOURCES.values(), *heads, *sizes)
        found = [_event(row) for row in (values if limit is None else values[:limit])]
        return _read_whole(found)


def _of_categories(categories: tuple[str, ...]) -> Q:
    named = [word for category in categories for word in CATEGORIES.get(category, ())]
    condition = Q(event_type__in=named)
    if "other" in categories:
        condition |= ~Q(event_type__in=[word for words in CATEGORIES.values() for word in words])
    return condition


def _event(row: tuple[Any, ...]) -> TimelineEvent:
    fields: dict[str, Any] = dict(zip(_SOURCES, row, strict=False))
    heads, sizes = row[len(_SOURCES) : -len(JSON_COLUMNS)], row[-len(JSON_COLUMNS) :]
    fields |= {name: _stored(*read) for name, *read in zip(JSON_COLUMNS, heads, sizes, strict=True)}
    fields |= {"masked": fields["masked"] or 0, "gateway": _gateway_times(fields["gateway"])}
    return TimelineEvent(**fields)


def _gateway_times(text: str | None) -> GatewayTimes | None:
    told = decoded(text) if text else None
    told = told.get("gateway") if isinstance(told, dict) else None
    if not isinstance(told, dict):
        return None
    times = [told.get(name) for name in ("waited_ms", "upstream_ms", "own_ms", "resumed")]
    waited, upstream, own, resumed = (float(one) if isinstance(one, int | float) else 0.0 for one in times)
    return GatewayTimes(waited, upstream, own, int(resumed))


def _read_whole(events: list[TimelineEvent]) -> list[TimelineEvent]:
    """Return the events with their long values whole, as far as there is room."""
    room = ROOM_PER_WINDOW
    wanted: dict[int, list[str]] = {}
    for event in events:
        for name in JSON_COLUMNS:
            stored = getattr(event, name)
            if stored and not stored.whole and stored.size <= min(room, ROOM_PER_VALUE):
                room -= stored.size
                wanted.setdefault(event.id, []).append(name)
    if not wanted:
        return events
    texts = {
        row["id"]: row
        for row in Event.objects.filter(id__in=list(wanted)).values(
            "id", *(f"{name}__text" for name in JSON_COLUMNS)
        )
    }
    return [_with_whole(event, wanted.get(event.id, []), texts.get(event.id)) for event in events]


def _with_whole(event: TimelineEvent, names: list[str], row: dict[str, Any] | None) -> TimelineEvent:
    values: dict[str, Any] = {
        name: StoredValue(decoded(row[f"{name}__text"]), getattr(event, name).size) for name in names if row
    }
    return replace(event, **values) if values else event


def _stored(head: str | None, size: int | None) -> StoredValue | None:
    if head is None:
        return None
    if len(head) < READ_UP_TO:
        return StoredValue(decoded(head), size or 0)
    return StoredValue(_beginning(head), size or 0, whole=False)


def _beginning(text: str) -> UnreadableText:
    """Return the readable beginning of cut JSON: a string without its quotes and escapes, else the text."""
    if text.startswith('"'):
        for cut in range(6):  # the last escape may have been cut in two
            try:
                whole = json.loads(text[: len(text) - cut] + '"')
                return UnreadableText(whole.encode("utf-8", "backslashreplace").decode())
            except ValueError:
                continue
    return UnreadableText(text)
