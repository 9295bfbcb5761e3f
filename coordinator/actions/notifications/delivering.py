"""Sending what is due, retried, each target by itself; and writing down what became of it."""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import DatabaseError, connections, transaction
from django.db.models import Min, QuerySet
from django.utils import timezone

from coordinator.actions.notifications import push
from coordinator.actions.notifications import worker_pools as lanes
from coordinator.identity.roles import APPROVER, has_role
from coordinator.lib import process_metrics as meters
from coordinator.models import Notification, NotificationTarget, PermissionRequest
from coordinator.models.notifications import LONGEST_BACKOFF, QUIET, TURN
from coordinator.notifications import channels, quiet
from coordinator.notifications.messages import AddressEnded, NotificationNotSent, find_budget_mark
from coordinator.policy.deciders import book as deciders
from coordinator.policy.requests import approvals

log = logging.getLogger(__name__)

Event = Notification.NotifiedEvent
State = Notification.State

# How long after each failed attempt the next is made; after the last the message is given up.
BACKOFF = (*(timedelta(seconds=seconds) for seconds in (5, 30, 120, 600, 1800)), LONGEST_BACKOFF)
AT_ONCE = 20  # messages of one target in a row
BROKEN_OFF = "Signalbox stopped each time while it was sending"
UNKNOWN_PROBLEM = "sending failed for an unknown reason. Signalbox's log says more"

# One thread looks for what is due at once, one more waits to look after it: whatever comes meanwhile, it will see.
_lookers = threading.BoundedSemaphore(2)
_looking = threading.Lock()


def start_delivery_thread() -> None:
    """Send what is due without waiting for housekeeping: a person should hear of a request within two seconds."""
    if _lookers.acquire(blocking=False):
        threading.Thread(target=run_due_delivery, name="notifications-due", daemon=True).start()


def run_due_delivery() -> None:
    with _looking:
        try:
            start_due_deliveries()
        except DatabaseError as problem:  # housekeeping tries again
            log.warning("Notifications are sent a little later: %s", str(problem).strip())
        finally:
            connections.close_all()
            _lookers.release()  # while we hold the lock: who waits for it has not looked yet


def start_due_deliveries(now: datetime | None = None) -> None:
    """Send what is due, to each target in a thread of its own: a slow receiver holds up nobody but itself."""
    due = Notification.objects.due_for_delivery(now or timezone.now()).values_list(
        "target_id", "target__kind"
    )
    waits_longest = due.annotate(since=Min("next_at")).order_by("since", "target_id")
    for target_id in lanes.reserve_delivery_slots([(target, kind) for target, kind, _ in waits_longest]):
        threading.Thread(
            target=deliver_to_target, args=(target_id,), name=f"notifications-{target_id}", daemon=True
        ).start()


def deliver_to_target(target_id: int) -> None:
    """Send what is due to one target, in order; where one message does not get through, the others wait too."""
    took_all = False
    try:
        due = Notification.objects.due_for_delivery(timezone.now()).filter(target_id=target_id).order_by("id")
        for pk in list(due.values_list("pk", flat=True)[:AT_ONCE]):
            began = time.monotonic()
            took_it = deliver_notification(pk)
            lanes.record_delivery_time(target_id, time.monotonic() - began)
            if not took_it:
                now = timezone.now()
                rest = Notification.objects.due_for_delivery(now).filter(target_id=target_id)
                rest.update(next_at=now + BACKOFF[0])
                break
        else:
            took_all = True
    except Exception:
        log.exception("Notifications could not be sent")
    finally:
        connections.close_all()
        lanes.release_delivery_slot(target_id)
    if took_all:  # what was asked while we sent should not wait for housekeeping
        start_delivery_thread()


def deliver_notification(pk: int, now: datetime | None = None) -> bool:
    """Try one message, if it is due and nobody else is at it, and write down what became of it.

    False where its target did not take it.
    """
    now = now or timezone.now()
    with transaction.atomic():
        if not Notification.objects.due_for_delivery(now).filter(pk=pk).update(next_at=now + TURN):
            return True
        Notification.objects.filter(pk=pk, outcome=QUIET).update(outcome=None)
    message = Notification.objects.select_related("target").get(pk=pk)
    request = PermissionRequest.objects.with_context().filter(request_id=message.request_id).first()
    if message.event == Event.SETTLED and not prepare_end_notification(message, now):
        return True
    why_not = find_drop_reason(message, request, now)
    if why_not:
        close_notification(message, State.DROPPED, why_not)
        return True
    return defer_for_quiet_hours(message, now) or attempt_delivery(message, request, now)


