"""The channel e-mail: handing a mail to the mail server."""

from __future__ import annotations

import smtplib
from datetime import datetime

from django.conf import settings
from django.core.mail import send_mail

from coordinator.lib.network_words import describe_network_error
from coordinator.models import Notification, PermissionRequest
from coordinator.notifications.messages import NotificationNotSent, build_message_text


def send_email_and_describe_outcome(
    message: Notification, request: PermissionRequest | None, now: datetime
) -> str:
    """Mail about `request` (None: a test); return what came of it, in words. Raises NotificationNotSent."""
    if not settings.EMAIL_HOST:
        raise NotificationNotSent("no mail server is set (SIGNALBOX_SMTP_HOST)")
    message_text = build_message_text(message, request, now)
    try:
        send_mail(
            message_text.title,
            message_text.body_with_link,
            settings.DEFAULT_FROM_EMAIL,
            [message.target.address],
        )
    except (OSError, smtplib.SMTPException) as problem:
        raise NotificationNotSent(f"the mail server {describe_network_error(problem)}") from None
    return "handed to the mail server"
