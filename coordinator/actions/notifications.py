"""Telling people that a request waits: by webhook, signed and retried, or by mail. Never with a way to decide.

A message is a row, written in the transaction that asks; whoever holds the row's next turn sends it. So none is
lost by a restart, none holds up the asker, and its owner can see what became of it.
"""

from __future__ import annotations

import logging
import secrets
import threading
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, connections, transaction
from django.db.models import Min
from django.utils import timezone

from coordinator.actions import audit
from coordinator.errors import Conflict, Invalid, NotFound
from coordinator.identity.actors import person as person_actor
from coordinator.identity.roles import APPROVER, has_role
from coordinator.lib import meters
from coordinator.models import Notification, NotificationTarget, PermissionRequest
from coordinator.notifications import outbox, webhooks
from coordinator.notifications.messages import NotSent
from coordinator.policy import approvals

log = logging.getLogger(__name__)

Kind = NotificationTarget.Kind
State = Notification.State

# How long after each failed attempt the next is made; after the last the message is given up.
BACKOFF = tuple(timedelta(seconds=seconds) for seconds in (5, 30, 120, 600, 1800, 7200))
# A worker that dies while it sends leaves its message to another after this time.
TURN = timedelta(seconds=60)
AT_ONCE = 20  # messages of one target in a row
SENDERS = 8  # targets that are sent to side by side, each by a thread of its own
MOST_TARGETS = 10

_busy: set[int] = set()  # targets that a thread of this process is sending to
_busy_lock = threading.Lock()


def add(*, by: User, kind: str, address: str, now: datetime | None = None) -> NotificationTarget:
    """Add an address of this person's and return it, a webhook's secret in it.

    Raises Invalid for what is no address, Conflict for one that is there already.
    """
    now, address = now or timezone.now(), address.strip()
    if kind == Kind.WEBHOOK:
        _check_url(address)
    elif kind == Kind.EMAIL:
        _check_mail(address)
    else:
        raise Invalid("Choose a webhook or an e-mail address.")
    if NotificationTarget.objects.filter(person=by.get_username()).count() >= MOST_TARGETS:
        raise Conflict(f"You already have {MOST_TARGETS} addresses, which is the limit. Remove one first.")
    secret = f"whsec_{secrets.token_urlsafe(32)}" if kind == Kind.WEBHOOK else None
    try:
        with transaction.atomic():
            target = NotificationTarget.objects.create(
                person=by.get_username(), kind=kind, address=address, secret=secret, created_at=now
            )
            _audit("NOTIFICATION_TARGET_ADDED", target, by, now)
    except IntegrityError:
        raise Conflict("This address is already on your list.") from None
    return target


def remove(target_id: int, *, by: User, now: datetime | None = None) -> None:
    """Remove an address of this person's, and its log. Raises NotFound for one that is not theirs."""
    with transaction.atomic():
        target = _own(target_id, by)
        _audit("NOTIFICATION_TARGET_REMOVED", target, by, now or timezone.now())
        NotificationTarget.objects.filter(pk=target.pk).delete()


def forget(name: str) -> None:
    """Remove every address of a name that nobody has any more. Call it in the transaction that frees the name."""
    NotificationTarget.objects.filter(person=name).delete()


def rename(before: str, after: str) -> None:
    """Let the addresses follow a person to a new name. Call it in the transaction that gives the name."""
    forget(after)  # left by another who had it
    NotificationTarget.objects.filter(person=before).update(person=after)


def send_test(target_id: int, *, by: User, now: datetime | None = None) -> Notification:
    """Send a message that says it is a test to one of this person's addresses."""
    return _enqueue(_own(target_id, by), "", now or timezone.now())


def announce(request: PermissionRequest, *, now: datetime) -> None:
    """Have everybody who may decide told that `request` waits. Call it in the transaction that asks."""
    for target in NotificationTarget.objects.all():
        _enqueue(target, request.request_id, now)


def _enqueue(target: NotificationTarget, request_id: str, now: datetime) -> Notification:
    return Notification.objects.create(target=target, request_id=request_id, created_at=now, next_at=now)


