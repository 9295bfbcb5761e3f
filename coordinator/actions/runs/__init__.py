"""Runs: ordered, claimed, reported on, stopped, recovered. The state machine itself is in `machine`."""

from __future__ import annotations

from coordinator.actions.runs import executors
from coordinator.actions.runs.claiming import claim_next, unclaim
from coordinator.actions.runs.holding import IMPORTED, hold, release
from coordinator.actions.runs.loss import end_unconfirmed_stop, finish_unreported, give_up_waiting, recover
from coordinator.actions.runs.machine import (
    AFTERWARDS,
    NOBODY_CAME,
    UNCONFIRMED_STOP,
    deliver_callbacks,
    has_event_since,
    lock_session,
    write_event,
)
from coordinator.actions.runs.ordering import create
from coordinator.actions.runs.reports import completed, failed, started, stopped
from coordinator.actions.runs.stopping import StopResult, stop, stop_session
from coordinator.runs.statuses import ACTIVE, OPEN, RESUME, START, START_EVENTS, STOP_EVENTS

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
    "StopResult",
    "claim_next",
    "completed",
    "create",
    "deliver_callbacks",
    "end_unconfirmed_stop",
    "executors",
    "failed",
    "finish_unreported",
    "give_up_waiting",
    "has_event_since",
    "hold",
    "lock_session",
    "recover",
    "release",
    "started",
    "stop",
    "stop_session",
    "stopped",
    "unclaim",
    "write_event",
]
