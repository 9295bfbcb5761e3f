"""Delivery of due notifications, with retries, separately for each target, and the log of the outcomes.

Each message that waits has a job (`actions.upkeep.jobs`): its next attempt, its lease and its back-off are there. The
log keeps what its owner sees. A message is closed and its job deleted in one transaction.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import DatabaseError, connections, transaction
from django.db.models import BigIntegerField, Exists, Min, OuterRef, QuerySet
from django.db.models.functions import Cast
from django.utils import timezone

from coordinator.actions.audit import audit
from coordinator.actions.notifications import push
from coordinator.actions.notifications import worker_pools as lanes
from coordinator.actions.upkeep.jobs import (
    LEASE_RENEWER,
    RETRY_BACKOFF,
    ClaimedJob,
    claim_jobs,
    delete_completed_job,
    enqueue_jobs,
    job_retry_delay,
    lock_and_require_waiting_job,
    postpone_job,
    reschedule_waiting_jobs,
    retry_job_later,
)
from coordinator.errors import Conflict
from coordinator.identity.actors import Actor
from coordinator.identity.roles import APPROVER, has_role
from coordinator.lib import instants
from coordinator.lib import process_metrics as meters
from coordinator.models import Job, Notification, NotificationChoice, NotificationTarget, PermissionRequest
from coordinator.models.notifications import QUIET
from coordinator.notifications import channels, quiet_hours
from coordinator.notifications.messages import (
    AddressEnded,
    NotificationNotSent,
    find_budget_mark_of_notification,
    find_pending_sign_in_of_notification,
    find_session_guard_of_notification,
    find_subscription_limit_of_notification,
)
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.limits import budgets
from coordinator.policy.requests import approvals

log = logging.getLogger(__name__)

Event = Notification.NotifiedEvent
State = Notification.State
EVENTS_WITHOUT_REQUEST = frozenset({Event.BUDGET, Event.LIMIT, Event.UNGUARDED, Event.SIGN_IN})

SEND = "notifications:send"  # the name of the jobs; their subject is the message's id
MAX_ATTEMPTS = len(RETRY_BACKOFF) + 1
AT_ONCE = 20  # messages of one target in a row
BROKEN_OFF = "Signalbox stopped each time while it was sending"
# How long an older version, running in parallel during an upgrade, has to send the messages that it wrote.
OLDER_VERSION_GRACE = timedelta(minutes=5)
UNKNOWN_PROBLEM = "sending failed for an unknown reason. Signalbox's log says more"

# One thread looks for what is due at once, one more waits to look after it: whatever comes meanwhile, it will see.
_lookers = threading.BoundedSemaphore(2)
_looking = threading.Lock()


def start_delivery_thread() -> None:
    """Send what is due without waiting for housekeeping: a person should be notified within two seconds."""
    if _lookers.acquire(blocking=False):
        threading.Thread(target=deliver_due_notifications, name="notifications-due", daemon=True).start()


def deliver_due_notifications() -> None:
    with _looking:
        try:
            start_due_deliveries()
        except DatabaseError as problem:  # housekeeping tries again
            log.warning("Notifications are sent a little later: %s", str(problem).strip())
        finally:
            connections.close_all()
            _lookers.release()  # while we hold the lock: who waits for it has not looked yet


def find_due_notifications(now: datetime) -> QuerySet[Notification]:
    """Return the messages whose next attempt is due."""
    due_jobs = Job.objects.due_at(now).filter(name=SEND).values(message=Cast("subject", BigIntegerField()))
    return Notification.objects.filter(pk__in=due_jobs)


def start_due_deliveries(now: datetime | None = None) -> None:
    """Send what is due, to each target in a thread of its own: a slow receiver holds up nobody but itself."""
    due_rows = find_due_notifications(now or timezone.now()).values_list("target_id", "target__kind")
    waits_longest = due_rows.annotate(first=Min("id")).order_by("first")
    for target_id in lanes.reserve_slots_and_list_targets(
        [(target, kind) for target, kind, _ in waits_longest]
    ):
        threading.Thread(
            target=deliver_notifications_to_target,
            args=(target_id,),
            name=f"notifications-{target_id}",
            daemon=True,
        ).start()


def deliver_notifications_to_target(target_id: int) -> None:
    """Send what is due to one target, in order; where one message does not get through, the others wait too."""
    took_all = False
    try:
        due_notifications = find_due_notifications(timezone.now()).filter(target_id=target_id).order_by("id")
        for pk in list(due_notifications.values_list("pk", flat=True)[:AT_ONCE]):
            started_at = time.monotonic()
            took_it = deliver_notification(pk)
            lanes.update_target_slowness(target_id, time.monotonic() - started_at)
            if not took_it:
                now = timezone.now()
                rest = find_due_notifications(now).filter(target_id=target_id).values_list("pk", flat=True)
                reschedule_waiting_jobs(SEND, map(str, rest), at=now + RETRY_BACKOFF[0], now=now)
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
    claims = claim_jobs([SEND], now=now, subjects=[str(pk)])
    with LEASE_RENEWER.renew_leases_during_block(claims):
        return deliver_claimed_notification(claims[0], now) if claims else True


def deliver_claimed_notification(job: ClaimedJob, now: datetime) -> bool:
    message = (
        Notification.objects.select_related("target").filter(pk=job.subject, state=State.WAITING).first()
    )
    if message is None:
        delete_completed_job(job)
        return True
    if message.outcome == QUIET:
        message.outcome = None
        message.save(update_fields=["outcome"])
    request = PermissionRequest.objects.with_context().filter(request_id=message.request_id).first()
    if message.event == Event.SETTLED and not confirm_request_announced_or_drop(message, job, now):
        return True
    why_not = find_notification_drop_reason(message, request, now)
    if why_not:
        close_notification(message, job, State.DROPPED, why_not)
        return True
    return defer_message_if_quiet_hours(message, job, now) or attempt_notification_delivery(
        message, request, job, now
    )


def attempt_notification_delivery(
    message: Notification, request: PermissionRequest | None, job: ClaimedJob, now: datetime
) -> bool:
    """Send a message and write down what came of it; False where it has to be tried again.

    The attempt was counted when the job was claimed: what ends this process must not be tried for ever.
    """
    if job.attempts > MAX_ATTEMPTS:
        close_notification(message, job, State.FAILED, message.outcome or BROKEN_OFF)
        return True
    Notification.objects.filter(pk=message.pk).update(attempts=job.attempts)
    try:
        outcome = channels.send_notification(message, request, now)
    except AddressEnded as problem:
        push.mark_push_device_ended(message.target, str(problem), now)
        close_notification(message, job, State.FAILED, str(problem))
        return True
    except NotificationNotSent as problem:
        retry_later_or_fail_notification(message, job, str(problem), now)
        return False
    except Exception:
        log.exception("A notification could not be sent")
        retry_later_or_fail_notification(message, job, UNKNOWN_PROBLEM, now)
        return False
    close_notification(message, job, State.SENT, outcome, sent_at=now)
    if request is not None:  # its end may have waited for this
        end = find_related_notifications(message).filter(event=Event.SETTLED, state=State.WAITING)
        reschedule_waiting_jobs(SEND, map(str, end.values_list("pk", flat=True)), at=now, now=now)
    return True


def confirm_request_announced_or_drop(message: Notification, job: ClaimedJob, now: datetime) -> bool:
    """Return whether a request's end should be sent here; delete it if the request itself was never sent.

    While the message about the request itself is being sent, or kept back, its end waits for that.
    """
    before = find_related_notifications(message).exclude(event=Event.SETTLED)
    states = set(before.values_list("state", flat=True))
    if State.SENT in states:
        return True
    notifications = Notification.objects.filter(pk=message.pk)
    waiting = {
        str(pk): outcome for pk, outcome in before.filter(state=State.WAITING).values_list("pk", "outcome")
    }
    if not waiting:
        with transaction.atomic():
            notifications.delete()
            delete_completed_job(job)
        return False
    last = Job.objects.filter(name=SEND, subject__in=waiting).order_by("-next_at").first()
    if last is not None and waiting[last.subject] == QUIET:
        notifications.update(outcome=QUIET)
    soon = now + RETRY_BACKOFF[0]
    postpone_job(job, at=max(last.next_at, soon) if last else soon, now=now)
    return False


def find_related_notifications(message: Notification) -> QuerySet[Notification]:
    return Notification.objects.filter(target=message.target_id, request_id=message.request_id)


def find_notification_drop_reason(
    message: Notification, request: PermissionRequest | None, now: datetime
) -> str | None:
    """Return the reason for dropping a message that should not be sent any more, or None."""
    user = User.objects.filter(username=message.target.person).first()
    if user is None or not has_role(user, APPROVER):
        return f"{message.target.person} may no longer decide"
    if message.target.kind == NotificationTarget.Kind.PUSH and (
        push_block_reason := push.find_push_block_reason(message.target, user)
    ):
        return push_block_reason
    if message.event in EVENTS_WITHOUT_REQUEST:
        return find_non_request_drop_reason(message, now)
    return find_request_drop_reason(message, request, user, now) if message.request_id else None


def find_non_request_drop_reason(message: Notification, now: datetime) -> str | None:
    """Return the reason for dropping a message that is not about a request, or None."""
    reason = None
    if message.event == Event.BUDGET:
        reason = find_budget_drop_reason(message, now)
    elif message.event == Event.LIMIT:
        limit = find_subscription_limit_of_notification(message)
        if limit is None or limit.resets_at_us <= instants.instant_to_microseconds(now):
            reason = "the window of the limit has ended"
    elif message.event == Event.UNGUARDED:
        reason = find_unguarded_calls_drop_reason(message)
    elif message.event == Event.SIGN_IN and find_pending_sign_in_of_notification(message) is None:
        reason = "somebody has signed in"
    return reason


def find_budget_drop_reason(message: Notification, now: datetime) -> str | None:
    """Return the reason for dropping a message about a budget, or None."""
    mark = find_budget_mark_of_notification(message)
    if mark is None:
        return "the budget was changed before"
    if mark.budget.ended_at is not None:
        return "the budget was removed before"
    budget = budgets.convert_budget_row(mark.budget)
    is_over = not budget.is_limit_per_session and mark.about != budgets.current_period_iso_label(budget, now)
    return "the period of the budget has ended" if is_over else None


def find_unguarded_calls_drop_reason(message: Notification) -> str | None:
    """Return the reason for dropping a message about calls without a guard, or None."""
    if NotificationChoice.objects.filter(pk=message.target.person, unguarded=False).exists():
        return "it was switched off"
    return None if find_session_guard_of_notification(message) else "the session was deleted"


def find_request_drop_reason(
    message: Notification, request: PermissionRequest | None, user: User, now: datetime
) -> str | None:
    """Return the reason for dropping a message about a request, or None."""
    if request is None:
        return "the request was deleted"
    if message.event == Event.SETTLED:
        return None
    if not approvals.current_request_state(request, now).waiting:
        return "the request was closed before"
    return (
        None
        if deciders.can_user_decide_request(user, request, now)
        else f"{message.target.person} may not decide this"
    )


def defer_message_if_quiet_hours(message: Notification, job: ClaimedJob, now: datetime) -> bool:
    """Defer a message to the end of its person's quiet hours; tests and escalation are not silenced.

    A person who was notified by escalation is also notified at once when it is over.
    """
    if not message.request_id or message.event == Event.ESCALATED:
        return False
    woken = find_related_notifications(message).filter(event=Event.ESCALATED, state=State.SENT)
    if message.event == Event.SETTLED and woken.exists():
        return False
    end = quiet_hours.person_quiet_until(message.target.person, now)
    if end is None:
        return False
    Notification.objects.filter(pk=message.pk).update(outcome=QUIET)
    postpone_job(job, at=end, now=now)
    return True


def retry_later_or_fail_notification(
    message: Notification, job: ClaimedJob, problem: str, now: datetime
) -> None:
    """Schedule another attempt for a message. A test is not retried: its sender can send another."""
    if job.attempts >= MAX_ATTEMPTS or not message.request_id:
        close_notification(message, job, State.FAILED, problem)
        return
    with transaction.atomic():
        Notification.objects.filter(pk=message.pk).update(outcome=problem)
        retry_job_later(job, error=problem, at=now + job_retry_delay(job.attempts), now=now)


def close_notification(
    message: Notification, job: ClaimedJob, state: str, outcome: str, sent_at: datetime | None = None
) -> None:
    with transaction.atomic():
        Notification.objects.filter(pk=message.pk, state=State.WAITING).update(
            state=state, outcome=outcome, sent_at=sent_at
        )
        delete_completed_job(job)
    meters.MESSAGES.add(message.target.kind, state)


def cancel_notification_delivery(job_id: int, *, actor: Actor, now: datetime) -> None:
    """Give up a message that waits. Raises NotFound, and Conflict for one that is being sent and for other jobs."""
    with transaction.atomic():
        job = lock_and_require_waiting_job(job_id, now)
        if job.name != SEND:
            raise Conflict(f"{job.name} is done again and again. Only messages can be given up.")
        message = Notification.objects.filter(pk=job.subject, state=State.WAITING)
        message.update(state=State.FAILED, outcome=f"given up by {actor.name}")
        Job.objects.filter(pk=job.pk).delete()
        audit.record_audit_entry(
            "NOTIFICATION_GIVEN_UP",
            actor=actor,
            target=f"job:{job}",
            result="success",
            metadata={"attempts": job.attempts, "error": job.error},
            now=now,
        )


def reconcile_delivery_jobs(now: datetime) -> None:
    """Take over what an older version wrote and did not send, and delete the jobs of messages that are gone."""
    due_before = now - OLDER_VERSION_GRACE
    for message in Notification.objects.filter(state=State.WAITING, next_at__lte=due_before):
        with transaction.atomic():
            same = Notification.objects.filter(pk=message.pk, state=State.WAITING, next_at=message.next_at)
            if same.update(next_at=None):
                enqueue_jobs(SEND, [str(message.pk)], now=now)
    waiting = Notification.objects.filter(
        pk=Cast(OuterRef("subject"), BigIntegerField()), state=State.WAITING
    )
    Job.objects.due_at(now).filter(~Exists(waiting), name=SEND).delete()
