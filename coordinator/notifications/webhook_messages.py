"""The channel webhook: what its body says, and how it is signed.

A receiver checks `X-Signalbox-Signature: t=UNIX,v1=HEX`, where HEX is the HMAC-SHA256 of `UNIX.BODY` under the secret
that it was given, and refuses old times.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import datetime
from typing import Any

from coordinator.models import Notification, PermissionRequest
from coordinator.notifications import webhooks
from coordinator.notifications.messages import NotSent, link, session_of, title_of, words
from coordinator.policy.approvals import moment, standing
from coordinator.secrets.masking import without_secrets

EVENTS: dict[str, str] = {Notification.Event.ASKED: "waiting"}  # as receivers have always been told


def send(message: Notification, request: PermissionRequest | None, now: datetime) -> str:
    """Post a message about `request` (None: a test); return what the receiver answered. Raises NotSent."""
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


def payload(message: Notification, request: PermissionRequest | None, now: datetime) -> dict[str, Any]:
    """Return a webhook's body. The tool's input stays here: it may hold what outsiders must not see."""
    if message.event == Notification.Event.BUDGET:
        told = words(message, None, now)
        about = {"notification_id": message.pk, "sent_at": moment(now), "url": told.link}
        return {"event": "budget.reached", **about, "title": told.title, "text": told.text}
    body: dict[str, Any] = {
        "event": f"permission_request.{EVENTS.get(message.event, message.event)}" if request else "test",
        "notification_id": message.pk,
        "sent_at": moment(now),
        "url": link(request),
    }
    if request is not None:
        body |= {
            "request_id": request.request_id,
            "plugin_id": without_secrets(request.plugin_id),
            "permission_type": without_secrets(request.permission_type),
            "justification": without_secrets(request.justification),
            "deadline": moment(request.expires_at),
            "session_id": session_of(request),
            "session_title": title_of(request),
        }
    if request is not None and message.event == Notification.Event.SETTLED:
        body |= {"status": standing(request, now).status, "decided_by": request.approved_by}
    return body


def signature(secret: str, at: int, body: bytes) -> str:
    """Return the header that proves who sent `body`, and when."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"
