"""A message whose sender dies in the middle becomes an event, masked; its pieces do not lie there for ever."""

from __future__ import annotations

from datetime import timedelta

import pytest

from coordinator.actions.sessions import reported_sessions
from coordinator.actions.sessions.events import record_events
from coordinator.actions.upkeep import housekeeping
from coordinator.models import Event, MessagePart, Session
from coordinator.sessions.events import NewEvent
from coordinator.sessions.reports import MessagePiece
from tests.secrets.corpus import SECRETS
from tests.timelines import BEGAN, add_events, make_session, said

TOKEN = SECRETS["github"]
LATE = BEGAN + timedelta(minutes=16)


@pytest.fixture
def session(db: None) -> Session:
    """A session in which half a message was displayed, with a token cut in two, before its agent was killed."""
    session = make_session("ses_a", status="running", executor_session_id="claude-1")
    add_events(session, [said("user", "Go.", at=0)])
    for place, text in enumerate([f"Your token is {TOKEN[:9]}", f"{TOKEN[9:]}, I will"]):
        reported_sessions.store_piece_or_pop_message("ses_a", MessagePiece("m1", place, text, False))
    return session


def messages() -> list[str]:
    return [event.content[0]["text"] for event in Event.objects.filter(role="assistant")]


def test_pieces_of_a_dead_sender_become_a_masked_event(session: Session) -> None:
    housekeeping.run_housekeeping(LATE)
    housekeeping.run_housekeeping(LATE)

    assert not MessagePart.objects.exists()
    [text] = messages()
    assert text.startswith("Your token is [masked: GitHub token ")
    assert text.endswith(", I will")


def test_pieces_of_a_message_that_is_being_told_are_left(session: Session) -> None:
    record_events(
        [NewEvent(event_type="message", session_id="ses_a", timestamp="")], BEGAN + timedelta(minutes=10)
    )
    housekeeping.run_housekeeping(LATE)

    assert MessagePart.objects.count() == 2
    assert messages() == []
