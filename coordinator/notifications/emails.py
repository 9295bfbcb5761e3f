"""The channel e-mail: what a mail says, and handing it to the mail server."""

from __future__ import annotations

import smtplib

from django.conf import settings
from django.core.mail import send_mail

from coordinator.lib.network_words import in_words
from coordinator.models import PermissionRequest
from coordinator.notifications.messages import NotSent, link, title_of


def send(address: str, request: PermissionRequest | None) -> str:
    """Mail about `request` (None: a test); return what came of it, in words. Raises NotSent."""
    if not settings.EMAIL_HOST:
        raise NotSent("no mail server is set (SIGNALBOX_SMTP_HOST)")
    subject, text = _letter(request)
    try:
        send_mail(subject, text, settings.DEFAULT_FROM_EMAIL, [address])
    except (OSError, smtplib.SMTPException) as problem:
        raise NotSent(f"the mail server {in_words(problem)}") from None
    return "handed to the mail server"


def _letter(request: PermissionRequest | None) -> tuple[str, str]:
    if request is None:
        return "Signalbox: a test", f"This is a test. Messages from Signalbox reach you.\n\n{link(None)}\n"
    subject = f"Signalbox: {request.plugin_id} asks for {request.permission_type}"
    lines = [
        request.justification,
        *([f"Session: {title}"] if (title := title_of(request)) else []),
        "",
        "Open the request and decide (sign in first):",
        link(request),
        "",
    ]
    return " ".join(subject.split())[:180], "\n".join(lines)
