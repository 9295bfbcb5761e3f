"""How a message leaves: through the channel of its target."""

from __future__ import annotations

from datetime import datetime

from coordinator.models import Notification, NotificationTarget, PermissionRequest
from coordinator.notifications import emails, webhook_messages


def send(message: Notification, request: PermissionRequest | None, now: datetime) -> str:
    """Send `message` about `request` (None: a test); return what the receiver said. Raises messages.NotSent."""
    if message.target.kind == NotificationTarget.Kind.EMAIL:
        return emails.send(message.target.address, request)
    return webhook_messages.send(message, request, now)
