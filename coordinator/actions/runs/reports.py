"""Runners' reports on the runs that they hold."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from coordinator.actions.runs import executors
from coordinator.actions.runs.claiming import can_run_begin_on_runner
from coordinator.actions.runs.run_state_machine import (
    add_missing_run_end_event,
    add_run_event,
    command_runner_to_stop_run,
    event_names_for_runner_version,
    filter_active_runs_of_session,
    has_session_event_since,
    lock_session_and_load_run,
    transition_run,
    try_end_run,
)
from coordinator.actions.sessions import writers
from coordinator.errors import Forbidden
from coordinator.models import Run, Runner, Session, StopCommand
from coordinator.runs import demands
from coordinator.runs.statuses import OPEN, RESUME, START_EVENTS


def record_start_or_order_stop(run_id: str, runner: Runner, now: datetime) -> None:
    """Record that the runner has started the run's process.

    Too late (the run was stopped or has failed meanwhile): the run stays as it is and the runner is ordered to stop the
    process. A run that fell back to pending because this report took long is taken up again. One that has completed was
    faster than this report: nothing is left to start, and its process may serve the next. Raises Forbidden for a run
    that another runner holds.
    """
    with transaction.atomic():
        run, session = lock_session_and_load_run(run_id)
        if run.runner_id not in {None, runner.runner_id}:
            command_runner_to_stop_run(run, runner.runner_id, now)
        elif run.status == Run.Status.CLAIMED or can_runner_start_pending_run(run, runner, now):
            start_claimed_run(run, session, runner, now)
        elif run.status != Run.Status.RUNNING and not has_run_ended_before_start_report(run, runner):
            keeps = run.status == Run.Status.STOPPING and should_keep_process_after_stop(run)
            command_runner_to_stop_run(run, runner.runner_id, now, keeps_process=keeps)
            Run.objects.filter(pk=run.pk, started_at__isnull=True).update(started_at=now)
    require_runner_holds_run(run, runner)


def has_run_ended_before_start_report(run: Run, runner: Runner) -> bool:
    """Return whether the newest runners' report of a quick turn's end came first: the process is not to be ended."""
    return run.status == Run.Status.COMPLETED and runner.executor_lifecycle is not None


def can_runner_start_pending_run(run: Run, runner: Runner, now: datetime) -> bool:
    waits = run.status == Run.Status.PENDING and not filter_active_runs_of_session(run.session_id).exists()
    return (
        waits
        and demands.runner_meets_demands(runner, run.demands)
        and can_run_begin_on_runner(run, runner, now)
    )


def start_claimed_run(run: Run, session: Session, runner: Runner, now: datetime) -> None:
    claimed_at = run.claimed_at or now
    writers.add_runner_session_writer(session.session_id, runner.registered_by)
    transition_run(run, Run.Status.RUNNING, runner_id=runner.runner_id, claimed_at=claimed_at, started_at=now)
    if run.parent_session_id and run.parent_session_id != session.session_id:
        session.parent_session_id = run.parent_session_id
    if run.type == RESUME:
        session.last_resumed_at = now
    session.status = Session.Status.RUNNING
    session.save(update_fields=["status", "parent_session", "last_resumed_at"])
    if not has_session_event_since(session.session_id, START_EVENTS, since=claimed_at):
        add_run_event(run, event_names_for_runner_version(run).start, now)


def record_run_completed(
    run_id: str, runner: Runner, now: datetime, *, session_status: str | None = None
) -> None:
    """Record that the run is done. The end event is added if its executor sent none.

    The session is finished; with `session_status` idle its process lives on and waits for the next run, unless it
    was being stopped, which it then is. A report that overtakes the one of the start says both.
    """
    with transaction.atomic():
        run, session = lock_session_and_load_run(run_id)
        require_runner_holds_run(run, runner)
        if run.status == Run.Status.CLAIMED:
            start_claimed_run(run, session, runner, now)
        if session_status != Session.Status.IDLE:
            delete_executor_row_of_open_run(run)
            try_end_run(run, session, Run.Status.COMPLETED, now)
        elif run.status == Run.Status.STOPPING:
            is_undelivered = False
            if should_keep_process_after_stop(run):
                executors.record_idle_executor(run, runner.runner_id, now)
            else:
                executors.delete_living_executor_row(session.session_id)
                is_undelivered = is_stop_undelivered(run)
            if try_end_run(run, session, Run.Status.STOPPED, now):
                add_missing_run_end_event(run, now, since=run.started_at, reason="stopped")
                if is_undelivered:  # its turn ended by itself meanwhile, and its process goes on
                    command_runner_to_stop_run(run, runner.runner_id, now)
        elif run.status == Run.Status.RUNNING:
            executors.record_idle_executor(run, runner.runner_id, now)
            try_end_run(run, session, Run.Status.COMPLETED, now)


def record_run_failed(run_id: str, runner: Runner, error: str, now: datetime) -> None:
    """Record that the run's process failed to start or ended badly. One that was being stopped counts as stopped."""
    with transaction.atomic():
        run, session = lock_session_and_load_run(run_id)
        require_runner_holds_run(run, runner)
        stopping = run.status == Run.Status.STOPPING
        delete_executor_row_of_open_run(run)
        try_end_run(run, session, Run.Status.STOPPED if stopping else Run.Status.FAILED, now, error=error)


def record_run_stopped(run_id: str, runner: Runner, now: datetime) -> None:
    """Record that the runner has ended the run's process."""
    with transaction.atomic():
        run, session = lock_session_and_load_run(run_id)
        require_runner_holds_run(run, runner)
        delete_executor_row_of_open_run(run)
        try_end_run(run, session, Run.Status.STOPPED, now)


def should_keep_process_after_stop(run: Run) -> bool:
    """Return whether the turn alone was to be stopped."""
    return StopCommand.objects.filter(run_id=run.run_id, keeps_process=True).exists()


def is_stop_undelivered(run: Run) -> bool:
    """Return whether the run's runner does not know yet that it is to be stopped."""
    return StopCommand.objects.filter(run_id=run.run_id, delivered_at__isnull=True).exists()


def delete_executor_row_of_open_run(run: Run) -> None:
    """Delete the process of an open run; late reports of an ended run do not affect the next."""
    if run.status in OPEN:
        executors.delete_living_executor_row(run.session_id)


def require_runner_holds_run(run: Run, runner: Runner) -> None:
    if run.runner_id != runner.runner_id:
        raise Forbidden(f"Run {run.run_id} is not held by runner {runner.runner_id}")
