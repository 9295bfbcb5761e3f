"""The channel e-mail: handing a mail to the mail server."""

from __future__ import annotations

import smtplib
from datetime import datetime

from django.conf import settings
from django.core.mail import send_mail

from coordinator.lib.network_words import in_words
from coordinator.models import Notification, PermissionRequest
from coordinator.notifications.messages import NotSent, words


def send(message: Notification, request: PermissionRequest | None, now: datetime) -> str:
    """Mail about `request` (None: a test); return what came of it, in words. Raises NotSent."""
    if not settings.EMAIL_HOST:
        raise NotSent("no mail server is set (SIGNALBOX_SMTP_HOST)")
    told = words(message, request, now)
    try:
        send_mail(told.title, told.letter, settings.DEFAULT_FROM_EMAIL, [message.target.address])
    except (OSError, smtplib.SMTPException) as problem:
        raise NotSent(f"the mail server {in_words(problem)}") from None
    return "handed to the mail server"
