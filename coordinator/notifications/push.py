"""The channel push: what a device shows, and handing it to the device's push service.

A message says who asks for what, in few words, and holds the digest of exactly that request, so that a Deny from the
notification counts for nothing else. It never says how to approve: for that a person opens the card. What was closed
meanwhile is told in the place of what asked (static/js/service-worker.js shows both).
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User

from coordinator.models import Notification, NotificationTarget, PermissionRequest, PushKey
from coordinator.models.permissions import PermissionRequestQuerySet
from coordinator.notifications import webhooks, webpush
from coordinator.notifications.messages import (
    BUDGETS_PAGE,
    Ended,
    NotSent,
    line,
    path_to,
    session_of,
    title_of,
    words,
)
from coordinator.policy import approvals, deciders
from coordinator.policy.approvals import moment
from coordinator.policy.judged import judged_digest
from coordinator.secrets import keyring
from coordinator.sessions import titles

KEY_PURPOSE = "key of push messages"
IN_MEMORY = 20  # requests read at one time: an input may be a megabyte
TITLE, GIST, BESIDE = 120, 180, 120  # characters; four bytes each at most, they fit into webpush.LONGEST
PUSH_KEPT_FOR = timedelta(days=1)  # how long a push service keeps what a device does not fetch
TEST_KEPT_FOR = timedelta(minutes=10)
CLOSED_KEPT_FOR = timedelta(hours=1)
LEAST_KEPT_FOR = timedelta(minutes=1)


def send(message: Notification, request: PermissionRequest | None, now: datetime) -> str:
    """Push `message` about `request` (None: a test); return what the push service said. Raises NotSent, Ended."""
    address = message.target.address
    try:
        text = packed(_payload_for(message, request, now))
        body = webpush.encrypted(text, **keys_of(message.target))
        status = webhooks.post(address, body, _headers(address, request, now))
    except (webhooks.AddressRefused, webhooks.Unreachable, keyring.KeyringUnusable) as problem:
        raise NotSent(str(problem)) from None
    except (ValueError, KeyError, PushKey.DoesNotExist):
        raise NotSent("the keys cannot be read: switch push on again on that device") from None
    return _told(status)


def _told(status: int) -> str:
    if status in {404, 410}:
        raise Ended(
            f"The push service answered {status}: the browser has ended this subscription. "
            "Switch it on again on that device."
        )
    if status in {401, 403}:
        raise NotSent(f"answered {status}: the push service does not accept this installation's key")
    if not 200 <= status < 300:
        raise NotSent(f"answered {status}")
    return f"answered {status}"


def _payload_for(message: Notification, request: PermissionRequest | None, now: datetime) -> dict[str, Any]:
    waiting = waiting_for(User.objects.get(username=message.target.person), now).count()
    if message.event == Notification.Event.BUDGET:
        told = words(message, None, now)
        shown = {"title": line(told.title, TITLE), "body": line(told.text, GIST)}
        return {"kind": "budget", **shown, "url": BUDGETS_PAGE, "at": moment(now), "waiting": waiting}
    return payload(request, waiting, now)


def payload(request: PermissionRequest | None, waiting: int, now: datetime) -> dict[str, Any]:
    """Return what the service worker is told: of a request that waits or was closed, or (None) a test.

    `waiting` is how many requests the person may decide now.
    """
    told = {"url": path_to(request), "at": moment(now), "waiting": waiting}
    if request is None:
        return told | {
            "kind": "test",
            "title": "Signalbox: a test",
            "body": "Push messages reach this device.",
        }
    return told | _described(request, title_of(request), now)


def packed(told: dict[str, Any]) -> bytes:
    """Return a payload as JSON; where another program's id makes it too long for a push service, without details."""
    raw = json.dumps(told, ensure_ascii=False).encode("utf-8", "replace")
    if len(raw) <= webpush.LONGEST:
        return raw
    brief = {name: told[name] for name in ("kind", "title", "body", "at", "waiting")}
    return json.dumps(brief | {"url": path_to(None)}, ensure_ascii=False).encode("utf-8", "replace")


def listed(requests: PermissionRequestQuerySet, now: datetime) -> list[dict[str, Any]]:
    """Return waiting requests as the list without a network shows them."""
    named = titles.of(requests.values_list("context__session_id", flat=True))
    rows = requests.iterator(IN_MEMORY)
    return [_described(row, named.get(session_of(row) or "", ""), now) for row in rows]


def _described(request: PermissionRequest, title: str | None, now: datetime) -> dict[str, Any]:
    """Return a request as a notification says it; no more of its input than the gist."""
    waits = approvals.standing(request, now).waiting
    told = {
        "kind": "waiting" if waits else "closed",
        "id": request.request_id,
        "url": path_to(request),
        "title": line(f"{request.plugin_id} asks for {_asked(request)}", TITLE),
        "body": line(approvals.gist_of(request), GIST),
        "beside": line(title or request.justification, BESIDE),
    }
    if waits:
        return told | {
            "judged": judged_digest(request),
            "asked_at": moment(request.created_at),
            "deadline": moment(request.expires_at),
        }
    story = approvals.story(request, now)
    return told | {"beside": line(f"{story[0].upper()}{story[1:]}", BESIDE)}


def _asked(request: PermissionRequest) -> str:
    tool = approvals.subject_of(request).tool_name
    return f"{request.permission_type} ({tool})" if tool else request.permission_type


def waiting_for(user: User, now: datetime) -> PermissionRequestQuerySet:
    """Return the requests that wait and that `user` may decide."""
    ids = deciders.decidable(user, deciders.load(now))
    rows = PermissionRequest.objects.with_context().waiting(now)
    return rows if ids is None else rows.filter(pk__in=ids)


def keys_of(target: NotificationTarget) -> dict[str, str]:
    """Return a device's keys. Raises KeyringUnusable, ValueError."""
    found = json.loads(keyring.unseal(purpose_of(target.address), target.push.keys))
    return {name: str(found[name]) for name in ("p256dh", "auth")}


def purpose_of(address: str) -> str:
    """Return what a device's keys are sealed for: this address alone."""
    return f"push to {address}"


def _headers(address: str, request: PermissionRequest | None, now: datetime) -> dict[str, str]:
    private_key = keyring.unseal(KEY_PURPOSE, PushKey.objects.get(pk=PushKey.ONLY).private_key)
    headers = {
        "Authorization": webpush.authorization(address, private_key, contact(), now),
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "TTL": str(int(_kept_for(request, now).total_seconds())),
        "Urgency": "high",
    }
    if request is not None:  # what is not fetched yet gives way to what is newer about the same request
        headers["Topic"] = webpush.encode(hashlib.sha256(request.request_id.encode()).digest())[:32]
    return headers


def _kept_for(request: PermissionRequest | None, now: datetime) -> timedelta:
    if request is None:
        return TEST_KEPT_FOR
    standing = approvals.standing(request, now)
    if not standing.waiting:
        return CLOSED_KEPT_FOR
    return max(LEAST_KEPT_FOR, min(PUSH_KEPT_FOR, standing.until - now)) if standing.until else PUSH_KEPT_FOR


def contact() -> str:
    """Return whom a push service may write to: our public page, or where it has none that others reach, the mail's."""
    return settings.PUBLIC_URL if settings.HTTPS else f"mailto:{settings.DEFAULT_FROM_EMAIL}"
