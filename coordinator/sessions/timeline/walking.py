"""Walking a whole session, a stretch at a time, so that a million events need no memory."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.models import Event, Session
from coordinator.sessions.timeline.reading import Timeline, Window
from coordinator.sessions.timeline.rows import Row, rows_of

STRETCH = 400  # events


def windows_of(timeline: Timeline) -> Iterator[Window]:
    """Yield a timeline from its beginning to its end."""
    window = timeline.first(STRETCH)
    while True:
        yield window
        if not window.newer:
            return
        window = timeline.after(window.events[-1].place, STRETCH)


def walk_rows(session: Session) -> Iterator[Row]:
    timeline = Timeline(session.pk)
    for window in windows_of(timeline):
        yield from rows_of(timeline, window, session)


def walk_events(session: Session) -> Iterator[Event]:
    """Yield a session's events, with their contexts and whole values, in timeline order."""
    for window in windows_of(Timeline(session.pk)):
        ids = [event.id for event in window.events]
        found = Event.objects.select_related("context").in_bulk(ids)
        yield from (found[pk] for pk in ids if pk in found)
