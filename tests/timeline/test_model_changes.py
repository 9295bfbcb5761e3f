"""An answer by another model than the one before says so, wherever a window of the timeline begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from coordinator.actions.sessions.events import record_events
from coordinator.lib import instants
from coordinator.models import Session
from coordinator.sessions.events import NewEvent
from coordinator.sessions.timeline import (
    EventWindow,
    MessageRow,
    SessionTimeline,
    TimelineFilters,
    load_arrived_rows_of_events,
    load_window_rows,
)
from dashboard.timeline.rows import TimelineRowDisplay
from tests.people import signed_in

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 27, 9, tzinfo=UTC)
OPUS, SONNET = "claude-opus-4-6", "claude-sonnet-4-5"


@pytest.fixture
def session() -> Session:
    return Session.objects.create(session_id="ses_1", status="running", created_at=NOW)


def say(
    session: Session, second: int, model: str | None, *, role: str = "assistant", subagent: str | None = None
) -> None:
    event = NewEvent(
        event_type="message",
        session_id=session.pk,
        timestamp=instants.format_canonical_instant(NOW + timedelta(seconds=second)),
        role=role,
        content=[{"type": "text", "text": f"at {second}"}],
        model=model,
        subagent=subagent,
    )
    record_events([event], NOW)


def changes(session: Session, window: EventWindow, filters: TimelineFilters | None = None) -> list[str]:
    rows = load_window_rows(SessionTimeline(session.pk, filters), window, session)
    shown = [TimelineRowDisplay(row, "/", 0) for row in rows if isinstance(row, MessageRow)]
    return [one.model_change for one in shown]


def test_an_answer_by_another_model_says_from_which_to_which(session: Session) -> None:
    say(session, 1, OPUS)
    say(session, 2, None, role="user")
    say(session, 3, f"{OPUS}-20260205")  # the same with its date
    say(session, 4, "claude-haiku-4-5", subagent="a1")
    say(session, 5, SONNET)
    say(session, 6, SONNET)
    timeline = SessionTimeline(session.pk)
    said = f"Model changed from {OPUS}-20260205 to {SONNET}"
    assert changes(session, timeline.read_first_events(50)) == ["", "", "", "", said, ""]
    # A window that begins with the answer knows the one before.
    assert changes(session, timeline.read_last_window(2)) == [said, ""]
    errors = TimelineFilters(categories=("messages",))
    assert not any(changes(session, timeline.read_first_events(50), errors))
    page = " ".join(signed_in("viewer").get(f"/ui/sessions/{session.pk}/").content.decode().split())
    assert page.count(said) == 1


def test_an_answer_that_arrives_says_it_too(session: Session) -> None:
    say(session, 1, OPUS)
    say(session, 2, SONNET)
    timeline = SessionTimeline(session.pk)
    (row,) = load_arrived_rows_of_events(timeline, timeline.read_last_window(1).events, session).new
    assert isinstance(row, MessageRow)
    assert row.model_before == OPUS
