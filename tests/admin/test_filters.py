from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.test import Client

from coordinator.models import Event, Session
from tests.admin.pages import url
from tests.admin.rows import insert
from tests.people import signed_in

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 2, 23, 12, tzinfo=UTC)


@pytest.fixture
def client() -> Client:
    return signed_in("admin")


def session(session_id: str, created_at: str, status: str = "running") -> None:
    insert(Session, {"session_id": session_id, "status": status, "created_at": created_at})


def listed(client: Client, **query: str) -> set[str]:
    answer = client.get(url(Session, "changelist"), query)
    assert answer.status_code == 200
    return {row.pk for row in answer.context["cl"].result_list}


@pytest.fixture
def sessions() -> None:
    session("now-z", "2026-02-23T11:59:00Z")
    session("now-offset", "2026-02-23T13:30:00+02:00", "finished")
    session("yesterday", "2026-02-22 23:59:59", "stopped")
    session("last-month", (NOW - timedelta(days=29)).isoformat(), "dreaming")
    session("odd", "once upon a time")


@pytest.mark.parametrize(
    ("within", "found"),
    [
        ("hour", {"now-z", "now-offset"}),
        ("day", {"now-z", "now-offset", "yesterday"}),
        ("month", {"now-z", "now-offset", "yesterday", "last-month"}),
        ("ever", {"now-z", "now-offset", "yesterday", "last-month", "odd"}),
    ],
)
@pytest.mark.usefixtures("sessions")
def test_a_span_compares_instants_not_texts(within: str, found: set[str]) -> None:
    with time_machine.travel(NOW, tick=False):
        assert listed(signed_in("admin"), created_at_within=within) == found


@pytest.mark.usefixtures("sessions")
def test_days_are_both_included(client: Client) -> None:
    assert listed(client, created_at_first="2026-02-22", created_at_last="2026-02-22") == {"yesterday"}
    assert listed(client, created_at_first="2026-02-23") == {"now-z", "now-offset"}


@pytest.mark.usefixtures("sessions")
def test_words_and_the_words_of_others(client: Client) -> None:
    assert listed(client, status="finished") == {"now-offset"}
    assert listed(client, status="~other") == {"last-month"}


@pytest.mark.usefixtures("sessions")
def test_the_days_keep_the_other_filters(client: Client) -> None:
    page = client.get(url(Session, "changelist"), {"status": "running", "q": "now"}).content.decode()
    assert '<input type="hidden" name="status" value="running">' in page
    assert '<input type="hidden" name="q" value="now">' in page


def test_events_are_found_by_id_session_type_and_tool(client: Client) -> None:
    session("ses_1", "2026-02-23T11:59:00Z")
    for number, (kind, tool) in enumerate([("pre_tool", "Bash"), ("message", None)], start=1):
        insert(
            Event,
            {"id": number, "session_id": "ses_1", "event_type": kind, "timestamp": "t", "tool_name": tool},
        )

    def found(text: str) -> set[int]:
        answer = client.get(url(Event, "changelist"), {"q": text})
        return {row.pk for row in answer.context["cl"].result_list}

    assert found("2") == {2}
    assert found("ses_1") == {1, 2}
    assert found("ses_1 Bash") == {1}
    assert found("message") == {2}
    assert found("Bas") == set()
