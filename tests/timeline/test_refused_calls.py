"""A call that an agent did not let run says so: no hook tells of it, but the turn ended in good order without it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.actions.sessions.events import record_events
from coordinator.dialects import claude_code
from coordinator.models import Session
from coordinator.sessions.timeline import (
    CallRow,
    SessionTimeline,
    load_arrived_rows_of_events,
    load_window_rows,
)
from tests.people import signed_in
from tests.timelines import BEGAN, add_events, began, called, ended, make_session, said

pytestmark = pytest.mark.django_db
APPROVAL = "This command requires approval"


@pytest.fixture
def session() -> Session:
    return make_session("ses_a", status="running")


def told(event: dict[str, Any], prompt: str | None = "p1", source: str = "claude-code") -> dict[str, Any]:
    return event | {"source": source, "prompt_id": prompt}


def turn_end(**fields: Any) -> dict[str, Any]:
    return told({"event_type": "turn_end"}) | fields


ASKED = told(began("Bash", {"command": "make"}, tool_use_id="c1"))


def states(session: Session) -> list[str]:
    timeline = SessionTimeline(session.pk)
    rows = load_window_rows(timeline, timeline.read_first_events(100), session)
    return [row.call_state for row in rows if isinstance(row, CallRow)]


def test_a_call_without_result_in_an_ended_turn_was_refused(session: Session) -> None:
    add_events(session, [told(said("user", "Do it")), ASKED, told(said("assistant", "Done.")), turn_end()])
    assert states(session) == ["refused"]
    body = signed_in("viewer").get("/ui/sessions/ses_a/").content.decode()
    assert "Refused by its agent" in body
    assert "Claude Code itself refused this call" in body
    assert "No result" not in body


def test_it_stays_refused_when_the_session_has_ended(session: Session) -> None:
    add_events(session, [ASKED, turn_end(), {"event_type": "session_stop"}])
    session.status = "finished"
    assert states(session) == ["refused"]


@pytest.mark.parametrize(
    "events",
    [
        [ASKED, turn_end(error="The model did not answer")],
        [ASKED, turn_end(prompt_id="p2")],
        [ASKED, {"event_type": "session_stop"}],
        [ASKED | {"subagent": "helper"}, turn_end()],
        [ASKED | {"source": "codex"}, turn_end(source="codex")],
        [ASKED | {"prompt_id": None}, turn_end(prompt_id=None)],
    ],
)
def test_without_a_turn_that_ended_well_nobody_knows(session: Session, events: list[dict[str, Any]]) -> None:
    add_events(session, events)
    assert states(session) == ["no result"]


def test_calls_with_a_result_are_not_refused(session: Session) -> None:
    add_events(
        session,
        [
            *(told(one) for one in called("Read", {"p": 1}, "text", use="c2")),
            *(told(one) for one in called("Read", {"p": 2}, error="gone", use="c3")),
            turn_end(),
        ],
    )
    assert states(session) == ["done", "failed"]


def test_the_end_of_a_turn_completes_its_rows_on_an_open_page(session: Session) -> None:
    add_events(session, [ASKED])
    assert states(session) == ["running"]
    late = add_events(session, [turn_end(at=9)])
    timeline = SessionTimeline(session.pk)
    arrived = load_arrived_rows_of_events(
        timeline, timeline.read_filtered_events_with_ids([late[0].id]), session
    )
    assert [row.call_state for row in arrived.completed if isinstance(row, CallRow)] == ["refused"]


def test_a_result_that_comes_late_is_believed(session: Session) -> None:
    add_events(session, [ASKED, turn_end(), told(ended("Bash", {"command": "make"}, "ok", tool_use_id="c1"))])
    assert states(session) == ["done"]


@pytest.mark.parametrize(
    ("words", "is_refusal"),
    [
        (APPROVAL, True),
        ("Claude requested permissions to write to /a/b.md, but you haven't granted it yet.", True),
        ("Claude requested permissions to use WebFetch, but you haven't granted it yet.", True),
        ("touch in '/w/marker' was blocked. For security, Claude Code may only create files in '/w'.", True),
        ("Permission to use Bash with command rm has been denied.", True),
        ("make: nothing to be done", False),
        (f"The docs say: {APPROVAL}", False),
        ("", False),
    ],
)
def test_words_of_a_refusal_are_known(words: str, is_refusal: bool) -> None:
    assert (claude_code.claude_code_refusal_or_none(words) is not None) is is_refusal


def test_a_batch_that_tells_of_a_refusal_makes_it_the_calls_error(session: Session) -> None:
    common = {"session_id": "c1", "prompt_id": "p1", "tool_name": "Bash", "tool_use_id": "t1"}
    call = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "t1"}
    for body in (
        common | {"hook_event_name": "PreToolUse", "tool_input": {"command": "make"}},
        {"session_id": "c1", "hook_event_name": "PostToolBatch", "tool_calls": [call | {"tool_response": APPROVAL}]},
    ):  # fmt: skip
        hook = claude_code.DIALECT.read_hook(json.dumps(body).encode(), "2026-11-20T09:00:00+00:00")
        record_events([*claude_code.DIALECT.build_hook_and_transcript_events(hook, session.pk)], BEGAN)
    timeline = SessionTimeline(session.pk)
    (row,) = (
        one
        for one in load_window_rows(timeline, timeline.read_first_events(9), session)
        if isinstance(one, CallRow)
    )
    assert row.call_state == "failed"
    assert row.end is not None
    assert row.end.error == f"Refused by Claude Code itself: {APPROVAL}"
