"""Delivery: how often a message is tried, whatever goes wrong, and that what hangs holds up nobody else."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from coordinator.actions import notifications
from coordinator.actions.notifications import announcing, delivering
from coordinator.actions.notifications import worker_pools as lanes
from coordinator.actions.upkeep import jobs
from coordinator.errors import Conflict
from coordinator.identity.actors import Actor
from coordinator.models import AuditLog, Job, Notification, NotificationTarget, PermissionRequest
from coordinator.models.jobs import LEASE
from coordinator.notifications.messages import NotificationNotSent
from tests.approvals.factories import NOW, asked
from tests.jobs.processes import kill_worker, worker_process
from tests.notifications.telling import Told, deliver, listening, next_attempt, told  # noqa: F401
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
        job = Job.objects.filter(subject=str(message.pk)).first()
        if job is None:
            break
        now = max(job.next_at, job.leased_until or job.next_at)
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
    notifications.queue_test_notification(listening(alice).pk, user=alice, now=NOW)

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
        notifications.queue_test_notification(target.pk, user=alice)
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
        lanes.update_target_slowness(target_id, lanes.SLOW + 1)
    assert lanes.reserve_slots_and_list_targets([*slow, quick]) == [0, 1, 99]  # of four lanes
    assert lanes.reserve_slots_and_list_targets([quick, *slow]) == []
    for target_id, _ in [*slow, quick]:
        lanes.release_delivery_slot(target_id)
    lanes.update_target_slowness(0, 0.1)
    assert lanes.reserve_slots_and_list_targets(slow) == [0, 1, 2]


def test_a_message_that_is_being_sent_when_the_clock_is_set_back_is_sent_once(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening(alice)
    asked()
    pk, sent = Notification.objects.get().pk, []

    def send(message: Notification, *_: object) -> str:
        sent.append(message.pk)
        for minutes in (1, 5, 60, 24 * 60):
            with monkeypatch.context() as patch:
                patch.setattr(jobs, "current_process_name", lambda: "elsewhere:1")
                patch.setattr(jobs, "LEASE_RENEWER", jobs.LeaseRenewer())
                notifications.deliver_notification(pk, NOW - timedelta(minutes=minutes))
        return "answered 200"

    monkeypatch.setattr(notifications.channels, "send_notification", send)
    notifications.deliver_notification(pk, NOW)
    notifications.deliver_notification(pk, NOW - timedelta(days=1))
    assert sent == [pk]
    assert (Notification.objects.get().state, Job.objects.count()) == ("sent", 0)


def test_quiet_hours_hold_also_after_the_clock_was_set_back(
    alice: User,
    told: Told,  # noqa: F811
) -> None:
    listening(alice)
    notifications.set_quiet_hours(user=alice, begins="06:00", ends="13:00", zone="UTC", now=NOW)
    asked()
    deliver(NOW)
    deliver(NOW - timedelta(hours=2))
    assert told == []
    assert next_attempt(Notification.objects.get()) == NOW + timedelta(hours=1)


@pytest.mark.django_db(transaction=True)
def test_a_message_of_a_worker_that_was_killed_while_it_sent_is_sent_by_another(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "start_delivery_thread", lambda: None)  # whose clock is another
    listening(alice)
    asked()
    pk, sent = Notification.objects.get().pk, []

    def send_until_killed(tell: Callable[[bytes], None]) -> None:
        def send(*_: object) -> str:
            tell(b"begun")
            signal.pause()
            return "never"

        notifications.channels.send_notification = send  # type: ignore[assignment] # in that process alone
        notifications.deliver_notification(pk, NOW)

    with worker_process(send_until_killed) as (pid, words):
        assert os.read(words, 5) == b"begun"
        kill_worker(pid)
    monkeypatch.setattr(
        notifications.channels, "send_notification", lambda *_: sent.append(pk) or "answered 200"
    )
    notifications.deliver_notification(pk, NOW + LEASE / 2)
    assert sent == []
    notifications.deliver_notification(pk, NOW + LEASE)
    message = Notification.objects.get()
    assert (sent, message.state, message.attempts) == ([pk], "sent", 2)


def test_what_an_older_version_wrote_and_did_not_send_is_taken_over(alice: User, told: Told) -> None:  # noqa: F811
    target = listening(alice)
    Notification.objects.create(target=target, request_id="", created_at=NOW, next_at=NOW)
    delivering.reconcile_delivery_jobs(NOW + timedelta(minutes=1))
    assert not Job.objects.exists()  # it may still be at it
    delivering.reconcile_delivery_jobs(NOW + timedelta(minutes=6))
    deliver(NOW + timedelta(minutes=6))
    assert (len(told), Notification.objects.get().state) == (1, "sent")


def test_a_message_goes_and_its_job_with_it(alice: User) -> None:
    target = listening(alice)
    notifications.queue_test_notification(target.pk, user=alice, now=NOW)
    NotificationTarget.objects.all().delete()
    delivering.reconcile_delivery_jobs(NOW)
    assert not Job.objects.exists()


def test_an_administrator_gives_up_a_message_that_waits(alice: User) -> None:
    listening(alice)
    asked()
    job = Job.objects.get()
    delivering.cancel_notification_delivery(job.pk, actor=Actor("user", "ada"), now=NOW)
    message = Notification.objects.get()
    assert (message.state, message.outcome) == ("failed", "given up by ada")
    assert AuditLog.objects.get(event_type="NOTIFICATION_GIVEN_UP").actor_id == "user:ada"
    assert not Job.objects.exists()


def test_other_work_is_not_given_up() -> None:
    job = Job.objects.create(name="audit:seal", next_at=NOW, chosen_at=NOW)
    with pytest.raises(Conflict):
        delivering.cancel_notification_delivery(job.pk, actor=Actor("user", "ada"), now=NOW)
    assert Job.objects.exists()