def attempt_delivery(message: Notification, request: PermissionRequest | None, now: datetime) -> bool:
    """Send a message and write down what came of it; False where it has to be tried again.

    The attempt is counted before it is made: what ends this process must not be tried for ever.
    """
    if message.attempts > len(BACKOFF):
        close_notification(message, State.FAILED, message.outcome or BROKEN_OFF)
        return True
    message.attempts += 1
    Notification.objects.filter(pk=message.pk).update(attempts=message.attempts)
    try:
        outcome = channels.send_notification(message, request, now)
    except AddressEnded as problem:
        push.end_push_device(message.target, str(problem), now)
        close_notification(message, State.FAILED, str(problem))
        return True
    except NotificationNotSent as problem:
        schedule_delivery_retry(message, str(problem), now)
        return False
    except Exception:
        log.exception("A notification could not be sent")
        schedule_delivery_retry(message, UNKNOWN_PROBLEM, now)
        return False
    close_notification(message, State.SENT, outcome, sent_at=now)
    if request is not None:  # its end may have waited for this
        end = find_related_notifications(message).filter(event=Event.SETTLED, state=State.WAITING)
        end.filter(next_at__gt=now).update(next_at=now)
    return True


def prepare_end_notification(message: Notification, now: datetime) -> bool:
    """Say whether the end of a request is news here; forget it where the request was never told.

    While word of the request itself is being sent, or kept back, its end waits for that.
    """
    before = find_related_notifications(message).exclude(event=Event.SETTLED)
    states = set(before.values_list("state", flat=True))
    if State.SENT in states:
        return True
    mine = Notification.objects.filter(pk=message.pk)
    waiting = before.filter(state=State.WAITING).order_by("-next_at")
    waits_for, outcome = waiting.values_list("next_at", "outcome").first() or (None, None)
    if waits_for is None:
        mine.delete()
    else:
        kept_back = {"outcome": QUIET} if outcome == QUIET else {}
        mine.update(next_at=max(waits_for, now + BACKOFF[0]), **kept_back)
    return False


def find_related_notifications(message: Notification) -> QuerySet[Notification]:
    return Notification.objects.filter(target=message.target_id, request_id=message.request_id)


def find_drop_reason(message: Notification, request: PermissionRequest | None, now: datetime) -> str | None:
    """Say why the message should not be sent any more, or None."""
    user = User.objects.filter(username=message.target.person).first()
    if user is None or not has_role(user, APPROVER):
        return f"{message.target.person} may no longer decide"
    if message.target.kind == NotificationTarget.Kind.PUSH and (
        why := push.find_push_block_reason(message.target, user)
    ):
        return why
    if message.event == Event.BUDGET:
        return None if find_budget_mark(message) else "the budget was changed before"
    return find_request_drop_reason(message, request, user, now) if message.request_id else None


def find_request_drop_reason(
    message: Notification, request: PermissionRequest | None, user: User, now: datetime
) -> str | None:
    """Say why the person should not be told of the request any more, or None."""
    if request is None:
        return "the request was deleted"
    if message.event == Event.SETTLED:
        return None
    if not approvals.current_request_state(request, now).waiting:
        return "the request was closed before"
    return (
        None
        if deciders.user_can_decide(user, request, now)
        else f"{message.target.person} may not decide this"
    )


def defer_for_quiet_hours(message: Notification, now: datetime) -> bool:
    """Leave a message to the end of its person's quiet hours; tests and escalation are not silenced.

    Whom escalation has woken also hears at once that it is over.
    """
    if not message.request_id or message.event == Event.ESCALATED:
        return False
    woken = find_related_notifications(message).filter(event=Event.ESCALATED, state=State.SENT)
    if message.event == Event.SETTLED and woken.exists():
        return False
    end = quiet.person_quiet_until(message.target.person, now)
    if end is None:
        return False
    Notification.objects.filter(pk=message.pk).update(next_at=end, outcome=QUIET)
    return True


def schedule_delivery_retry(message: Notification, problem: str, now: datetime) -> None:
    """Have a message tried again later. A test is not: whoever wants to know asks anew."""
    if message.attempts > len(BACKOFF) or not message.request_id:
        close_notification(message, State.FAILED, problem)
        return
    Notification.objects.filter(pk=message.pk).update(
        next_at=now + BACKOFF[message.attempts - 1], outcome=problem
    )


def close_notification(
    message: Notification, state: str, outcome: str, sent_at: datetime | None = None
) -> None:
    Notification.objects.filter(pk=message.pk).update(
        state=state, next_at=None, outcome=outcome, sent_at=sent_at
    )
    meters.MESSAGES.add(message.target.kind, state)
