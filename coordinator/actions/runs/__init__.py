"""Runs: ordered, claimed, reported on, stopped, recovered. The state machine itself is in `machine`."""

from __future__ import annotations

from coordinator.actions.runs.claiming import claim_next, claimable, unclaim
from coordinator.actions.runs.holding import IMPORTED, hold, release
from coordinator.actions.runs.loss import end_unconfirmed_stop, finish_unreported, give_up_waiting, recover
from coordinator.actions.runs.machine import (
    ACTIVE,
    AFTERWARDS,
    NOBODY_CAME,
    OPEN,
    RESUME,
    START,
    START_EVENTS,
    STOP_EVENTS,
    UNCONFIRMED_STOP,
    has_said,
    lock_session,
    tell_parent,
    write_event,
)
from coordinator.actions.runs.ordering import create
from coordinator.actions.runs.reports import completed, failed, started, stopped
from coordinator.actions.runs.stopping import Stop, stop, stop_session

__all__ = [
    "ACTIVE",
    "AFTERWARDS",
    "IMPORTED",
    "NOBODY_CAME",
    "OPEN",
    "RESUME",
    "START",
    "START_EVENTS",
    "STOP_EVENTS",
    "UNCONFIRMED_STOP",
    "Stop",
    "claim_next",
    "claimable",
    "completed",
    "create",
    "end_unconfirmed_stop",
    "failed",
    "finish_unreported",
    "give_up_waiting",
    "has_said",
    "hold",
    "lock_session",
    "recover",
    "release",
    "started",
    "stop",
    "stop_session",
    "stopped",
    "tell_parent",
    "unclaim",
    "write_event",
]
