"""Telling people that a request waits, still waits, or was closed. Never with a way to decide.

A message is a row, written in the transaction that asks or closes; whoever holds the row's next turn sends it. So none
is lost by a restart, none holds up the asker, and its owner can see what became of it.
"""

from __future__ import annotations

from coordinator.actions.notifications.addresses import (
    add,
    remove,
    reseal,
    set_about,
    unusable,
)
from coordinator.actions.notifications.announcing import announce, budget_reached, send_test, settled
from coordinator.actions.notifications.delivering import BACKOFF, deliver, deliver_due
from coordinator.actions.notifications.escalating import add_step, escalate_due, remove_step
from coordinator.actions.notifications.leaving import forget, rename
from coordinator.actions.notifications.quiet_hours import clear_quiet, set_quiet
from coordinator.models.notifications import TURN
from coordinator.notifications import channels

__all__ = [
    "BACKOFF",
    "TURN",
    "add",
    "add_step",
    "announce",
    "budget_reached",
    "channels",
    "clear_quiet",
    "deliver",
    "deliver_due",
    "escalate_due",
    "forget",
    "remove",
    "remove_step",
    "rename",
    "reseal",
    "send_test",
    "set_about",
    "set_quiet",
    "settled",
    "unusable",
]
