"""Who is told what, without a network."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from coordinator.actions import notifications
from coordinator.models import Job, Notification, NotificationTarget, PermissionRequest
from coordinator.notifications import messages


class Told(list[tuple[str, str]]):
    """The person and the title of each message that was sent, in order."""

    def send(self, message: Notification, request: PermissionRequest | None, now: datetime) -> str:
        self.append((message.target.person, messages.build_message_text(message, request, now).title))
        return "answered 200"

    def people(self) -> list[str]:
        """Return who was told since this was last asked."""
        found = sorted(person for person, _ in self)
        self.clear()
        return found


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    found = Told()
    monkeypatch.setattr(notifications.channels, "send_notification", found.send)
    return found


def listening(user: User, **columns: Any) -> NotificationTarget:
    """Give a person an address that hears of everything, or as `columns` say."""
    name = user.get_username()
    url = f"https://{name}.example/{NotificationTarget.objects.count()}"
    target = notifications.create_notification_target(user=user, kind="webhook", address=url)
    NotificationTarget.objects.filter(pk=target.pk).update(**columns)
    return target


def deliver(now: datetime) -> None:
    """Send all that is due, as housekeeping does."""
    for pk in notifications.find_due_notifications(now).order_by("id").values_list("pk", flat=True):
        notifications.deliver_notification(pk, now)


def next_attempt(message: Notification) -> datetime | None:
    """Return when a message is tried next; None for one that is not."""
    job = Job.objects.filter(name=notifications.SEND, subject=str(message.pk)).first()
    return job and job.next_at
