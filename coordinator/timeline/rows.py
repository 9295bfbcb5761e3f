"""Turns a window of events into the rows that a person reads: one a message, one a call, one a milestone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from coordinator import instants
from coordinator.models import PermissionRequest, Session
from coordinator.session_facts import with_last_instant
from coordinator.timeline.pairing import Pairs, pair_window
from coordinator.timeline.places import Place
from coordinator.timeline.reading import (
    CALL_ENDS,
    CALL_STARTS,
    KINDS,
    Filters,
    Timeline,
    TimelineEvent,
    Window,
)

# Later than every event.
FAR = Place(2**63 - 1, 2**63 - 1)
MOST_BESIDE = 100  # approvals, and children, of one window

CallState = Literal["done", "failed", "running", "no result"]


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `event_id` is the anchor that permalinks name; `place` is where the row stands."""

    place: Place

    kind = "row"

    @property
    def event_id(self) -> int:
        """The id of the event that the row stands for."""
        return self.place.event_id

    @property
    def at(self) -> datetime | None:
        """When it happened, or None where nobody can tell."""
        return self.place.moment

    @property
    def ends_us(self) -> int:
        """When it was over, in microseconds; for most rows the moment itself."""
        return self.place.at_us


@dataclass(frozen=True, slots=True)
class MessageRow(Row):
    """What a person or an agent said."""

    event: TimelineEvent

    kind = "message"


@dataclass(frozen=True, slots=True)
class MarkerRow(Row):
    """A milestone (start, end) or an event of a type that we do not know."""

    event: TimelineEvent

    kind = "marker"


@dataclass(frozen=True, slots=True)
class CallRow(Row):
    """A tool call: its beginning, its end, or both. Without an end it runs, or got no result (`may_run`)."""

    start: TimelineEvent | None
    end: TimelineEvent | None
    may_run: bool

    kind = "call"

    @property
    def either(self) -> TimelineEvent:
        """The half that names the tool and its input; the beginning where there is one."""
        half = self.start or self.end
        assert half is not None
        return half

    @property
    def state(self) -> CallState:
        """How the call went."""
        if self.end is None:
            return "running" if self.may_run else "no result"
        return "failed" if self.end.error is not None else "done"

    @property
    def duration_ms(self) -> int | None:
        """How long it took, as the executor says, else between its two events."""
        if self.end is None:
            return None
        if self.end.duration_ms is not None:
            return self.end.duration_ms
        return None if self.start is None else max(0, self.end.at_us - self.start.at_us) // 1000

    @property
    def ends_us(self) -> int:
        """When the result came."""
        if self.end is None:
            return self.place.at_us
        if self.start is None:
            return self.place.at_us
        return max(self.place.at_us + (self.duration_ms or 0) * 1000, self.place.at_us)


@dataclass(frozen=True, slots=True)
class ApprovalRow(Row):
    """A question that the agent put to people: from when it was asked until somebody, or the clock, ended it."""

    request: PermissionRequest

    kind = "approval"

    @property
    def event_id(self) -> int:
        """Requests are no events: permalinks name their own page."""
        return 0

    @property
    def ended_at(self) -> datetime | None:
        """When it was decided, withdrawn or lapsed; None while it waits."""
        context = self.request.context
        for moment in (context.closed_at, self.request.approved_at):
            if isinstance(moment, datetime):
                return moment
        return None

    @property
    def waits(self) -> bool:
        """Say whether the agent still waits."""
        return self.request.status == "pending"

    @property
    def ends_us(self) -> int:
        """When the agent knew; for one that waits, when it asked."""
        return max(self.place.at_us, instants.to_us(self.ended_at)) if self.ended_at else self.place.at_us


@dataclass(frozen=True, slots=True)
class ChildRow(Row):
    """A session that this one started; `last_us` is when its latest event happened."""

    child: Session
    last_us: int | None

    kind = "child"

    @property
    def runs(self) -> bool:
        """Say whether it is still at work."""
        return self.child.status in {"pending", "running", "stopping"}

    @property
    def ends_us(self) -> int:
        """When its latest event happened."""
        return max(self.place.at_us, self.last_us or 0)

    @property
    def event_id(self) -> int:
        """Children are no events: permalinks name their own page."""
        return 0


