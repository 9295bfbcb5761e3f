"""How a message leaves: through the channel of its target.

A new channel is a module with a `send` and a line here, a `Kind` (models/notifications.py), what its addresses are
(actions/notifications/addresses.py), how many at once (actions/notifications/lanes.py), and its words on the page
(dashboard/approvals/telling.py, templates/approvals/_addresses.html).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from coordinator.models import Notification, NotificationTarget, PermissionRequest
from coordinator.notifications import apprise_channel, emails, push, webhook_messages
from coordinator.notifications.messages import NotSent

Kind = NotificationTarget.Kind
Channel = Callable[[Notification, PermissionRequest | None, datetime], str]

CHANNELS: Mapping[str, Channel] = {
    Kind.WEBHOOK: webhook_messages.send,
    Kind.EMAIL: emails.send,
    Kind.APPRISE: apprise_channel.send,
    Kind.PUSH: push.send,
}


def send(message: Notification, request: PermissionRequest | None, now: datetime) -> str:
    """Send `message` about `request` (None: a test); return what the receiver said. Raises messages.NotSent."""
    channel = CHANNELS.get(message.target.kind)
    if channel is None:
        raise NotSent("this version of Signalbox knows no such channel")
    return channel(message, request, now)
