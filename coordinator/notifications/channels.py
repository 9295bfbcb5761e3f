"""Delivery of a message through the channel of its target.

A new channel is a module with a `send_notification` and a line here, a `Kind` (models/notifications.py), and
what is stored of its addresses (actions/notifications/addresses.py). Look into apprise_services.py first:
Apprise may know the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from coordinator.models import Notification, NotificationTarget, PermissionRequest
from coordinator.notifications import apprise_channel, emails, push, webhook_messages
from coordinator.notifications.messages import NotificationNotSent

Kind = NotificationTarget.Kind


@dataclass(frozen=True, slots=True)
class NotificationChannel:
    """One way to a person: how it sends, how many messages one process sends side by side, and its words.

    `word` is what pages call an address of it, `choice` how the form offers it. Without one, people do not type its
    addresses: devices add themselves.
    """

    send: Callable[[Notification, PermissionRequest | None, datetime], str]
    lanes: int
    word: str
    choice: str = ""


# In the order in which the form offers them.
CHANNELS: Mapping[str, NotificationChannel] = {
    Kind.APPRISE: NotificationChannel(
        apprise_channel.send_apprise_and_describe_success, 4, "Service", "A service (Slack, Telegram, …)"
    ),
    Kind.EMAIL: NotificationChannel(emails.send_email_and_describe_outcome, 2, "E-mail", "E-mail"),
    Kind.WEBHOOK: NotificationChannel(
        webhook_messages.send_webhook_and_describe_outcome, 4, "Webhook", "A webhook of your own"
    ),
    Kind.PUSH: NotificationChannel(push.send_push_and_describe_outcome, 4, "Device"),
}
TYPED = tuple(kind for kind, channel in CHANNELS.items() if channel.choice)


def send_notification(message: Notification, request: PermissionRequest | None, now: datetime) -> str:
    """Send `message` about `request` (None: a test); return what the receiver said.

    Raises messages.NotificationNotSent.
    """
    channel = CHANNELS.get(message.target.kind)
    if channel is None:
        raise NotificationNotSent("this version of Signalbox does not support this channel")
    return channel.send(message, request, now)


def max_parallel_sends_of_kind(kind: str) -> int:
    """Return how many messages of a kind one process sends side by side; one where this version does not know it."""
    channel = CHANNELS.get(kind)
    return channel.lanes if channel is not None else 1


def address_kind_label(kind: str) -> str:
    """Return what pages call an address of a kind."""
    channel = CHANNELS.get(kind)
    return channel.word if channel is not None else kind
