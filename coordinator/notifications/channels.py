"""How a message leaves: through the channel of its target.

A new channel is a module with a `send` and a line here, a `Kind` (models/notifications.py), and what is stored of its
addresses (actions/notifications/addresses.py). Look into apprise_services.py first: Apprise may know the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from coordinator.models import Notification, NotificationTarget, PermissionRequest
from coordinator.notifications import apprise_channel, emails, push, webhook_messages
from coordinator.notifications.messages import NotSent

Kind = NotificationTarget.Kind


@dataclass(frozen=True, slots=True)
class Channel:
    """One way to a person: how it sends, how many messages one process sends side by side, and its words.

    `word` is what pages call an address of it, `choice` how the form offers it. Without one, people do not type its
    addresses: devices add themselves.
    """

    send: Callable[[Notification, PermissionRequest | None, datetime], str]
    lanes: int
    word: str
    choice: str = ""


# In the order in which the form offers them.
CHANNELS: Mapping[str, Channel] = {
    Kind.APPRISE: Channel(apprise_channel.send, 4, "Service", "A service (Slack, Telegram, …)"),
    Kind.EMAIL: Channel(emails.send, 2, "E-mail", "E-mail"),
    Kind.WEBHOOK: Channel(webhook_messages.send, 4, "Webhook", "A webhook of your own"),
    Kind.PUSH: Channel(push.send, 4, "Device"),
}
TYPED = tuple(kind for kind, channel in CHANNELS.items() if channel.choice)


def send(message: Notification, request: PermissionRequest | None, now: datetime) -> str:
    """Send `message` about `request` (None: a test); return what the receiver said. Raises messages.NotSent."""
    channel = CHANNELS.get(message.target.kind)
    if channel is None:
        raise NotSent("this version of Signalbox does not support this channel")
    return channel.send(message, request, now)


def lanes_of(kind: str) -> int:
    """Return how many messages of a kind one process sends side by side; one where this version does not know it."""
    channel = CHANNELS.get(kind)
    return channel.lanes if channel is not None else 1


def word_of(kind: str) -> str:
    """Return what pages call an address of a kind."""
    channel = CHANNELS.get(kind)
    return channel.word if channel is not None else kind
