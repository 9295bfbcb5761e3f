"""A person's notification addresses, as their page shows them."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db.models import Max

from coordinator.models import Notification, NotificationTarget
from coordinator.notifications.channels import CHANNELS, TYPED, address_kind_label

About = NotificationTarget.About


@dataclass(frozen=True, slots=True)
class NotificationAddress:
    """One of a person's addresses, ready for display."""

    target: NotificationTarget
    kind: str  # the label of the kind of address
    place: str  # the address, or its form for display
    about: str  # which requests it is notified of
    last: Notification | None  # the last message that was sent to it


def list_notification_addresses(person: str) -> list[NotificationAddress]:
    """Return a person's addresses, each with the last message that was sent to it."""
    rows = NotificationTarget.objects.filter(person=person, kind__in=TYPED).order_by("id")
    newest = Notification.objects.filter(target__in=rows).values("target").annotate(last=Max("id"))
    last = {
        notification.target_id: notification
        for notification in Notification.objects.filter(pk__in=newest.values("last"))
    }
    return [
        NotificationAddress(
            row,
            address_kind_label(row.kind),
            row.shown or row.address,
            describe_address_topics(row),
            last.get(row.pk),
        )
        for row in rows
    ]


def list_address_kinds() -> list[tuple[str, str]]:
    """Return the kinds of address that a person may add, each with its label for the form."""
    unset = "" if settings.EMAIL_HOST else " (no mail server is set yet)"
    return [
        (kind, f"{CHANNELS[kind].choice}{unset if kind == NotificationTarget.Kind.EMAIL else ''}")
        for kind in TYPED
    ]


def describe_address_topics(target: NotificationTarget) -> str:
    """Return which requests an address is notified of, as its owner chose."""
    topic_label = dict(About.choices).get(target.about, About.EVERYTHING.label)
    return f"{topic_label}: {target.patterns}" if target.patterns else topic_label
