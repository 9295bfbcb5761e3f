"""The channel push: what a device shows, and its delivery to the device's push service.

A message says what is asked for, as a headline, and by whom. It holds the digest of exactly that request, so that a
Deny from the notification, or the answer to a question, counts for nothing else. It never says how to approve: for that
a person opens the card. A closed request replaces the notification of the open one (static/js/service-worker.js shows
both).
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
    USAGE_PAGE,
    AddressEnded,
    NotificationNotSent,
    approval_page_path,
    build_message_text,
    clean_foreign_text_to_one_line,
    request_session_title,
    session_id_of_request,
)
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.deciders.waiting import load_waiting_and_snoozed_requests
from coordinator.policy.requests import approvals, question_requests
from coordinator.policy.requests.approvals import canonical_instant_or_text, requester_name
from coordinator.policy.requests.judged_content import judged_card_digest
from coordinator.policy.requests.questions import AgentQuestions, describe_how_agent_asks
from coordinator.policy.requests.request_headlines import build_permission_request_headline
from coordinator.secrets import keyring
from coordinator.sessions import titles

KEY_PURPOSE = "key of push messages"
IN_MEMORY = 20  # requests read at one time: an input may be a megabyte
MOST_OFFERED_CHOICES = 4  # no device shows more buttons
CHOICE = 60  # characters
TITLE, GIST, CONTEXT = 120, 180, 120  # characters; four bytes each at most, they fit into webpush.LONGEST
PUSH_TTL = timedelta(days=1)  # how long a push service keeps what a device does not fetch
TEST_PUSH_TTL = timedelta(minutes=10)
CLOSED_PUSH_TTL = timedelta(hours=1)
MIN_PUSH_TTL = timedelta(minutes=1)


def send_push_and_describe_outcome(
    message: Notification, request: PermissionRequest | None, now: datetime
) -> str:
    """Push `message` about `request` (None: a test); return what the push service said.

    Raises NotificationNotSent, AddressEnded.
    """
    address = message.target.address
    try:
        text = encode_push_payload_within_limit(load_push_payload_of_notification(message, request, now))
        body = webpush.encrypt_push_message(text, **unseal_device_keys(message.target))
        status = webhooks.post_to_checked_address(
            address, body, load_signed_push_headers(message, request, now)
        )
    except (webhooks.WebhookAddressRefused, webhooks.WebhookUnreachable, keyring.KeyringUnusable) as problem:
        raise NotificationNotSent(str(problem)) from None
    except (ValueError, KeyError, PushKey.DoesNotExist):
        raise NotificationNotSent("the keys cannot be read: switch push on again on that device") from None
    return require_push_success_and_describe(status)


def require_push_success_and_describe(status: int) -> str:
    if status in {404, 410}:
        raise AddressEnded(
            f"The push service answered {status}: the browser has ended this subscription. "
            "Switch it on again on that device."
        )
    if status in {401, 403}:
        raise NotificationNotSent(
            f"answered {status}: the push service does not accept this installation's key"
        )
    if not 200 <= status < 300:
        raise NotificationNotSent(f"answered {status}")
    return f"answered {status}"


def load_push_payload_of_notification(
    message: Notification, request: PermissionRequest | None, now: datetime
) -> dict[str, Any]:
    person = User.objects.get(username=message.target.person)
    waiting = load_waiting_and_snoozed_requests(person, now).waiting_count
    if message.event in (Notification.NotifiedEvent.BUDGET, Notification.NotifiedEvent.LIMIT):
        message_text = build_message_text(message, None, now)
        budget_payload = {
            "title": clean_foreign_text_to_one_line(message_text.title, TITLE),
            "body": clean_foreign_text_to_one_line(message_text.text, GIST),
        }
        return {
            "kind": "budget",
            **budget_payload,
            "url": BUDGETS_PAGE if message.event == Notification.NotifiedEvent.BUDGET else USAGE_PAGE,
            "at": canonical_instant_or_text(now),
            "waiting": waiting,
        }
    if message.event in (Notification.NotifiedEvent.UNGUARDED, Notification.NotifiedEvent.SIGN_IN):
        message_text = build_message_text(message, None, now)
        return {
            "kind": str(message.event),
            "title": clean_foreign_text_to_one_line(message_text.title, TITLE),
            "body": clean_foreign_text_to_one_line(message_text.text, GIST),
            "url": message_text.link.removeprefix(settings.PUBLIC_URL),
            "at": canonical_instant_or_text(now),
            "waiting": waiting,
        }
    return build_push_payload_of_request(request, waiting, now)


def build_push_payload_of_request(
    request: PermissionRequest | None, waiting: int, now: datetime
) -> dict[str, Any]:
    """Return the payload for the service worker: of a request that waits or was closed, or (None) a test.

    `waiting` is how many requests the person may decide now.
    """
    request_payload = {
        "url": approval_page_path(request),
        "at": canonical_instant_or_text(now),
        "waiting": waiting,
    }
    if request is None:
        return request_payload | {
            "kind": "test",
            "title": "Signalbox: a test",
            "body": "Push messages reach this device.",
        }
    return request_payload | build_request_push_payload(request, request_session_title(request), now)


def encode_push_payload_within_limit(reported: dict[str, Any]) -> bytes:
    """Return a payload as JSON; where another program's id makes it too long for a push service, without details."""
    raw = json.dumps(reported, ensure_ascii=False).encode("utf-8", "replace")
    if len(raw) <= webpush.LONGEST:
        return raw
    brief = {name: reported[name] for name in ("kind", "title", "body", "at", "waiting")}
    return json.dumps(brief | {"url": approval_page_path(None)}, ensure_ascii=False).encode(
        "utf-8", "replace"
    )


