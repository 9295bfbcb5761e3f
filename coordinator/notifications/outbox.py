"""How a message leaves: what it says, how it is signed, and what a receiver's answer means.

A webhook's receiver checks `X-Signalbox-Signature: t=UNIX,v1=HEX`, where HEX is the HMAC-SHA256 of
`UNIX.BODY` under the secret it was given, and refuses old times.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import smtplib
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.mail import send_mail

from coordinator.lib.network_words import in_words
from coordinator.models import Notification, NotificationTarget, PermissionRequest
from coordinator.notifications import webhooks
from coordinator.policy.approvals import context_of, moment
from coordinator.sessions import titles


class NotSent(Exception):
    """The message did not get through; says why in a few words, never with the receiver's own text."""


def send(message: Notification, request: PermissionRequest | None, now: datetime) -> str:
    """Send `message` about `request` (None: a test); return what the receiver said. Raises NotSent."""
    if message.target.kind == NotificationTarget.Kind.EMAIL:
        return _mail(message.target, request)
    return _post(message, request, now)


def link(request: PermissionRequest | None) -> str:
    """Return where a person decides: a page that asks for a sign-in first."""
    path = f"/ui/approvals/{request.request_id}/" if request else "/ui/approvals/"
    return f"{settings.PUBLIC_URL}{path}"


def payload(message: Notification, request: PermissionRequest | None, now: datetime) -> dict[str, Any]:
    """Return a webhook's body. The tool's input stays here: it may hold what outsiders must not see."""
    body: dict[str, Any] = {
        "event": "permission_request.waiting" if request else "test",
        "notification_id": message.pk,
        "sent_at": moment(now),
        "url": link(request),
    }
    if request is not None:
        body |= {
            "request_id": request.request_id,
            "plugin_id": request.plugin_id,
            "permission_type": request.permission_type,
            "justification": request.justification,
            "deadline": moment(request.expires_at),
            "session_id": _session_of(request),
            "session_title": _title_of(request),
        }
    return body


def _session_of(request: PermissionRequest) -> str | None:
    context = context_of(request)
    return context.session_id if context else None


def _title_of(request: PermissionRequest) -> str | None:
    """Return what the session is about in which a request was made, where that is known."""
    session_id = _session_of(request)
    return (titles.of_one(session_id) or None) if session_id else None


def signature(secret: str, at: int, body: bytes) -> str:
    """Return the header that proves who sent `body`, and when."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def _post(message: Notification, request: PermissionRequest | None, now: datetime) -> str:
    body = json.dumps(payload(message, request, now), ensure_ascii=False).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Signalbox",
        "X-Signalbox-Signature": signature(message.target.secret or "", int(now.timestamp()), body),
    }
    try:
        status = webhooks.post(message.target.address, body, headers)
    except webhooks.AddressRefused as refusal:
        raise NotSent(str(refusal)) from None
    except webhooks.Unreachable as problem:
        raise NotSent(str(problem)) from None
    if not 200 <= status < 300:
        raise NotSent(f"answered {status}")
    return f"answered {status}"


def _mail(target: NotificationTarget, request: PermissionRequest | None) -> str:
    if not settings.EMAIL_HOST:
        raise NotSent("no mail server is set (SIGNALBOX_SMTP_HOST)")
    subject, text = _letter(request)
    try:
        send_mail(subject, text, settings.DEFAULT_FROM_EMAIL, [target.address])
    except (OSError, smtplib.SMTPException) as problem:
        raise NotSent(f"the mail server {in_words(problem)}") from None
    return "handed to the mail server"


def _letter(request: PermissionRequest | None) -> tuple[str, str]:
    if request is None:
        return "Signalbox: a test", f"This is a test. Messages from Signalbox reach you.\n\n{link(None)}\n"
    subject = f"Signalbox: {request.plugin_id} asks for {request.permission_type}"
    lines = [
        request.justification,
        *([f"Session: {title}"] if (title := _title_of(request)) else []),
        "",
        "Open the request and decide (sign in first):",
        link(request),
        "",
    ]
    return " ".join(subject.split())[:180], "\n".join(lines)
