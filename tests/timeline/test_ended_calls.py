"""A call without a result of a turn that has ended is not shown as running, on an open page either."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.models import Session
from coordinator.sessions.timeline import (
    CallRow,
    SessionTimeline,
    load_arrived_rows_of_events,
    load_window_rows,
)
from tests.people import signed_in
from tests.timelines import add_events, began, make_session, said

pytestmark = pytest.mark.django_db
CALL = began("Bash", {"command": "sleep 600"}, tool_use_id="c1") | {"source": "codex", "prompt_id": "p1"}


@pytest.fixture
def session() -> Session:
    return make_session("ses_a", status="running")


def state(session: Session) -> str:
    timeline = SessionTimeline(session.pk)
    (row,) = (
        one
        for one in load_window_rows(timeline, timeline.read_first_events(100), session)
        if isinstance(one, CallRow)
    )
    return row.call_state


@pytest.mark.parametrize(
    "end",
    [
        {"event_type": "turn_end", "reason": "cancelled"},
        {"event_type": "turn_end", "error": "The model did not answer"},
        {"event_type": "run_completed", "reason": "stopped"},
        {"event_type": "session_stop"},
        said("user", "Do something else."),
    ],
    ids=lambda end: f"{end['event_type']} {end.get('reason') or end.get('error') or ''}".strip(),
)
def test_the_end_of_its_turn_ends_a_call_on_an_open_page_and_on_a_new_one(
    session: Session, end: dict[str, Any]
) -> None:
    add_events(session, [CALL])
    assert state(session) == "running"
    (late,) = add_events(session, [end | {"at": 9}])
    timeline = SessionTimeline(session.pk)
    arrived = load_arrived_rows_of_events(
        timeline, timeline.read_filtered_events_with_ids([late.id]), session
    )
    assert [row.call_state for row in arrived.completed if isinstance(row, CallRow)] == ["no result"]
    assert state(session) == "no result"
    body = signed_in("viewer").get("/ui/sessions/ses_a/").content.decode()
    assert "No result was reported" in body
    assert "Running <" not in body


@pytest.mark.parametrize(
    "news",
    [
        said("assistant", "I wait."),
        said("user", "Look.", subagent="helper"),
        {"event_type": "model_request"},
        began("Read", {"p": 1}, tool_use_id="c2"),
    ],
    ids=lambda news: news["event_type"],
)
def test_what_happens_beside_a_call_does_not_end_it(session: Session, news: dict[str, Any]) -> None:
    add_events(session, [CALL])
    (late,) = add_events(session, [news | {"at": 9}])
    timeline = SessionTimeline(session.pk)
    assert (
        load_arrived_rows_of_events(
            timeline, timeline.read_filtered_events_with_ids([late.id]), session
        ).completed
        == []
    )
