"""Delivery: how often a message is tried, whatever goes wrong, and that what hangs holds up nobody else."""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from coordinator.actions import notifications
from coordinator.actions.notifications import delivering
from coordinator.actions.notifications import worker_pools as lanes
from coordinator.models import Notification, NotificationTarget, PermissionRequest
from coordinator.models.notifications import QUIET
from coordinator.notifications.messages import NotificationNotSent
from tests.approvals.factories import NOW, asked
from tests.notifications.telling import listening
from tests.patience import PATIENCE

pytestmark = pytest.mark.django_db


class Ending(BaseException):
    """The process ends here, as by a kill: nothing after it is written down."""


def tried_until_given_up(send: Any, monkeypatch: pytest.MonkeyPatch) -> Notification:
    """Try the one message, each time when it is due, and return it as it was left."""
    monkeypatch.setattr(notifications.channels, "send_notification", send)
    message, now = Notification.objects.get(), NOW
    for _ in range(20):
        with contextlib.suppress(Ending):
            notifications.deliver_notification(message.pk, now)
        message.refresh_from_db()
        if message.next_at is None:
            break
        now = message.next_at
    return message


@pytest.mark.parametrize(
    ("problem", "outcome"),
    [
        (Ending, delivering.BROKEN_OFF),
        (ZeroDivisionError, delivering.UNKNOWN_PROBLEM),
        (NotificationNotSent("answered 500"), "answered 500"),
    ],
)
def test_a_message_is_tried_seven_times_and_then_given_up_whatever_goes_wrong(
    alice: User, monkeypatch: pytest.MonkeyPatch, problem: Any, outcome: str
) -> None:
    listening(alice)
    asked()
    tries = []

    def send(message: Notification, *_: object) -> str:
        tries.append(message.pk)
        raise problem

    message = tried_until_given_up(send, monkeypatch)
    assert (message.state, message.attempts, message.outcome) == ("failed", 7, outcome)
    assert len(tries) == 7


def test_a_test_is_tried_once_and_says_at_once_what_went_wrong(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    notifications.queue_test_notification(listening(alice).pk, by=alice, now=NOW)

    def send(*_: object) -> str:
        raise NotificationNotSent("refused the connection")

    message = tried_until_given_up(send, monkeypatch)
    assert (message.state, message.attempts, message.outcome) == ("failed", 1, "refused the connection")


def test_what_was_never_tried_counts_no_attempt(alice: User) -> None:
    listening(alice)
    row = asked()
    PermissionRequest.objects.filter(pk=row.pk).update(status="withdrawn")
    notifications.deliver_notification(Notification.objects.get().pk, NOW)
    message = Notification.objects.get()
    assert (message.state, message.attempts) == ("dropped", 0)


@pytest.fixture
def empty_lanes() -> None:
    lanes.busy.clear()
    lanes._slow.clear()


@pytest.mark.django_db(transaction=True)
def test_services_that_hang_hold_up_no_phone_and_no_mail(
    alice: User, monkeypatch: pytest.MonkeyPatch, empty_lanes: None
) -> None:
    release, sent = threading.Event(), threading.Semaphore(0)

    def send(message: Notification, *_: object) -> str:
        if message.target.kind == "apprise":
            release.wait(60)
        else:
            sent.release()
        return "answered 200"

    monkeypatch.setattr(notifications.channels, "send_notification", send)
    kinds = [*["apprise"] * 10, "email", "webhook"]
    targets = [
        NotificationTarget.objects.create(person="alice", kind=kind, address=str(number), created_at=NOW)
        for number, kind in enumerate(kinds)
    ]
    for target in targets:
        notifications.queue_test_notification(target.pk, by=alice)
    notifications.start_due_deliveries()
    assert [sent.acquire(timeout=PATIENCE) for _ in range(2)] == [True, True]
    assert Notification.objects.filter(target__kind="apprise", state="sent").count() == 0
    release.set()
    while lanes.busy or Notification.objects.filter(state="waiting").exists():
        for thread in [one for one in threading.enumerate() if one.name.startswith("notifications-")]:
            thread.join(60)
        notifications.start_due_deliveries()
    assert set(Notification.objects.values_list("state", flat=True)) == {"sent"}


def test_targets_that_were_slow_leave_lanes_to_the_others(empty_lanes: None) -> None:
    slow, quick = [(number, "webhook") for number in range(10)], (99, "webhook")
    for target_id, _ in slow:
        lanes.record_delivery_time(target_id, lanes.SLOW + 1)
    assert lanes.reserve_delivery_slots([*slow, quick]) == [0, 1, 99]  # of four lanes
    assert lanes.reserve_delivery_slots([quick, *slow]) == []
    for target_id, _ in [*slow, quick]:
        lanes.release_delivery_slot(target_id)
    lanes.record_delivery_time(0, 0.1)
    assert lanes.reserve_delivery_slots(slow) == [0, 1, 2]


@pytest.mark.parametrize("back", [timedelta(minutes=5), timedelta(hours=1), timedelta(days=2)])
def test_a_message_is_due_at_once_after_the_clock_was_set_back(alice: User, back: timedelta) -> None:
    target = NotificationTarget.objects.create(
        person="alice", kind="email", address="a@x.test", created_at=NOW
    )
    common = {"target": target, "created_at": NOW}
    new = Notification.objects.create(request_id="new", next_at=NOW, **common)
    quiet = Notification.objects.create(
        request_id="quiet", next_at=NOW + timedelta(hours=8), outcome=QUIET, **common
    )
    due = Notification.objects.due_for_delivery(NOW - back)
    assert new in due
    assert quiet not in due


def test_no_attempt_is_made_early_by_a_server_whose_clock_is_a_little_behind(alice: User) -> None:
    target = NotificationTarget.objects.create(
        person="alice", kind="email", address="a@x.test", created_at=NOW
    )
    common = {"target": target, "created_at": NOW}
    Notification.objects.create(request_id="in hand", next_at=NOW + notifications.TURN, **common)
    Notification.objects.create(
        request_id="failed", next_at=NOW + notifications.BACKOFF[-1], attempts=6, **common
    )
    assert not Notification.objects.due_for_delivery(NOW - timedelta(seconds=30))
