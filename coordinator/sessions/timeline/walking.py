"""Walking a whole session, a stretch at a time, so that a million events need no memory."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.models import Event, Session
from coordinator.sessions.timeline.reading import EventWindow, SessionTimeline
from coordinator.sessions.timeline.rows import TimelineRow, load_window_rows

STRETCH = 400  # events


def walk_timeline_windows(timeline: SessionTimeline) -> Iterator[EventWindow]:
    """Yield a timeline from its beginning to its end."""
    window = timeline.read_first_events(STRETCH)
    while True:
        yield window
        if not window.newer:
            return
        window = timeline.read_window_after_position(window.events[-1].event_position, STRETCH)


def walk_session_rows(session: Session) -> Iterator[TimelineRow]:
    timeline = SessionTimeline(session.pk)
    for window in walk_timeline_windows(timeline):
        yield from load_window_rows(timeline, window, session)


def walk_session_events(session: Session) -> Iterator[Event]:
    """Yield a session's events, with their contexts and whole values, in timeline order."""
    for window in walk_timeline_windows(SessionTimeline(session.pk)):
        ids = [event.id for event in window.events]
        events = Event.objects.select_related("context").in_bulk(ids)
        yield from (events[pk] for pk in ids if pk in events)
