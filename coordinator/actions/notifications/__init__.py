"""Telling people that a request waits, still waits, or was closed. Never with a way to decide.

A message is a row and a job, written in the transaction that asks or closes; whoever holds the job's lease sends it. So
none is lost by a restart, none holds up the asker, and its owner can see what became of it.
"""

from __future__ import annotations

from coordinator.actions.notifications.addresses import (
    create_notification_target,
    find_unusable_addresses,
    remove_notification_address,
    reseal_addresses,
    set_address_filter,
)
from coordinator.actions.notifications.announcing import (
    announce_budget_level,
    announce_limit_level,
    announce_request,
    announce_request_end,
    queue_test_notification,
)
from coordinator.actions.notifications.choices import set_unguarded_choice
from coordinator.actions.notifications.delivering import (
    SEND,
    deliver_notification,
    find_due_messages,
    give_up_delivery,
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
    delete_person_notifications,
    rename_notification_person,
)
from coordinator.notifications import channels

__all__ = [
    "SEND",
    "announce_budget_level",
    "announce_limit_level",
    "announce_request",
    "announce_request_end",
    "channels",
    "clear_quiet_hours",
    "create_escalation_step",
    "create_notification_target",
    "delete_person_notifications",
    "deliver_notification",
    "escalate_due_requests",
    "find_due_messages",
    "find_unusable_addresses",
    "give_up_delivery",
    "queue_test_notification",
    "reconcile_delivery_jobs",
    "remove_escalation_step",
    "remove_notification_address",
    "rename_notification_person",
    "reseal_addresses",
    "set_address_filter",
    "set_quiet_hours",
    "set_unguarded_choice",
    "start_due_deliveries",
]
