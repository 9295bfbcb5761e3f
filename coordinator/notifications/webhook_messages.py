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
from coordinator.notifications.messages import (
    SESSION,
    NotificationNotSent,
    approval_page_url,
    build_message_text,
    request_session_title,
    session_id_of_request,
)
from coordinator.policy.requests.approvals import canonical_instant_or_text, current_request_state
from coordinator.secrets.masking import mask_secrets_in_value

EVENTS: dict[str, str] = {
    Notification.NotifiedEvent.ASKED: "waiting"
}  # as it has always been sent to receivers


def send_webhook_and_describe_outcome(
    message: Notification, request: PermissionRequest | None, now: datetime
) -> str:
    """Post a message about `request` (None: a test); return what the receiver answered. Raises NotificationNotSent."""
    body = json.dumps(build_webhook_payload(message, request, now), ensure_ascii=False).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Signalbox",
        "X-Signalbox-Signature": build_webhook_signature_header(
            message.target.secret or "", int(now.timestamp()), body
        ),
    }
    try:
        status = webhooks.post_to_checked_address(message.target.address, body, headers)
    except webhooks.WebhookAddressRefused as refusal:
        raise NotificationNotSent(str(refusal)) from None
    except webhooks.WebhookUnreachable as problem:
        raise NotificationNotSent(str(problem)) from None
    if not 200 <= status < 300:
        raise NotificationNotSent(f"answered {status}")
    return f"answered {status}"


def build_webhook_payload(
    message: Notification, request: PermissionRequest | None, now: datetime
) -> dict[str, Any]:
    """Return a webhook's body. The tool's input stays here: it may hold what outsiders must not see."""
    if message.event in (Notification.NotifiedEvent.BUDGET, Notification.NotifiedEvent.LIMIT):
        message_text = build_message_text(message, None, now)
        about = {
            "notification_id": message.pk,
            "sent_at": canonical_instant_or_text(now),
            "url": message_text.link,
        }
        return {
            "event": f"{message.event}.reached",
            **about,
            "title": message_text.title,
            "text": message_text.text,
        }
    if message.event == Notification.NotifiedEvent.UNGUARDED:
        message_text = build_message_text(message, None, now)
        return {
            "event": "session.unguarded",
            "notification_id": message.pk,
            "sent_at": canonical_instant_or_text(now),
            "session_id": message.request_id.removeprefix(SESSION),
            "url": message_text.link,
            "title": message_text.title,
            "text": message_text.text,
        }
    if message.event == Notification.NotifiedEvent.SIGN_IN:
        message_text = build_message_text(message, None, now)
        return {
            "event": "mcp_server.sign_in_needed",
            "notification_id": message.pk,
            "sent_at": canonical_instant_or_text(now),
            "url": message_text.link,
            "title": message_text.title,
            "text": message_text.text,
        }
    body: dict[str, Any] = {
        "event": f"permission_request.{EVENTS.get(message.event, message.event)}" if request else "test",
        "notification_id": message.pk,
        "sent_at": canonical_instant_or_text(now),
        "url": approval_page_url(request),
    }
    if request is not None:
        body |= {
            "request_id": request.request_id,
            "plugin_id": mask_secrets_in_value(request.plugin_id),
            "permission_type": mask_secrets_in_value(request.permission_type),
            "justification": mask_secrets_in_value(request.justification),
            "deadline": canonical_instant_or_text(request.expires_at),
            "session_id": session_id_of_request(request),
            "session_title": request_session_title(request),
        }
    if request is not None and message.event == Notification.NotifiedEvent.SETTLED:
        body |= {"status": current_request_state(request, now).status, "decided_by": request.approved_by}
    return body


def build_webhook_signature_header(secret: str, at: int, body: bytes) -> str:
    """Return the header that proves who sent `body`, and when."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"
