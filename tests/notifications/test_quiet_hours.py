"""Quiet hours, on the clocks of a person's zone, also in the nights when those change."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
import time_machine
from django.contrib.auth.models import User

from coordinator.actions import approvals, notifications
from coordinator.errors import UnprocessableRequest
from coordinator.models import Notification, QuietHours
from coordinator.notifications import quiet_hours
from tests.approvals.factories import NOW, asked, person
from tests.notifications.telling import Told, deliver, listening, next_attempt, told  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")


@pytest.mark.parametrize(
    ("now", "end"),
    [
        ("2026-02-23T20:59", None),  # 21:59 in Berlin
        ("2026-02-23T21:00", "2026-02-24T06:00"),
        ("2026-02-24T05:59", "2026-02-24T06:00"),
        ("2026-02-24T06:00", None),
        ("2026-03-28T22:00", "2026-03-29T05:00"),  # clocks go forward in that night
        ("2026-03-29T05:00", None),
        ("2026-10-24T21:00", "2026-10-25T06:00"),  # and back
        ("2026-10-25T05:30", "2026-10-25T06:00"),
        ("2026-10-25T06:00", None),
    ],
)
def test_a_night_in_berlin_ends_at_seven_whatever_the_clocks_do(now: str, end: str | None) -> None:
    hours = QuietHours(person="a", zone="Europe/Berlin", begins="22:00", ends="07:00")
    assert quiet_hours.quiet_hours_end(hours, at(now)) == (at(end) if end else None)


def test_an_hour_that_clocks_show_twice_or_never_makes_no_gap() -> None:
    hours = QuietHours(person="a", zone="Europe/Berlin", begins="01:00", ends="02:30")
    assert quiet_hours.quiet_hours_end(hours, at("2026-10-25T00:45")) == at(
        "2026-10-25T01:30"
    )  # the second 02:30
    assert quiet_hours.quiet_hours_end(hours, at("2026-10-25T01:15")) == at("2026-10-25T01:30")
    assert quiet_hours.quiet_hours_end(hours, at("2026-10-25T01:30")) is None
    assert quiet_hours.quiet_hours_end(hours, at("2026-03-29T00:30")) == at(
        "2026-03-29T01:30"
    )  # there is no 02:30


def test_at_noon_for_one_is_at_night_for_another() -> None:
    hours = {"person": "a", "begins": "12:00", "ends": "13:00"}
    assert quiet_hours.quiet_hours_end(QuietHours(zone="UTC", **hours), at("2026-02-23T12:30"))
    assert quiet_hours.quiet_hours_end(QuietHours(zone="Asia/Tokyo", **hours), at("2026-02-23T12:30")) is None


@pytest.mark.parametrize(
    "columns", [{"zone": "Nowhere"}, {"begins": "x"}, {"zone": "../etc/passwd"}, {"zone": ""}]
)
def test_hours_that_cannot_be_read_keep_nothing_quiet(columns: dict[str, str]) -> None:
    hours = {"person": "a", "zone": "UTC", "begins": "00:00", "ends": "23:59"} | columns
    assert quiet_hours.quiet_hours_end(QuietHours(**hours), NOW) is None


@pytest.fixture
def asleep(alice: User) -> datetime:
    """Alice's quiet hours, which are now; and when they end."""
    listening(alice)
    notifications.set_quiet_hours(user=alice, begins="11:00", ends="13:00", zone="UTC", now=NOW)
    return NOW + timedelta(hours=1)


def test_during_quiet_hours_nothing_is_sent_and_at_their_end_what_still_waits(
    asleep: datetime,
    told: Told,  # noqa: F811
) -> None:
    listening(person("bob"))
    early, late = asked(), asked(target_resource="other")
    deliver(NOW)
    assert told.people() == ["bob", "bob"]
    kept = Notification.objects.filter(state="waiting", attempts=0)
    assert [next_attempt(message) for message in kept] == [asleep, asleep]
    approvals.decide_request(
        early.request_id, person=User.objects.get(username="bob"), verdict="denied", now=NOW
    )
    deliver(NOW)
    assert not notifications.find_due_notifications(
        asleep - timedelta(seconds=1)
    ).exists()  # nothing turns meanwhile
    deliver(asleep)
    assert [one for one in told if one[0] == "alice"] == [
        ("alice", "Signalbox: mind.x asks for ProcessExecution")
    ]
    asked_of_alice = Notification.objects.filter(target__person="alice", event="asked")
    assert dict(asked_of_alice.values_list("request_id", "state")) == {
        early.request_id: "dropped",
        late.request_id: "sent",
    }


def test_the_end_of_a_request_is_kept_back_too(asleep: datetime, told: Told) -> None:  # noqa: F811
    row = asked(now=NOW - timedelta(hours=2))
    deliver(NOW - timedelta(hours=2))
    assert told.people() == ["alice"]
    approvals.decide_request(row.request_id, person=person("bob"), verdict="denied", now=NOW)
    deliver(NOW)
    assert told == []
    deliver(asleep)
    assert told.people() == ["alice"]


def test_a_test_is_sent_at_any_hour(asleep: datetime, alice: User, told: Told) -> None:  # noqa: F811
    notifications.queue_test_notification(alice_target(), user=alice, now=NOW)
    deliver(NOW)
    assert told.people() == ["alice"]


def alice_target() -> int:
    return Notification.target.field.related_model.objects.get().pk


@pytest.mark.usefixtures("asleep")
def test_who_ends_quiet_hours_is_told_at_once(alice: User, told: Told) -> None:  # noqa: F811
    asked()
    deliver(NOW)
    notifications.clear_quiet_hours(user=alice, now=NOW)
    deliver(NOW)
    assert told.people() == ["alice"]
    deliver(NOW)
    assert told == []


@pytest.mark.parametrize(
    "wrong",
    [{"begins": "25:00"}, {"ends": ""}, {"ends": "22:00"}, {"zone": "Mars/Base"}, {"zone": "/etc/localtime"}],
)
def test_what_is_no_time_or_no_zone_is_refused(alice: User, wrong: dict[str, str]) -> None:
    hours = {"begins": "22:00", "ends": "07:00", "zone": "Europe/Berlin"} | wrong
    with pytest.raises(UnprocessableRequest):
        notifications.set_quiet_hours(user=alice, now=NOW, **hours)
    assert not QuietHours.objects.exists()


def test_a_person_sets_their_hours_on_the_page(signed_in) -> None:
    browser = signed_in("carol")
    with time_machine.travel(at("2026-02-23T21:30"), tick=False):
        form = {"begins": "22:00", "ends": "07:00", "time_zone": "Europe/Berlin"}
        browser.post("/ui/approvals/notifications/quiet/", form)
        page = browser.get("/ui/approvals/notifications/").content.decode()
        hours = QuietHours.objects.get(pk="carol")
        browser.post("/ui/approvals/notifications/quiet/", {"clear": "1"})
    assert (hours.begins, hours.ends, hours.zone) == ("22:00", "07:00", "Europe/Berlin")
    assert "Quiet now" in page
    assert not QuietHours.objects.exists()
