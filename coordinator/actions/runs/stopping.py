"""Stopping of a run, or of a session with all its pending runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.runs import executors
from coordinator.actions.runs.run_state_machine import (
    AFTERWARDS,
    command_runner_to_stop_process,
    command_runner_to_stop_run,
    filter_active_runs_of_session,
    lock_session,
    lock_session_and_load_run,
    set_session_status,
    transition_run,
    try_end_run,
)
from coordinator.errors import BadRequest
from coordinator.identity.actors import Actor
from coordinator.models import LivingExecutor, Run, Runner, RunnerOffers, Session, StopCommand
from coordinator.runs.statuses import OPEN
from coordinator.runs.stops import STOPPABLE


@dataclass(frozen=True, slots=True)
class StopResult:
    """The result of a request to stop a run: `status` is the run's, `message` is set where it has ended."""

    run_id: str
    session_id: str
    status: str
    message: str | None = None


def request_run_stop(run_id: str, *, actor: Actor, now: datetime, only_pending: bool = False) -> StopResult:
    """Stop a run: a pending one at once, any other, unless `only_pending`, through its runner's next poll.

    A runner that drives agents ends the turn alone: the session's agent waits for the next prompt. Raises NotFound, or
    BadRequest for a run that is being stopped or has ended, and with `only_pending` for one that has begun.
    """
    with transaction.atomic():
        run, session = lock_session_and_load_run(run_id)
        if only_pending and run.status != Run.Status.PENDING:
            raise BadRequest("This prompt is no longer waiting.")
        if run.status not in STOPPABLE:
            raise BadRequest(f"Run cannot be stopped (status: RunStatus.{run.status.upper()})")
        audit.record_audit_entry(
            "RUN_STOPPED",
            actor=actor,
            target=run.run_id,
            result="success",
            metadata={"session_id": session.session_id, "before": run.status},
            now=now,
        )
        keeps = RunnerOffers.objects.filter(pk=run.runner_id).exists()
        return stop_locked_run(run, session, now, keeps_process=keeps)


def stop_locked_run(run: Run, session: Session, now: datetime, *, keeps_process: bool = False) -> StopResult:
    """Stop an open run whose session's lock is held."""
    if run.status == Run.Status.PENDING:
        try_end_run(run, session, Run.Status.STOPPED, now)
        return build_stop_result(run, "Run cancelled before execution")
    if not Runner.objects.filter(pk=run.runner_id).exists():
        try_end_run(run, session, Run.Status.STOPPED, now)
        return build_stop_result(run, "Run stopped: its runner is gone")
    command_runner_to_stop_run(run, str(run.runner_id), now, keeps_process=keeps_process)
    transition_run(run, Run.Status.STOPPING)
    set_session_status(session, Session.Status.STOPPING)
    return build_stop_result(run)


def build_stop_result(run: Run, message: str | None = None) -> StopResult:
    return StopResult(run.run_id, run.session_id, run.status, message)


def request_session_stop(session_id: str, *, actor: Actor, now: datetime) -> StopResult:
    """Stop whatever a session does: its run at work, or else its queued run, and all that is queued behind.

    A process that waits in an idle session is ended by its runner. Where nothing is open, a session that still looks
    alive is marked as stopped. The Stop's `run_id` is empty then. Raises NotFound.
    """
    with transaction.atomic():
        session = lock_session(session_id)
        if session.status == Session.Status.STOPPING and not is_only_turn_being_stopped(session_id):
            return StopResult("", session_id, session.status, "Session is already being stopped")
        open_runs = list(Run.objects.filter(session_id=session_id, status__in=OPEN).order_by("created_at"))
        living = LivingExecutor.objects.filter(pk=session_id).first()
        if not open_runs and living is None and session.status in {*AFTERWARDS.values()}:
            return StopResult("", session_id, session.status, f"Session already {session.status}")
        audit.record_audit_entry(
            "SESSION_STOPPED",
            actor=actor,
            target=session_id,
            result="success",
            metadata={"before": session.status, "runs": [run.run_id for run in open_runs]},
            now=now,
        )
        if not open_runs and living is None:
            set_session_status(session, Session.Status.STOPPED)
            return StopResult("", session_id, session.status, "No run is open - session marked as stopped")
        # Those that wait go first, so that the end of the one at work does not let one of them begin.
        open_runs.sort(key=lambda run: run.status != Run.Status.PENDING)
        stops = [stop_locked_run(run, session, now) for run in open_runs]
        is_run_active = filter_active_runs_of_session(session_id).exists()
        if living is not None and not is_run_active:
            return stop_idle_session_process(session, living, now)
        # Its agent is at work without a run, and nothing else ends it here.
        if session.status == Session.Status.RUNNING and not is_run_active:
            set_session_status(session, Session.Status.STOPPED)
        return stops[-1]


def is_only_turn_being_stopped(session_id: str) -> bool:
    """Return whether a session that is being stopped would go on: with a queued run, or with its process."""
    waits = Run.objects.filter(session_id=session_id, status=Run.Status.PENDING)
    return waits.exists() or StopCommand.objects.filter(session_id=session_id, keeps_process=True).exists()


def stop_idle_session_process(session: Session, living: LivingExecutor, now: datetime) -> StopResult:
    """Order the runner to end an idle session's process on its next poll; its report ends the session."""
    if not Runner.objects.filter(pk=living.runner_id).exists():
        executors.end_executor_without_end_report(session.session_id, living.runner_id)
        set_session_status(session, Session.Status.STOPPED)
        return StopResult("", session.session_id, session.status, "Session stopped: its runner is gone")
    command_runner_to_stop_process(living.run_id, session.session_id, living.runner_id, now)
    set_session_status(session, Session.Status.STOPPING)
    return StopResult("", session.session_id, session.status, "Stop command queued for idle session")
