"""Clocks differ: what seems to begin before its session, or to end before it began, shows no negative time."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from coordinator.models import Run, Session
from coordinator.sessions.list_facts import session_start_microseconds
from dashboard.timeline.rows import format_time_offset
from tests.people import signed_in
from tests.timelines import BEGAN, add_events, called, make_session, said

pytestmark = pytest.mark.django_db
NEGATIVE = re.compile(r">\s*[-\N{MINUS SIGN}]\d[\d:]*\s*<|[-\N{MINUS SIGN}]\d+(?:\.\d+)? ?(?:ms|s|m|h|d)\b")
HOUR = 3600


def told_before(seconds: float) -> Session:
    """Return a session whose events are dated before it began."""
    session = make_session("ses_a")
    Run.objects.create(
        run_id="run_1", session=session, type="start_session", prompt="x", status="completed",
        created_at=BEGAN, claimed_at=BEGAN - timedelta(hours=1), started_at=BEGAN,
        completed_at=BEGAN - timedelta(hours=1),
    )  # fmt: skip
    add_events(
        session,
        [
            said("user", "Do it all, please", at=-seconds),
            *called("Bash", {"command": "ls"}, "ok", at=4 - seconds),
            {"event_type": "session_stop", "at": 9 - seconds},
        ],
    )
    return session


@pytest.mark.parametrize("seconds", [0.4, 30, 2 * HOUR, 400 * 24 * HOUR])
@pytest.mark.parametrize(
    "path",
    [
        "/ui/sessions/ses_a/", "/ui/sessions/", "/ui/sessions/ses_a/-/print/", "/ui/sessions/ses_a/-/export.md",
        "/ui/runs/", "/ui/",
    ],
)  # fmt: skip
def test_no_page_shows_a_negative_time(seconds: float, path: str) -> None:
    told_before(seconds)
    answer = signed_in("viewer").get(path)
    body = (answer.getvalue() if answer.streaming else answer.content).decode()
    assert NEGATIVE.findall(body) == []


def test_times_count_from_the_first_event_where_it_was_a_little_earlier() -> None:
    session = told_before(30)
    body = signed_in("viewer").get("/ui/sessions/ses_a/").content.decode()
    assert re.findall(r"data-clock=\"fixed\"\s*>([^<]*)<", body)[:2] == ["0:00", "0:04"]
    assert "31 s" in body
    row = signed_in("admin").get("/ui/sessions/").context["rows"][0]
    assert row.began_at == BEGAN - timedelta(seconds=30)
    assert session_start_microseconds(session) == session_start_microseconds(session, row.facts.first_us)


def test_an_event_of_long_before_does_not_move_the_beginning() -> None:
    session = told_before(400 * 24 * HOUR)
    assert session_start_microseconds(session) == session_start_microseconds(make_session("ses_b"))
    assert format_time_offset(0, session_start_microseconds(session)) == ""
