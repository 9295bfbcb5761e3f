"""The messages that were sent to a person, as their page lists them."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import OuterRef, QuerySet, Subquery, TextField
from django.db.models.functions import Cast

from coordinator.actions.notifications import SEND
from coordinator.actions.notifications.push import UNNAMED
from coordinator.models import Job, Notification, NotificationTarget
from coordinator.notifications import webhooks
from coordinator.notifications.channels import address_kind_label

Kind = NotificationTarget.Kind
PAGE = 30  # messages


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message of the log, with its owner's name for the address or device."""

    row: Notification
    to: str


def logged_notifications_of_person(person: str) -> QuerySet[Notification]:
    """Return all logged messages to a person.

    Each is annotated with `next_attempt_at`, when a waiting message is sent next; None for the others.
    """
    job = Job.objects.filter(name=SEND, subject=Cast(OuterRef("pk"), TextField()))
    return (
        Notification.objects.select_related("target__push")
        .filter(target__person=person)
        .annotate(next_attempt_at=Subquery(job.values("next_at")))
    )


def build_sent_message(row: Notification) -> SentMessage:
    target = row.target
    if target.kind == Kind.PUSH:
        device = getattr(target, "push", None)
        return SentMessage(row, device.device if device else UNNAMED)
    host = webhooks.webhook_host(target.address) if target.kind == Kind.WEBHOOK else target.address
    return SentMessage(row, target.name or target.shown or host or address_kind_label(target.kind))


def is_test_notification_pending(row: Notification) -> bool:
    """Return whether a message is a test without a result yet. The page then reloads the log."""
    return not row.request_id and row.state == Notification.State.WAITING
