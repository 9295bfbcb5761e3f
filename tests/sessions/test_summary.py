"""The head of a session's page, what a reader can write there, and the comparison of two sessions."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordinator.actions.search.file_touches import record_file_touches
from coordinator.models import (
    Note,
    PermissionContext,
    PermissionRequest,
    Run,
    Session,
    SessionChange,
)
from coordinator.sessions.timeline import load_session_event_counts
from dashboard.sessions.summary import SessionSummary, load_session_summary
from tests.people import signed_in
from tests.timelines import BEGAN, add_events, called, ended, make_session, said

pytestmark = pytest.mark.django_db


def summary_of(session: Session) -> SessionSummary:
    return load_session_summary(session, load_session_event_counts(session.pk))


def page_of(session: Session, role: str = "approver") -> str:
    return " ".join(signed_in(role).get(f"/ui/sessions/{session.pk}/").content.decode().split())


def ask(session: Session, number: int, status: str, seconds: int | None) -> None:
    asked_at = BEGAN + timedelta(minutes=number)
    row = PermissionRequest.objects.create(
        request_id=f"req_{number}",
        created_at=asked_at,
        plugin_id="p",
        permission_type="ProcessExecution",
        justification="x",
        status=status,
        approved_at=None if seconds is None else asked_at + timedelta(seconds=seconds),
    )
    PermissionContext.objects.create(
        request=row, session_id=session.pk, requested_by="agent", subject_key=f"call {number}"
    )


def add_run(session: Session, status: str) -> None:
    Run.objects.create(
        run_id="run_1", session=session, type="start_session", prompt="Do it", status=status, created_at=BEGAN
    )


def test_it_says_what_was_asked_how_it_ended_and_what_went_wrong():
    session = make_session()
    rows = add_events(
        session,
        [
            said("user", "/clear"),
            said("user", "Please make the **tests** pass in `shop`."),
            *called("Bash", {"command": "make"}, use="a", error="Exit code 2\n\nmissing separator"),
            said("assistant", "Two tests still fail."),
            said("assistant", "All tests pass now."),
            {"event_type": "session_stop", "reason": "completed"},
        ],
    )
    summary = summary_of(session)
    assert (summary.first_prompt_text, summary.first_prompt_event) == (
        "Please make the tests pass in shop.",
        rows[1].pk,
    )
    assert (summary.answer, summary.end_reason) == ("All tests pass now.", "completed")
    assert summary.first_error is not None
    assert (summary.first_error.event_id, summary.first_error.text) == (
        rows[3].pk,
        "Exit code 2 · missing separator",
    )
    page = page_of(session)
    assert f"?event={rows[1].pk}#event-{rows[1].pk}" in page
    assert "1 error" in page


def test_what_waited_is_counted_with_its_time_and_leads_to_its_decision():
    session = make_session(status="running")
    ask(session, 1, "approved", 30)
    ask(session, 2, "denied", 90)
    ask(session, 5, "pending", None)
    waits = summary_of(session).waits
    assert (waits.requests, waits.waiting, waits.denied) == (3, 1, 1)
    assert (waits.total_label, waits.longest_label) == ("2m 00s", "1m 30s")
    assert waits.waiting_since == BEGAN + timedelta(minutes=5)
    page = page_of(session)
    assert "Decide 1 request" in page
    assert f"/ui/approvals/one-by-one/?session={session.pk}" in page


def test_what_it_changed_comes_from_its_runner_or_else_from_its_calls():
    session = make_session()
    assert summary_of(session).changes is None
    rows = add_events(
        session,
        [
            *called("Edit", {"file_path": "/srv/a.py"}, use="a"),
            *called("Write", {"file_path": "/srv/b.py"}, use="b"),
            *called("Edit", {"file_path": "/srv/b.py"}, use="c"),
            *called("Read", {"file_path": "/srv/c.py"}, use="d"),
            *called("Write", {"file_path": "/etc/hosts"}, use="e", error="Permission denied"),
        ],
    )
    record_file_touches([row.pk for row in rows])
    changes = summary_of(session).changes
    assert changes is not None
    assert (changes.files, changes.paths, changes.is_complete) == (2, ["/srv/b.py", "/srv/a.py"], False)
    files = [
        {"path": "x.py", "status": "M", "added": 4, "removed": 1},
        {"path": "y.py", "status": "A", "added": 2},
    ]
    SessionChange.objects.create(session=session, run_id="", told_at=BEGAN, files=files)
    changes = summary_of(session).changes
    assert changes is not None
    assert (changes.files, changes.added, changes.removed, changes.is_complete) == (2, 6, 1, True)


def test_an_empty_session_has_a_head_too():
    page = page_of(make_session())
    for words in (
        "Nobody has asked anything yet",
        "No files known",
        "Not reported",
        "No errors",
        "Nothing waited",
    ):
        assert words in page


def test_the_filters_add_up_to_all_and_calls_count_once():
    session = make_session()
    add_events(
        session,
        [
            {"event_type": "session_start"},
            said("user", "go"),
            *called("Bash", {"command": "x"}, use="a"),
            *called("Bash", {"command": "y"}, use="b"),
            ended("Read", {"file_path": "/a"}, "text"),
            {"event_type": "odd_thing"},
        ],
    )
    numbers = dict(re.findall(r'data-facet="(\w+)".*?<span class="count">(\d+)</span>', page_of(session)))
    assert numbers == {
        "all": "6",
        "messages": "1",
        "calls": "3",
        "lifecycle": "1",
        "other": "1",
        "errors": "0",
    }


@pytest.mark.parametrize(
    ("status", "run", "buttons"),
    [
        ("running", None, ["Send note"]),
        ("running", "running", ["Send note", "Queue as prompt"]),
        ("idle", "completed", ["Send prompt"]),
        ("finished", "completed", ["Send prompt"]),
        ("finished", None, []),
    ],
)
def test_there_is_one_field_and_its_buttons_are_what_the_agent_can_take(
    status: str, run: str | None, buttons: list[str]
):
    session = make_session(status=status, executor_profile="claude-code")
    if run:
        add_run(session, run)
    page = page_of(session)
    assert page.count("<textarea") == 1
    send = page.partition('id="steer-send"')[2].partition("</span>")[0]
    assert re.findall(r"Send note|Queue as prompt|Send prompt", send) == buttons
    hidden = 'aria-label="Write to the agent" hidden' in page
    assert hidden is not bool(buttons)


def test_a_prompt_comes_first_where_a_note_may_not_arrive():
    session = make_session(status="running", executor_profile="cursor")
    add_run(session, "running")
    send = page_of(session).partition('id="steer-send"')[2].partition("</span>")[0]
    assert re.findall(r"Send note|Queue as prompt", send) == ["Queue as prompt", "Send note"]


def test_a_note_that_is_sent_answers_with_what_is_around_the_field():
    session = make_session(status="running", executor_profile="claude-code")
    client, url = signed_in("approver"), f"/ui/sessions/{session.pk}/-/note/"
    answer = client.post(url, {"text": "Mind the tests"}, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    assert all(
        part in answer.content.decode() for part in ("Mind the tests", 'id="steer-send"', 'id="steer-way"')
    )
    refused = client.post(url, {"text": " "}, headers={"HX-Request": "true"})
    assert (refused.status_code, refused.json()) == (422, {"detail": "Write what the agent should know."})
    assert Note.objects.count() == 1


def test_there_is_one_stop_which_offers_the_turn_where_that_is_something_else():
    session = make_session(status="running")
    add_run(session, "running")
    client, url = signed_in("approver"), f"/ui/sessions/{session.pk}/"
    assert "Stop this turn" not in client.get(url).content.decode()
    Run.objects.create(
        run_id="run_2",
        session=session,
        type="resume_session",
        prompt="More",
        status="pending",
        created_at=BEGAN,
    )
    page = client.get(url).content.decode()
    assert page.count('popovertarget="stop-menu"') == 1
    assert "Stop this turn" in page
    assert "Stop the session" in page


def test_two_sessions_stand_side_by_side():
    first, second = make_session("ses_first"), make_session("ses_second", agent_name="reviewer")
    add_events(first, [said("user", "Fix the cart"), *called("Bash", {"command": "x"}, use="a")])
    add_events(
        second,
        [
            said("user", "Fix the basket"),
            *[half for n in range(3) for half in called("Bash", {"n": n}, use=f"{n}")],
        ],
    )
    client, url = signed_in("viewer"), "/ui/sessions/ses_first/-/compare/"
    offered = client.get(url).content.decode()
    assert "Fix the basket" in offered
    assert "?with=ses_second" in offered
    page = " ".join(client.get(f"{url}?with=ses_second").content.decode().split())
    assert "Fix the cart" in page
    assert "Fix the basket" in page
    calls = re.search(r'<th scope="row">\s*Calls\s*</th>(.*?)</tr>', page)
    assert calls is not None
    assert re.findall(r"<td[^>]*>\s*(.*?)\s*</td>", calls[1]) == ["1", "3", "3.0 times"]


@pytest.mark.parametrize(
    ("other", "words"), [("ses_nowhere", "No session has this id"), ("ses_first", "This is the same session")]
)
def test_what_cannot_be_compared_is_said_beside_what_was_typed(other: str, words: str):
    make_session("ses_first")
    answer = signed_in("viewer").get(f"/ui/sessions/ses_first/-/compare/?with={other}")
    page = answer.content.decode()
    assert answer.status_code == 404
    assert words in page
    assert f'value="{other}"' in page


def test_the_head_costs_the_same_however_long_the_session_is():
    short, long = make_session("ses_short"), make_session("ses_long")
    for session, number in ((short, 2), (long, 400)):
        calls = [half for n in range(number) for half in called("Edit", {"file_path": f"/{n}"}, use=f"{n}")]
        add_events(session, [said("user", "go"), *calls, said("assistant", "done")])
    counts = []
    for session in (short, long):
        with CaptureQueriesContext(connection) as queries:
            load_session_summary(session, load_session_event_counts(session.pk))
        counts.append(len(queries))
    assert counts[0] == counts[1]
