"""Spans of time in a session: calls, waits for people, child sessions, and messages.

Values are not read: of a session with 20,000 events this is a scan of the timeline's index and of small columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from coordinator.lib import instants
from coordinator.models import Event, EventContext, PermissionRequest, Session
from coordinator.models.permissions import RequestStatus
from coordinator.sessions import titles
from coordinator.sessions.list_facts import annotate_sessions_with_last_event
from coordinator.sessions.statuses import AT_WORK, LIVE
from coordinator.sessions.timeline.pairing import pair_call_events
from coordinator.sessions.timeline.reading import CALL_ENDS, CALL_STARTS, CATEGORIES, TimelineEvent

MOST_EVENTS = 40_000
MOST_WAITS = 500
MOST_CHILDREN = 100
_COLUMNS = (
    "event_id",
    "instant_us",
    "event__event_type",
    "event__tool_name",
    "event__role",
    "tool_use_id",
    "subagent",
    "duration_ms",
    "source",
)


@dataclass(frozen=True, slots=True)
class SessionSpan:
    """Something that took time, in microseconds.

    `kind` is `call`, `wait` (for a person), `child` (a session), or, as instants, `prompt` (by a person) and `said`
    (by the agent). `lane` names the subagent; it is empty for the agent itself. `key` is the id of an event, a request
    or a session.
    """

    kind: str
    lane: str
    name: str
    from_us: int
    to_us: int
    key: str
    state: str = "done"

    @property
    def length_us(self) -> int:
        return self.to_us - self.from_us


@dataclass(frozen=True, slots=True)
class SessionSpans:
    """A session's spans in the order in which they began. `is_cut`: it has more events, which are not among them."""

    spans: list[SessionSpan]
    from_us: int
    to_us: int
    is_cut: bool


def load_session_spans_or_none(session: Session, now: datetime) -> SessionSpans | None:
    """Return the spans of the session's first MOST_EVENTS events; None where nothing in it has an instant."""
    rows = list(
        EventContext.objects.filter(session_id=session.pk)
        .order_by("instant_us", "event_id")
        .values_list(*_COLUMNS)[: MOST_EVENTS + 1]
    )
    if not rows:
        return None
    failed = set(
        Event.objects.filter(session_id=session.pk, error__isnull=False).values_list("id", flat=True)
    )
    events = [build_event_without_content(row, failed) for row in rows[:MOST_EVENTS]]
    now_us = instants.instant_to_microseconds(now) if session.status in LIVE else events[-1].at_us
    spans = [
        *iterate_call_spans(events, now_us if session.status in AT_WORK else None),
        *iterate_message_spans(events),
        *iterate_permission_wait_spans(session, now_us),
        *iterate_child_session_spans(session, now_us),
    ]
    spans.sort(key=lambda span: (span.from_us, -span.to_us))
    return SessionSpans(
        spans,
        min([events[0].at_us, *(span.from_us for span in spans[:1])]),
        max([events[-1].at_us + 1, *(span.to_us for span in spans)]),
        is_cut=len(rows) > MOST_EVENTS,
    )


def build_event_without_content(row: tuple[object, ...], failed: set[int]) -> TimelineEvent:
    """Return an event without what it says; `failed` are the ids of those with an error."""
    event_id, at_us, event_type, tool_name, role, tool_use_id, subagent, duration_ms, source = row
    return TimelineEvent(
        id=event_id,  # type: ignore[arg-type]
        at_us=at_us,  # type: ignore[arg-type]
        event_type=str(event_type),
        timestamp="",
        tool_name=tool_name,  # type: ignore[arg-type]
        tool_input=None,
        tool_output=None,
        content=None,
        error="" if event_id in failed else None,
        exit_code=None,
        reason=None,
        role=role,  # type: ignore[arg-type]
        tool_use_id=tool_use_id,  # type: ignore[arg-type]
        subagent=subagent,  # type: ignore[arg-type]
        duration_ms=duration_ms,  # type: ignore[arg-type]
        model=None,
        source=source,  # type: ignore[arg-type]
    )


def iterate_call_spans(events: list[TimelineEvent], now_us: int | None) -> Iterable[SessionSpan]:
    """Yield the calls, each from its beginning until its result came; one without a result runs until `now_us`."""
    pairs = pair_call_events(events)
    last_prompt = max((event.at_us for event in events if event.role == "user"), default=0)
    for event in events:
        if event.event_type == CALL_STARTS:
            end = pairs.end_of.get(event.id)
            if end is not None:
                to_us = max(end.at_us, event.at_us + (end.duration_ms or 0) * 1000)
                state = "done" if end.error is None else "failed"
            else:
                is_running = now_us is not None and event.at_us > last_prompt
                to_us = now_us if now_us is not None and is_running else event.at_us
                state = "running" if is_running else "no result"
            yield SessionSpan(
                "call",
                event.subagent or "",
                event.tool_name or "tool",
                event.at_us,
                max(to_us, event.at_us),
                str(event.id),
                state,
            )
        elif event.event_type == CALL_ENDS and event.id not in pairs.start_of:
            from_us = event.at_us - (event.duration_ms or 0) * 1000
            state = "done" if event.error is None else "failed"
            yield SessionSpan(
                "call",
                event.subagent or "",
                event.tool_name or "tool",
                from_us,
                event.at_us,
                str(event.id),
                state,
            )


def iterate_message_spans(events: Iterable[TimelineEvent]) -> Iterable[SessionSpan]:
    """Yield people's prompts and what the agent said, as instants."""
    for event in events:
        if event.event_type in CATEGORIES["messages"] and event.subagent is None:
            kind = "prompt" if event.role == "user" else "said"
            yield SessionSpan(kind, "", kind, event.at_us, event.at_us, str(event.id))


def iterate_permission_wait_spans(session: Session, now_us: int) -> Iterable[SessionSpan]:
    """Yield what waited for people, from the question to its end."""
    requests = PermissionRequest.objects.filter(context__session_id=session.pk).order_by("id")
    columns = (
        "request_id",
        "created_at",
        "status",
        "approved_at",
        "context__closed_at",
        "context__tool_name",
        "permission_type",
    )
    for key, created_at, status, approved_at, closed_at, tool, kind in requests.values_list(*columns)[
        :MOST_WAITS
    ]:
        if not isinstance(created_at, datetime):
            continue
        from_us = instants.instant_to_microseconds(created_at)
        ended_at = next((moment for moment in (closed_at, approved_at) if isinstance(moment, datetime)), None)
        to_us = now_us if ended_at is None else instants.instant_to_microseconds(ended_at)
        state = "waiting" if status == RequestStatus.PENDING else str(status)
        yield SessionSpan("wait", "", tool or kind, from_us, max(from_us, to_us), key, state)


def iterate_child_session_spans(session: Session, now_us: int) -> Iterable[SessionSpan]:
    """Yield the sessions that this one started, until their last event."""
    children = list(
        annotate_sessions_with_last_event(session.children.all()).order_by("created_at", "session_id")[
            :MOST_CHILDREN
        ]
    )
    names = titles.load_session_titles(child.pk for child in children)
    for child in children:
        if isinstance(child.created_at, datetime):
            from_us = instants.instant_to_microseconds(child.created_at)
            is_running = child.status in AT_WORK
            to_us = now_us if is_running else child.last_us or from_us
            name = names.get(child.pk) or child.agent_name or child.pk
            yield SessionSpan(
                "child", "", name, from_us, max(from_us, to_us), child.pk, "running" if is_running else "done"
            )