def rows_of(timeline: Timeline, window: Window, session: Session) -> list[Row]:
    """Return the rows of a window in order. A result whose call stands in an earlier window is shown there."""
    rows: list[Row] = []
    if window.events:
        pairs = pair_window(timeline, window)
        over = _over_until(timeline, window.events, pairs, session)
        rows += _rows(window.events, pairs, over, strays=bool(timeline.filters))
    if not timeline.filters:
        span = _span(window)
        rows += _approvals(session, **span)
        rows += _children(session, **span)
    return sorted(rows, key=lambda row: row.place)


def rows_since(
    timeline: Timeline, events: list[TimelineEvent], session: Session
) -> tuple[list[Row], list[Row]]:
    """Return the rows that newly arrived `events` make, and the older calls that they complete."""
    if not events:
        return [], []
    pairs = pair_window(timeline, Window(events, older=True, newer=False))
    over = _over_until(timeline, events, pairs, session)
    new = list(_rows(events, pairs, over, strays=False))
    here = {event.id for event in events}
    completed: list[Row] = []
    for event in events:
        start = pairs.start_of.get(event.id)
        if start and start.id not in here:
            completed.append(CallRow(start.place, start, pairs.end_of[start.id], may_run=False))
    return new, completed


def _rows(events: list[TimelineEvent], pairs: Pairs, over: Place | None, *, strays: bool) -> Iterable[Row]:
    here = {event.id for event in events}
    for event in events:
        if event.event_type == CALL_STARTS:
            yield CallRow(
                event.place, event, pairs.end_of.get(event.id), may_run=over is None or event.place > over
            )
        elif event.event_type == CALL_ENDS:
            start = pairs.start_of.get(event.id)
            if start is None or (strays and start.id not in here):
                yield CallRow(event.place, start, event, may_run=False)
        elif event.event_type in KINDS["messages"]:
            yield MessageRow(event.place, event)
        else:
            yield MarkerRow(event.place, event)


def _over_until(
    timeline: Timeline, events: list[TimelineEvent], pairs: Pairs, session: Session
) -> Place | None:
    """Return the place before which a call without a result will get none; None while all may still run."""
    if session.status not in {"running", "stopping"}:
        return FAR
    if not any(event.event_type == CALL_STARTS and event.id not in pairs.end_of for event in events):
        return None
    # A person speaks when the agent's turn is over; a denied or interrupted call is never reported as ended.
    turns = [event.place for event in events if event.role == "user" and event.subagent is None]
    ends = timeline.seen_through(Filters(kinds=("lifecycle",))).last(1).events
    return max([*turns, *(event.place for event in ends)], default=None)


def _span(window: Window) -> dict[str, datetime]:
    """Return the lookups that keep what happened within a window; open ends reach as far as the session."""
    span: dict[str, datetime] = {}
    if window.events and window.older and (first := window.events[0].at):
        span["created_at__gte"] = first
    if window.events and window.newer and (last := window.events[-1].at):
        span["created_at__lt"] = last
    return span


def _approvals(session: Session, **span: datetime) -> Iterable[ApprovalRow]:
    asked = PermissionRequest.objects.filter(context__session_id=session.pk, **span)
    return approval_rows(asked.select_related("context").order_by("created_at", "id")[:MOST_BESIDE])


def approval_rows(requests: Iterable[PermissionRequest]) -> list[ApprovalRow]:
    """Return the rows of permission requests, loaded with their contexts; one without a time has no place."""
    return [
        ApprovalRow(Place.at(request.created_at), request)
        for request in requests
        if isinstance(request.created_at, datetime)
    ]


def _children(session: Session, **span: datetime) -> Iterable[ChildRow]:
    children = with_last_instant(session.children.filter(**span)).order_by("created_at", "session_id")
    return [
        ChildRow(Place.at(child.created_at), child, child.last_us)
        for child in children[:MOST_BESIDE]
        if isinstance(child.created_at, datetime)
    ]