def deliver_due(now: datetime | None = None) -> None:
    """Send what is due, to each target in a thread of its own: a slow receiver holds up nobody but itself."""
    due = Notification.objects.due(now or timezone.now())
    with _busy_lock:
        idle = due.exclude(target_id__in=list(_busy)).values_list("target_id", flat=True)
        waits_longest = idle.annotate(since=Min("next_at")).order_by("since", "target_id")
        chosen = list(waits_longest[: max(0, SENDERS - len(_busy))])
        _busy.update(chosen)
    for target_id in chosen:
        threading.Thread(
            target=_deliver_to, args=(target_id,), name=f"notifications-{target_id}", daemon=True
        ).start()


def _deliver_to(target_id: int) -> None:
    """Send what is due to one target, in order; where one message does not get through, the others wait too."""
    try:
        due = Notification.objects.due(timezone.now()).filter(target_id=target_id).order_by("id")
        for pk in list(due.values_list("pk", flat=True)[:AT_ONCE]):
            if not deliver(pk):
                now = timezone.now()
                rest = Notification.objects.due(now).filter(target_id=target_id)
                rest.update(next_at=now + BACKOFF[0])
                break
    except Exception:
        log.exception("Notifications could not be sent")
    finally:
        connections.close_all()
        with _busy_lock:
            _busy.discard(target_id)


def deliver(pk: int, now: datetime | None = None) -> bool:
    """Try one message, if it is due and nobody else is at it, and write down what became of it.

    False where its target did not take it.
    """
    now = now or timezone.now()
    with transaction.atomic():
        if not Notification.objects.due(now).filter(pk=pk).update(next_at=now + TURN):
            return True
    message = Notification.objects.select_related("target").get(pk=pk)
    request = PermissionRequest.objects.with_context().filter(request_id=message.request_id).first()
    why_not = _pointless(message, request, now)
    if why_not:
        _close(message, State.DROPPED, why_not)
        return True
    try:
        outcome = outbox.send(message, request, now)
    except NotSent as problem:
        _failed(message, str(problem), now)
        return False
    _close(message, State.SENT, outcome, sent_at=now)
    return True


def _pointless(message: Notification, request: PermissionRequest | None, now: datetime) -> str | None:
    """Say why the message should not be sent any more, or None."""
    user = User.objects.filter(username=message.target.person).first()
    if user is None or not has_role(user, APPROVER):
        return f"{message.target.person} may no longer decide"
    if message.request_id and (request is None or not approvals.standing(request, now).waiting):
        return "the request was closed before"
    return None


def _failed(message: Notification, problem: str, now: datetime) -> None:
    attempts = message.attempts + 1
    if attempts > len(BACKOFF):
        _close(message, State.FAILED, problem)
        return
    Notification.objects.filter(pk=message.pk).update(
        attempts=attempts, next_at=now + BACKOFF[attempts - 1], outcome=problem
    )


def _close(message: Notification, state: str, outcome: str, sent_at: datetime | None = None) -> None:
    Notification.objects.filter(pk=message.pk).update(
        state=state, attempts=message.attempts + 1, next_at=None, outcome=outcome, sent_at=sent_at
    )
    meters.MESSAGES.add(message.target.kind, state)


def _own(target_id: int, by: User) -> NotificationTarget:
    target = NotificationTarget.objects.filter(pk=target_id, person=by.get_username()).first()
    if target is None:
        raise NotFound("You have no such address.")
    return target


def _check_mail(address: str) -> None:
    try:
        validate_email(address)
    except ValidationError:
        raise Invalid(f"{address!r} is not an e-mail address.") from None


def _check_url(address: str) -> None:
    """Accept http(s) URLs that carry no password; what a name leads to is checked whenever something is sent."""
    try:
        webhooks.check_literal(address)
    except webhooks.AddressRefused as refusal:
        raise Invalid(str(refusal)) from None


def _audit(event: str, target: NotificationTarget, by: User, now: datetime) -> None:
    """Write the change down, without the address: a webhook's URL often is a secret itself."""
    audit.record(
        event,
        actor=person_actor(by),
        target=f"notification:{target.pk}",
        result="success",
        metadata={"kind": target.kind, "host": urlsplit(target.address).hostname or "mail"},
        now=now,
    )
