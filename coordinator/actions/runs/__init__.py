"""Ordering, claiming, stopping and recovery of runs. The state machine is in `run_state_machine`."""

from __future__ import annotations

from coordinator.actions.runs import executors
from coordinator.actions.runs.claiming import claim_next_run, unclaim_run
from coordinator.actions.runs.held_runs import IMPORTED, hold_runs, release_held_run
from coordinator.actions.runs.lost_runs import (
    complete_run_of_finished_session,
    end_run_after_unconfirmed_stop,
    fail_run_if_demands_unmet,
    recover_runner_runs,
)
from coordinator.actions.runs.ordering import queue_start_or_resume_run
from coordinator.actions.runs.reports import (
    record_run_completed,
    record_run_failed,
    record_run_stopped,
    record_start_or_order_stop,
)
from coordinator.actions.runs.run_state_machine import (
    AFTERWARDS,
    NOBODY_CAME,
    UNCONFIRMED_STOP,
    add_run_event,
    has_session_event_since,
    lock_session,
    resume_parent_with_callbacks,
)
from coordinator.actions.runs.stopping import StopResult, request_run_stop, request_session_stop
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
    "add_run_event",
    "claim_next_run",
    "complete_run_of_finished_session",
    "end_run_after_unconfirmed_stop",
    "executors",
    "fail_run_if_demands_unmet",
    "has_session_event_since",
    "hold_runs",
    "lock_session",
    "queue_start_or_resume_run",
    "record_run_completed",
    "record_run_failed",
    "record_run_stopped",
    "record_start_or_order_stop",
    "recover_runner_runs",
    "release_held_run",
    "request_run_stop",
    "request_session_stop",
    "resume_parent_with_callbacks",
    "unclaim_run",
]
