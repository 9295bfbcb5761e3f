"""A killed agent says no goodbye: silence makes its session idle, then ends it, and a word takes it up again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.test import Client

from coordinator.actions.sessions import reported_sessions
from coordinator.actions.sessions.events import record_events
from coordinator.actions.upkeep import housekeeping
from coordinator.models import AuditLog, Event, Run, Session
from coordinator.policy.requests.tool_calls import GATEWAY
from coordinator.sessions import inactivity
from coordinator.sessions.events import NewEvent
from coordinator.sessions.reports import SessionLocation
from tests.sessions.test_list import ask
from tests.timelines import BEGAN, add_events, make_session, said

MINUTE = timedelta(minutes=1)
LATE = BEGAN + timedelta(hours=12, seconds=1)


@pytest.fixture
def session(db: None) -> Session:
    """One of Claude Code, last heard of when it began."""
    session = make_session(
        "ses_a", status="running", executor_session_id="claude-1", executor_profile="claude-code"
    )
    add_events(session, [said("user", "Go.", at=0)])
    return session


def status(session: Session) -> str:
    session.refresh_from_db()
    return session.status


def drive(session: Session) -> None:
    Run.objects.create(
        run_id="run_1", session=session, type="start_session", prompt="x", status="running", created_at=BEGAN
    )


def test_a_silent_session_is_shown_as_idle_and_its_status_stays(session: Session, viewer: Client) -> None:
    for later, chip in ((14 * MINUTE, "Running"), (16 * MINUTE, "Idle")):
        with time_machine.travel(BEGAN + later, tick=False):
            assert f"</svg>{chip}</span>" in viewer.get("/ui/sessions/").content.decode()
            assert f"</svg>{chip}</span>" in viewer.get("/ui/sessions/ses_a/-/header/").content.decode()
    assert status(session) == "running"


def test_a_session_that_a_run_drives_is_not_idle(session: Session) -> None:
    assert inactivity.find_idle_session_ids(["ses_a"], LATE) == {"ses_a"}
    drive(session)
    assert inactivity.find_idle_session_ids(["ses_a"], LATE) == set()


def test_long_silence_ends_it_in_the_timeline_and_in_the_audit_log(session: Session) -> None:
    housekeeping.end_silent_sessions(LATE - 2 * MINUTE)
    assert status(session) == "running"
    housekeeping.end_silent_sessions(LATE)
    housekeeping.end_silent_sessions(LATE)
    assert status(session) == "finished"
    assert list(Event.objects.filter(event_type="session_stop").values_list("reason", flat=True)) == [
        "silence"
    ]
    (row,) = AuditLog.objects.filter(event_type="SESSION_ENDED_BY_SILENCE")
    assert (row.actor_id, row.target_id, row.reason) == (
        "system:housekeeping",
        "ses_a",
        "No activity for 12h 00m.",
    )


@pytest.mark.parametrize("why", ["waits for a person", "driven by a run", "not one that tells by itself"])
def test_silence_does_not_end_every_session(session: Session, why: str) -> None:
    if why == "waits for a person":
        ask(session)
    elif why == "driven by a run":
        drive(session)
    else:
        Session.objects.update(executor_profile="coder")
    housekeeping.end_silent_sessions(LATE)
    assert status(session) == "running"


def test_any_word_takes_up_what_silence_has_ended(session: Session) -> None:
    housekeeping.end_silent_sessions(LATE)
    reported_sessions.reopen_or_create_session("claude-1", SessionLocation(), LATE + MINUTE)
    assert status(session) == "running"
    assert session.last_resumed_at == LATE + MINUTE
    assert AuditLog.objects.filter(event_type="SESSION_HEARD_AGAIN", target_id="ses_a").count() == 1
    housekeeping.end_silent_sessions(LATE + 2 * MINUTE)  # it has only just spoken
    assert status(session) == "running"


def test_a_late_word_does_not_take_up_what_its_agent_has_ended(session: Session) -> None:
    stop = NewEvent(
        event_type="session_stop", session_id="ses_a", timestamp=BEGAN.isoformat(), reason="logout"
    )
    record_events([stop], BEGAN)
    reported_sessions.reopen_or_create_session("claude-1", SessionLocation(), LATE)
    assert status(session) == "finished"


@pytest.mark.served
def test_the_door_hears_it_again(serve: Callable[..., Any]) -> None:
    import time

    from tests.claude_code.double import Claude

    served = serve(SIGNALBOX_SESSION_SILENT_AFTER="1", SIGNALBOX_LIFECYCLE_INTERVAL="0.2")
    claude = Claude(served)

    def becomes(wanted: str) -> None:
        until = time.monotonic() + 60
        while served.sql("SELECT status FROM sessions") != [(wanted,)]:
            assert time.monotonic() < until, f"it does not become {wanted}"
            time.sleep(0.05)

    claude.before(claude.new_call("Bash", {"command": "sleep 9"}))
    becomes("finished")
    claude.hook("Notification", message="Still here.")
    becomes("running")


def test_silence_ends_the_session_of_calls_of_which_nobody_knows_the_agent_s(db: None) -> None:
    made = reported_sessions.find_or_create_reported_session(
        "mcp-gateway:gws-1", SessionLocation(profile=GATEWAY), BEGAN
    )
    assert inactivity.silent_session_ids_to_end(LATE - MINUTE) == []
    assert inactivity.silent_session_ids_to_end(LATE) == [made.session_id]
