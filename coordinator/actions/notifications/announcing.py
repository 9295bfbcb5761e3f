"""Creation of notifications: when a request begins to wait or is closed, and tests."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from coordinator.actions.notifications.addresses import get_own_notification_target
from coordinator.actions.notifications.delivering import SEND, start_delivery_thread
from coordinator.actions.upkeep.jobs import enqueue_jobs
from coordinator.identity.roles import ADMIN, APPROVER, people_with_role
from coordinator.lib import instants
from coordinator.models import (
    BudgetMark,
    McpAccessToken,
    Notification,
    NotificationChoice,
    NotificationTarget,
    PermissionRequest,
    SubscriptionLimit,
)
from coordinator.notifications import filters as hearing
from coordinator.notifications import recipients
from coordinator.notifications.messages import BUDGET, LIMIT, SESSION, SIGN_IN

Event = Notification.NotifiedEvent
State = Notification.State

# Withdrawn on all devices of the person who decides; others need no message about their own actions.
TAKEN_BACK = ("push",)


def queue_test_notification(target_id: int, *, user: User, now: datetime | None = None) -> Notification:
    """Send a message that says it is a test to one of this person's addresses."""
    now = now or timezone.now()
    target = get_own_notification_target(target_id, user)
    with transaction.atomic():
        message = Notification.objects.create(target=target, request_id="", created_at=now)
        enqueue_jobs(SEND, [str(message.pk)], now=now)
        transaction.on_commit(start_delivery_thread, robust=True)
    return message


def announce_waiting_request(request: PermissionRequest, *, now: datetime) -> None:
    """Queue notifications of `request` for those who may decide it. Call it in the transaction that asks."""
    targets = list(NotificationTarget.objects.without_ended_devices().order_by("id"))
    if targets:
        people = recipients.immediate_recipient_usernames(request, now, {target.person for target in targets})
        able = [target for target in targets if target.person in people]
        enqueue_request_notifications(
            hearing.filter_targets_for_request(able, request), request, Event.ASKED, now
        )


def announce_budget_level(mark: BudgetMark, *, now: datetime) -> None:
    """Queue notifications of a budget's level for approvers. Call it in the transaction that records it."""
    able = people_with_role(APPROVER).values("username")
    targets = NotificationTarget.objects.without_ended_devices().filter(person__in=able).order_by("id")
    enqueue_notifications(
        hearing.filter_targets_for_budgets(targets), f"{BUDGET}{mark.pk}", Event.BUDGET, now
    )


def announce_subscription_limit_level(limit: SubscriptionLimit, *, now: datetime) -> None:
    """Queue notifications for approvers whose level a subscription's limit has reached: once per address and window."""
    able = people_with_role(APPROVER).values("username")
    targets = NotificationTarget.objects.without_ended_devices().filter(
        person__in=able, limit_percent__lte=limit.used_percent
    )
    window = timedelta(minutes=limit.window_minutes)
    began = instants.instant_from_microseconds(limit.resets_at_us) - window
    about = f"{LIMIT}{limit.pk}"
    notified = Notification.objects.filter(request_id=about, created_at__gte=began).values("target_id")
    enqueue_notifications(targets.exclude(pk__in=notified).order_by("id"), about, Event.LIMIT, now)


def announce_unguarded_calls(session_id: str, *, now: datetime) -> None:
    """Queue notifications of calls without a guard for approvers who did not switch them off.

    Call it in the transaction that records it.
    """
    silent = NotificationChoice.objects.filter(unguarded=False).values("person")
    able = people_with_role(APPROVER).exclude(username__in=silent).values("username")
    targets = NotificationTarget.objects.without_ended_devices().filter(person__in=able).order_by("id")
    enqueue_notifications(
        hearing.filter_targets_for_sessions(targets), f"{SESSION}{session_id}", Event.UNGUARDED, now
    )


def announce_needed_sign_in(token: McpAccessToken, *, now: datetime) -> None:
    """Queue a notification for the person who must sign in at an MCP server, or for administrators if all share it.

    Call it in the transaction that records it.
    """
    able = people_with_role(APPROVER if token.user_id is not None else ADMIN)
    if token.user_id is not None:
        able = able.filter(pk=token.user_id)
    targets = NotificationTarget.objects.without_ended_devices().filter(person__in=able.values("username"))
    about = f"{SIGN_IN}{token.pk}"
    enqueue_notifications(
        hearing.filter_targets_for_sessions(targets.order_by("id")), about, Event.SIGN_IN, now
    )


def announce_request_end(request: PermissionRequest, *, now: datetime) -> None:
    """Queue notifications of how `request` ended for those notified of it. Call it in the transaction that closes it.

    A message that is just being sent has its follow-up too: a message that was not sent after all removes it
    (delivering).
    """
    sent_notifications = Notification.objects.filter(
        request_id=request.request_id, event__in=(Event.ASKED, Event.ESCALATED)
    ).exclude(state__in=(State.FAILED, State.DROPPED))
    targets = NotificationTarget.objects.filter(pk__in=sent_notifications.values("target_id")).order_by("id")
    names = (request.approved_by or "").split(", ")
    enqueue_request_notifications(
        [target for target in targets if target.person not in names or target.kind in TAKEN_BACK],
        request,
        Event.SETTLED,
        now,
    )


def enqueue_request_notifications(
    targets: Iterable[NotificationTarget], request: PermissionRequest, event: Event, now: datetime
) -> int:
    """Write one message for each address; return how many. A request's end is queued once, even if reported twice."""
    return enqueue_notifications(targets, request.request_id, event, now)


def enqueue_notifications(
    targets: Iterable[NotificationTarget], about: str, event: Event, now: datetime
) -> int:
    rows = [Notification(target=target, request_id=about, event=event, created_at=now) for target in targets]
    if not rows:
        return 0
    written = Notification.objects.bulk_create(rows, ignore_conflicts=event == Event.SETTLED)
    if event == Event.SETTLED:  # those ids are not returned, and some rows may have been there
        ends = Notification.objects.filter(request_id=about, event=event, state=State.WAITING)
        ids = list(ends.values_list("pk", flat=True))
    else:
        ids = [row.pk for row in written]
    enqueue_jobs(SEND, map(str, ids), now=now)
    transaction.on_commit(start_delivery_thread, robust=True)
    return len(rows)
