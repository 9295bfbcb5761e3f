"""From one error or message of a timeline to the next, and back."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from coordinator.models import Session
from coordinator.models.gateway import BY_GATEWAY
from coordinator.sessions.timeline import SessionTimeline
from tests.people import signed_in
from tests.timelines import add_events, called, make_session, said

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    return signed_in("viewer")


def follow(client: Client, session: Session, to: str, **where: object) -> int | None:
    """Return the event that a click leads to; None where it says that there is none."""
    response = client.get(f"/ui/sessions/{session.pk}/-/go/", {"to": to, **where})
    found = parse_qs(urlsplit(response["Location"]).query).get("event")
    return int(found[0]) if found else None


def steps(client: Client, session: Session, to: str) -> list[int]:
    """Return the events that clicks lead to, each from where the one before led."""
    led: list[int] = []
    while (found := follow(client, session, to, **({"event": led[-1]} if led else {}))) is not None:
        if found in led:
            break
        led.append(found)
    return led


def failing(tool: str, use: str, *, at: float, until: float) -> list[dict[str, object]]:
    """Return both halves of a call that fails, begun and ended at these seconds."""
    start, end = called(tool, {"command": use}, use=use, error="exit code 1")
    return [start | {"at": at}, end | {"at": until}]


def test_each_error_is_led_to_once_and_the_last_one_says_so(client: Client) -> None:
    session = make_session()
    calls = [failing("Bash", f"t{number}", at=number * 10, until=number * 10 + 5) for number in range(3)]
    rows = add_events(session, [said("user", "go", at=0), *(half for call in calls for half in call)])
    ends = [row.id for row in rows if row.event_type == "post_tool"]
    assert steps(client, session, "next-error") == ends
    assert steps(client, session, "previous-error") == ends[::-1]
    told = client.get(
        f"/ui/sessions/{session.pk}/-/go/", {"to": "next-error", "event": ends[-1]}, follow=True
    )
    assert "There is no next error." in told.content.decode()


def test_from_a_call_that_failed_the_next_error_is_another_calls(client: Client) -> None:
    session = make_session()
    rows = add_events(
        session, failing("Bash", "first", at=1, until=5) + failing("Bash", "second", at=10, until=12)
    )
    assert follow(client, session, "next-error", event=rows[0].id) == rows[3].id
    # A reader who was led to none yet is at the top of what is in sight, whose error is the next one.
    assert (
        follow(
            client, session, "next-error", place=SessionTimeline(session.pk).find_event_position(rows[0].id)
        )
        == rows[1].id
    )


def test_calls_that_ran_beside_each_other_are_each_led_to(client: Client) -> None:
    session = make_session()
    rows = add_events(
        session, failing("Bash", "slow", at=1, until=9) + failing("Read", "quick", at=2, until=3)
    )
    assert steps(client, session, "next-error") == [rows[3].id, rows[1].id]
    assert steps(client, session, "previous-error") == [rows[1].id, rows[3].id]


def test_an_error_that_gateway_and_agent_both_tell_of_is_led_to_once(client: Client) -> None:
    session = make_session()
    start, end = called("mcp__shop__pay", {}, use="t1", error="refused")
    rows = add_events(
        session, [start, end | {"source": BY_GATEWAY, "at": 2}, end | {"at": 3}, said("user", "on", at=9)]
    )
    later = add_events(session, failing("Bash", "later", at=20, until=21))
    assert steps(client, session, "next-error")[-1] == later[1].id
    assert len(steps(client, session, "next-error")) == 2, [row.id for row in rows]


def test_messages_follow_one_another(client: Client) -> None:
    session = make_session()
    rows = add_events(
        session, [said("user", "a"), *called("Read", {}), said("assistant", "b"), said("user", "c")]
    )
    assert steps(client, session, "next-message") == [rows[0].id, rows[3].id, rows[4].id]


@pytest.mark.parametrize("wrong", ["0", "999999999", "x", "²", "-1", "9" * 30])
def test_an_event_of_elsewhere_is_no_place(client: Client, wrong: str) -> None:
    session = make_session()
    rows = add_events(session, [said("user", "a")])
    assert follow(client, session, "next-message", event=wrong) == rows[0].id
