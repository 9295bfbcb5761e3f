"""Notifications that a request waits, still waits, or was closed. None of them can decide it.

A message is a row and a job, written in the transaction that asks or closes; the worker with the job's lease sends it.
So none is lost by a restart, none delays the asker, and its owner can see what became of it.
"""

from __future__ import annotations

from coordinator.actions.notifications.addresses import (
    create_notification_target,
    list_undecryptable_address_problems,
    reencrypt_notification_addresses,
    remove_notification_address,
    set_notification_filter,
)
from coordinator.actions.notifications.announcing import (
    announce_budget_level,
    announce_request_end,
    announce_subscription_limit_level,
    announce_waiting_request,
    queue_test_notification,
)
from coordinator.actions.notifications.choices import set_unguarded_call_notifications
from coordinator.actions.notifications.delivering import (
    SEND,
    cancel_notification_delivery,
    deliver_notification,
    find_due_notifications,
    reconcile_delivery_jobs,
    start_due_deliveries,
)
from coordinator.actions.notifications.escalating import (
    create_escalation_step,
    escalate_due_requests,
    remove_escalation_step,
)
from coordinator.actions.notifications.quiet_hours import clear_quiet_hours, set_quiet_hours
from coordinator.actions.notifications.removed_people import (
    delete_notification_settings_of_person,
    move_notification_settings_to_name,
)
from coordinator.notifications import channels

__all__ = [
    "SEND",
    "announce_budget_level",
    "announce_request_end",
    "announce_subscription_limit_level",
    "announce_waiting_request",
    "cancel_notification_delivery",
    "channels",
    "clear_quiet_hours",
    "create_escalation_step",
    "create_notification_target",
    "delete_notification_settings_of_person",
    "deliver_notification",
    "escalate_due_requests",
    "find_due_notifications",
    "list_undecryptable_address_problems",
    "move_notification_settings_to_name",
    "queue_test_notification",
    "reconcile_delivery_jobs",
    "reencrypt_notification_addresses",
    "remove_escalation_step",
    "remove_notification_address",
    "set_notification_filter",
    "set_quiet_hours",
    "set_unguarded_call_notifications",
    "start_due_deliveries",
]