def serialize_requests_for_offline_page(
    requests: PermissionRequestQuerySet, now: datetime
) -> list[dict[str, Any]]:
    """Return waiting requests as the list without a network shows them."""
    session_titles = titles.load_session_titles(requests.values_list("context__session_id", flat=True))
    rows = requests.iterator(IN_MEMORY)
    return [
        build_request_push_payload(row, session_titles.get(session_id_of_request(row) or "", ""), now)
        for row in rows
    ]


def build_request_push_payload(
    request: PermissionRequest, title: str | None, now: datetime
) -> dict[str, Any]:
    """Return a request as a notification says it; no more of its input than the headline."""
    waits = approvals.current_request_state(request, now).waiting
    title_line, body_line = request_push_title_and_body(request)
    request_fields = {
        "kind": "waiting" if waits else "closed",
        "id": request.request_id,
        "url": approval_page_path(request),
        "title": clean_foreign_text_to_one_line(title_line, TITLE),
        "body": clean_foreign_text_to_one_line(body_line, GIST),
        "beside": clean_foreign_text_to_one_line(title or request.justification, CONTEXT),
    }
    if waits:
        return (
            request_fields
            | question_choices_payload_or_empty(request)
            | {
                "judged": judged_card_digest(request),
                "asked_at": canonical_instant_or_text(request.created_at),
                "deadline": canonical_instant_or_text(request.expires_at),
            }
        )
    story = approvals.describe_request_outcome(request, now)
    return request_fields | {
        "beside": clean_foreign_text_to_one_line(f"{story[0].upper()}{story[1:]}", CONTEXT)
    }


def request_push_title_and_body(request: PermissionRequest) -> tuple[str, str]:
    """Return what is asked for, and who asks; of a question who asks it, and the question."""
    question = question_requests.parse_request_question_or_none(request)
    if question is None:
        return build_permission_request_headline(request).text, f"Asked by {requester_name(request)}"
    kind = f"{request.plugin_id} {describe_how_agent_asks(question)}"
    return kind, approvals.permission_request_gist(request)


def question_choices_payload_or_empty(request: PermissionRequest) -> dict[str, list[str]]:
    """Return the choices of a question that one press answers, as a notification offers them."""
    question = question_requests.parse_request_question_or_none(request)
    if not isinstance(question, AgentQuestions) or not question.is_one_tap:
        return {}
    choices = question.questions[0].choices[:MOST_OFFERED_CHOICES]
    if len(choices) < len(question.questions[0].choices):
        return {}
    return {"choices": [clean_foreign_text_to_one_line(choice.label, CHOICE) for choice in choices]}


def decidable_waiting_requests(user: User, now: datetime) -> PermissionRequestQuerySet:
    """Return the requests that wait and that `user` may decide."""
    ids = deciders.decidable_request_ids_unless_all(user, deciders.load_decider_book(now))
    rows = PermissionRequest.objects.with_context().awaiting_decision(now)
    return rows if ids is None else rows.filter(pk__in=ids)


def unseal_device_keys(target: NotificationTarget) -> dict[str, str]:
    """Return a device's keys. Raises KeyringUnusable, ValueError."""
    decoded = json.loads(
        keyring.unseal_text_with_keyring(device_keys_seal_purpose(target.address), target.push.keys)
    )
    return {name: str(decoded[name]) for name in ("p256dh", "auth")}


def device_keys_seal_purpose(address: str) -> str:
    """Return what a device's keys are sealed for: this address alone."""
    return f"push to {address}"


def load_signed_push_headers(
    message: Notification, request: PermissionRequest | None, now: datetime
) -> dict[str, str]:
    private_key = keyring.unseal_text_with_keyring(
        KEY_PURPOSE, PushKey.objects.get(pk=PushKey.ONLY).private_key
    )
    headers = {
        "Authorization": webpush.vapid_authorization_header(
            message.target.address, private_key, push_contact_address(), now
        ),
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "TTL": str(int(push_ttl_timedelta(message, request, now).total_seconds())),
        "Urgency": "high",
    }
    if request is not None:  # what is not fetched yet gives way to what is newer about the same request
        headers["Topic"] = webpush.encode_base64url(hashlib.sha256(request.request_id.encode()).digest())[:32]
    return headers


def push_ttl_timedelta(message: Notification, request: PermissionRequest | None, now: datetime) -> timedelta:
    if not message.request_id:
        return TEST_PUSH_TTL
    if request is None:  # a budget, a limit, a session or a sign-in
        return PUSH_TTL
    current_request_state = approvals.current_request_state(request, now)
    if not current_request_state.waiting:
        return CLOSED_PUSH_TTL
    return (
        max(MIN_PUSH_TTL, min(PUSH_TTL, current_request_state.until - now))
        if current_request_state.until
        else PUSH_TTL
    )


def push_contact_address() -> str:
    """Return whom a push service may write to: our public page, or where it has none that others reach, the mail's."""
    return settings.PUBLIC_URL if settings.HTTPS else f"mailto:{settings.DEFAULT_FROM_EMAIL}"
