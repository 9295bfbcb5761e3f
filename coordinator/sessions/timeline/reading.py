"""Windows of a session's events, read from any position, in both directions, whatever the session's size.

The order is (instant, event id), and the index of `event_context` serves it. An event that another program has
just written, or that an older database brought along, has no context row yet. Such a session is recognised by two
counts and read by a slower query that works the instants out, so that no event is ever missing from a page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, reduce
from operator import or_
from typing import Any

from django.db import models
from django.db.models import Case, F, Func, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce, Substr

from coordinator.models import Event, EventContext, UnreadableText
from coordinator.models.fields import InstantTransform, decode_stored_json
from coordinator.models.gateway import BY_GATEWAY
from coordinator.sessions.events import EVENT_COLUMNS, JSON_COLUMNS
from coordinator.sessions.timeline.positions import EventPosition
from coordinator.sessions.timeline.rewinds import RewoundSpan, load_rewound_spans

# Longer values are read to this many characters at first. As long as there is room they are then read whole,
# because cut JSON cannot be decoded; of the rest, people see the beginning.
READ_UP_TO = 32_768
ROOM_PER_VALUE = 2_000_000
ROOM_PER_WINDOW = 6_000_000
# An unreadable timestamp that nobody has given an instant yet is put at the end: it has only just come.
LAST_INSTANT = 2**62

CALL_STARTS, CALL_ENDS = "pre_tool", "post_tool"
UNNAMED_TOOL = "tool"  # what counts and filters call the tool of a call that names none
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
    """Times of a call that the MCP gateway reported, in milliseconds: the wait for people, the server's, its own.

    `resumed` is how often it asked the server for the rest of an answer, whose stream had ended before the result.
    `marks` say what in the result may be instructions to the model. `cached_seconds` is how old the result is where the
    cache answered.
    """

    waited_ms: float
    upstream_ms: float
    own_ms: float
    resumed: int = 0
    marks: tuple[str, ...] = ()
    cached_seconds: int | None = None


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
    def event_position(self) -> EventPosition:
        return EventPosition(self.at_us, self.id)

    @property
    def is_reported_by_gateway(self) -> bool:
        """Say whether the MCP gateway reported it."""
        return self.source == BY_GATEWAY

    @property
    def event_datetime(self) -> datetime | None:
        """When it happened, or None where that is unknown."""
        return self.event_position.position_datetime


@dataclass(frozen=True, slots=True)
class TimelineFilters:
    """What a reader wants to see: CATEGORIES of events, one tool, errors only, or events found by a search."""

    categories: tuple[str, ...] = ()
    tool: str = ""
    errors: bool = False
    found_ids: tuple[int, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self.categories or self.tool or self.errors or self.found_ids is not None)

    @property
    def are_timeline_filters_selective(self) -> bool:
        """Say whether few events are likely to match, so that sorting them beats walking the timeline."""
        return self.errors or self.found_ids is not None

    def filter_events(self, events: Events) -> Events:
        """Return those of `events` that match."""
        if self.categories:
            events = events.filter(event_category_condition(self.categories))
        if self.tool:
            events = events.filter(tool_condition(self.tool), event_type__in=CATEGORIES["calls"])
        if self.errors:
            events = events.filter(error__isnull=False)
        if self.found_ids is not None:
            events = events.filter(id__in=self.found_ids)
        return events


@dataclass(frozen=True, slots=True)
class EventWindow:
    """Neighbouring events of a timeline in their order, and whether there are more on either side."""

    events: list[TimelineEvent]
    older: bool
    newer: bool


class ByteLength(Func):
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
    "gateway": "gateway_extra",
}
MOST_MARKS = 10  # of a result, that are shown
_GATEWAY_EXTRA = Case(
    When(context__source=BY_GATEWAY, then=F("context__extra__text")), output_field=models.TextField()
)
_READ = sum(
    (Coalesce(F(f"context__{kind}_tokens"), 0) for kind in ("cache_read", "cache_write")),
    F("context__input_tokens"),
)


class SessionTimeline:
    """One session's events, seen through `filters`. Every method is one or two queries."""

    def __init__(self, session_id: str, filters: TimelineFilters | None = None) -> None:
        self.session_id = session_id
        self.filters = filters or TimelineFilters()

    def with_filters(self, filters: TimelineFilters | None = None) -> SessionTimeline:
        """Return the same timeline with other filters; what is known of the session need not be counted again."""
        other = SessionTimeline(self.session_id, filters)
        if "complete" in self.__dict__:
            other.__dict__["complete"] = self.complete
        return other

    @cached_property
    def complete(self) -> bool:
        """Say whether every event has its context, so that the index knows the whole order."""
        return (
            self.unfiltered_session_events().count()
            == EventContext.objects.filter(session_id=self.session_id).count()
        )

    @cached_property
    def rewound_spans(self) -> list[RewoundSpan]:
        """What a person left behind by rewinding."""
        return load_rewound_spans(self.session_id)

    def unfiltered_session_events(self) -> Events:
        events: Events = Event.objects.filter(session_id=self.session_id)
        return events

    def read_first_events(self, limit: int) -> EventWindow:
        events = self.fetch_timeline_events(self.ordered_filtered_events(), limit + 1)
        return EventWindow(events[:limit], older=False, newer=len(events) > limit)

    def read_last_window(self, limit: int) -> EventWindow:
        events = self.fetch_timeline_events(self.ordered_filtered_events().reverse(), limit + 1)
        return EventWindow(events[:limit][::-1], older=len(events) > limit, newer=False)

    def read_window_after_position(self, position: EventPosition, limit: int) -> EventWindow:
        """Return what follows `place`, which itself is left out."""
        events = self.fetch_timeline_events(self.events_after_position(position), limit + 1)
        return EventWindow(events[:limit], older=self.has_events_until(position), newer=len(events) > limit)

    def read_window_before_position(self, position: EventPosition, limit: int) -> EventWindow:
        """Return what comes before `place`, which itself is left out."""
        events = self.fetch_timeline_events(self.events_before_position(position).reverse(), limit + 1)
        newer = self.events_from_position(position).exists()
        return EventWindow(events[:limit][::-1], older=len(events) > limit, newer=newer)

    def read_window_around_position(self, position: EventPosition, limit: int) -> EventWindow:
        """Return a window in which `place` is a third of the way down."""
        before = self.fetch_timeline_events(self.events_before_position(position).reverse(), limit // 3 + 1)
        from_here = self.fetch_timeline_events(self.events_from_position(position), limit - limit // 3 + 1)
        rows_before = before[: limit // 3]
        return EventWindow(
            rows_before[::-1] + from_here[: limit - limit // 3],
            older=len(before) > len(rows_before),
            newer=len(from_here) > limit - limit // 3,
        )

    def find_event_position(self, event_id: int) -> EventPosition | None:
        """Return the position of an event of this session, whatever the filters, or None if it is not one."""
        row = self.dated_session_events().filter(id=event_id).values_list("at_us", flat=True).first()
        return None if row is None else EventPosition(row, event_id)

    def answering_model_before_or_empty(self, position: EventPosition) -> str:
        """Return the model of the last answer of the session's own agent before `position`; "" where none is known."""
        answers = EventContext.objects.filter(
            Q(instant_us__lt=position.at_us) | Q(event_id__lt=position.event_id),
            session_id=self.session_id,
            instant_us__lte=position.at_us,
            subagent__isnull=True,
            model__isnull=False,
            event__event_type="message",
            event__role="assistant",
        )
        newest = answers.order_by("-instant_us", "-event_id").values_list("model", flat=True).first()
        return newest or ""

    def find_next_position(self, start: EventPosition, *, backwards: bool = False) -> EventPosition | None:
        """Return the nearest place beyond `start` (or before it) that the filters let through."""
        events = (
            self.events_before_position(start).reverse() if backwards else self.events_after_position(start)
        )
        position = events.values_list("at_us", "id").first()
        return EventPosition(*position) if position else None

    def read_filtered_events_with_ids(self, ids: Iterable[int]) -> list[TimelineEvent]:
        """Return those of these events that the filters let through, in timeline order, however they are dated."""
        new = self.filters.filter_events(self.dated_session_events(indexed=False).filter(id__in=list(ids)))
        return sorted(self.fetch_timeline_events(new, None), key=lambda event: event.event_position)

    def read_events_with_ids(self, ids: Iterable[int]) -> list[TimelineEvent]:
        """Return these events of the session, in timeline order."""
        timeline_events = self.fetch_timeline_events(
            self.dated_session_events(indexed=False).filter(id__in=list(ids)), None
        )
        return sorted(timeline_events, key=lambda event: event.event_position)

    def read_events_in_spans(self, spans: Iterable[RewoundSpan], most: int) -> list[TimelineEvent]:
        """Return the newest events of these stretches, in timeline order."""
        within = reduce(or_, (Q(at_us__range=(span.first_us, span.last_us)) for span in spans), Q(pk=None))
        newest = self.dated_session_events().filter(within).order_by("-at_us", "-id")[:most]
        return self.read_events_with_ids(newest.values_list("id", flat=True))

    def read_tool_use_events(self, tool_use_ids: Iterable[str]) -> list[TimelineEvent]:
        """Return the beginnings and ends of the calls with these ids."""
        ids = EventContext.objects.filter(
            session_id=self.session_id, tool_use_id__in=list(tool_use_ids)
        ).values_list("event_id", flat=True)
        return self.read_events_with_ids(ids)

    def dated_session_events(self, *, indexed: bool = True) -> Events:
        """Return the session's events with `at_us`; `indexed` lets the timeline's index lead the way."""
        events: Events
        if indexed and self.complete:
            events = Event.objects.filter(context__session_id=self.session_id)
            at_us: Any = F("context__instant_us")
        else:
            events = self.unfiltered_session_events()
            at_us = Coalesce(
                F("context__instant_us"),
                InstantTransform(F("timestamp")),
                Value(LAST_INSTANT),
                output_field=models.BigIntegerField(),
            )
        dated: Events = events.annotate(at_us=at_us)
        return dated

    def ordered_filtered_events(self) -> Events:
        events: Events
        if self.filters.are_timeline_filters_selective and self.complete:
            # Few match: find them by their own index, then look their instants up and sort.
            events = (
                self.unfiltered_session_events()
                .filter(context__isnull=False)
                .annotate(at_us=F("context__instant_us"))
            )
        else:
            events = self.dated_session_events()
        events = self.filters.filter_events(events)
        by = ("context__instant_us", "context__event_id") if self.complete else ("at_us", "id")
        return events.order_by(*by)

    def events_after_position(self, position: EventPosition) -> Events:
        later = Q(at_us__gt=position.at_us) | Q(id__gt=position.event_id)
        return self.ordered_filtered_events().filter(later, at_us__gte=position.at_us)

    def events_from_position(self, position: EventPosition) -> Events:
        return self.events_after_position(EventPosition(position.at_us, position.event_id - 1))

    def events_before_position(self, position: EventPosition) -> Events:
        earlier = Q(at_us__lt=position.at_us) | Q(id__lt=position.event_id)
        return self.ordered_filtered_events().filter(earlier, at_us__lte=position.at_us)

    def has_events_until(self, position: EventPosition) -> bool:
        return self.events_before_position(EventPosition(position.at_us, position.event_id + 1)).exists()

    def fetch_timeline_events(self, events: Events, limit: int | None) -> list[TimelineEvent]:
        heads = {f"{name}_head": Substr(f"{name}__text", 1, READ_UP_TO) for name in JSON_COLUMNS}
        sizes = {f"{name}_size": ByteLength(F(name)) for name in JSON_COLUMNS}
        rows = events.annotate(**heads, **sizes, error_head=Substr("error", 1, READ_UP_TO), tokens_in=_READ)
        rows = rows.annotate(gateway_extra=_GATEWAY_EXTRA)
        values = rows.values_list(*_SOURCES.values(), *heads, *sizes)
        timeline_events = [build_timeline_event(row) for row in (values if limit is None else values[:limit])]
        return with_long_values_loaded(timeline_events)


def event_category_condition(categories: tuple[str, ...]) -> Q:
    named_types = [word for category in categories for word in CATEGORIES.get(category, ())]
    condition = Q(event_type__in=named_types)
    if "other" in categories:
        condition |= ~Q(
            event_type__in=[word for category_types in CATEGORIES.values() for word in category_types]
        )
    return condition


def tool_condition(tool: str) -> Q:
    """Return the condition for events of a tool's calls; UNNAMED_TOOL stands for those that name no tool, too."""
    named = Q(tool_name=tool)
    return named | Q(tool_name__isnull=True) | Q(tool_name="") if tool == UNNAMED_TOOL else named


def build_timeline_event(row: tuple[Any, ...]) -> TimelineEvent:
    fields: dict[str, Any] = dict(zip(_SOURCES, row, strict=False))
    heads, sizes = row[len(_SOURCES) : -len(JSON_COLUMNS)], row[-len(JSON_COLUMNS) :]
    fields |= {
        name: build_stored_value(*read) for name, *read in zip(JSON_COLUMNS, heads, sizes, strict=True)
    }
    fields |= {"masked": fields["masked"] or 0, "gateway": parse_gateway_times(fields["gateway"])}
    return TimelineEvent(**fields)


def parse_gateway_times(text: str | None) -> GatewayTimes | None:
    stored_json = decode_stored_json(text) if text else None
    stored_json = stored_json.get("gateway") if isinstance(stored_json, dict) else None
    if not isinstance(stored_json, dict):
        return None
    times = [stored_json.get(name) for name in ("waited_ms", "upstream_ms", "own_ms", "resumed")]
    waited, upstream, own, resumed = (float(part) if isinstance(part, int | float) else 0.0 for part in times)
    marks = stored_json.get("marks")
    known_marks = (
        tuple(mark for mark in marks if isinstance(mark, str))[:MOST_MARKS] if isinstance(marks, list) else ()
    )
    cached = stored_json.get("cached_seconds")
    cached_seconds = cached if isinstance(cached, int) and not isinstance(cached, bool) else None
    return GatewayTimes(waited, upstream, own, int(resumed), known_marks, cached_seconds)


def with_long_values_loaded(events: list[TimelineEvent]) -> list[TimelineEvent]:
    """Return the events with their long values whole, as far as there is room."""
    bytes_left = ROOM_PER_WINDOW
    wanted_fields: dict[int, list[str]] = {}
    for event in events:
        for name in JSON_COLUMNS:
            stored = getattr(event, name)
            if stored and not stored.whole and stored.size <= min(bytes_left, ROOM_PER_VALUE):
                bytes_left -= stored.size
                wanted_fields.setdefault(event.id, []).append(name)
    if not wanted_fields:
        return events
    texts = {
        row["id"]: row
        for row in Event.objects.filter(id__in=list(wanted_fields)).values(
            "id", *(f"{name}__text" for name in JSON_COLUMNS)
        )
    }
    return [
        copy_event_with_row_values(event, wanted_fields.get(event.id, []), texts.get(event.id))
        for event in events
    ]


def copy_event_with_row_values(
    event: TimelineEvent, names: list[str], row: dict[str, Any] | None
) -> TimelineEvent:
    values: dict[str, Any] = {
        name: StoredValue(decode_stored_json(row[f"{name}__text"]), getattr(event, name).size)
        for name in names
        if row
    }
    return replace(event, **values) if values else event


def build_stored_value(head: str | None, size: int | None) -> StoredValue | None:
    if head is None:
        return None
    if len(head) < READ_UP_TO:
        return StoredValue(decode_stored_json(head), size or 0)
    return StoredValue(decode_truncated_json_as_text(head), size or 0, whole=False)


def decode_truncated_json_as_text(text: str) -> UnreadableText:
    """Return the readable beginning of cut JSON: a string without its quotes and escapes, else the text."""
    if text.startswith('"'):
        for cut in range(6):  # the last escape may have been cut in two
            try:
                decoded = json.loads(text[: len(text) - cut] + '"')
                return UnreadableText(decoded.encode("utf-8", "backslashreplace").decode())
            except ValueError:
                continue
    return UnreadableText(text)
