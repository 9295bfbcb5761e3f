"""What runners report of the runs that they hold."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from coordinator.actions import writers
from coordinator.actions.runs import executors
from coordinator.actions.runs.claiming import may_begin
from coordinator.actions.runs.machine import (
    active,
    end,
    has_event_since,
    locked,
    move,
    note_stop,
    order_stop,
    words_of,
    write_event,
)
from coordinator.errors import Forbidden
from coordinator.models import Run, Runner, Session, StopCommand
from coordinator.runs import demands
from coordinator.runs.statuses import OPEN, RESUME, START_EVENTS


def started(run_id: str, runner: Runner, now: datetime) -> None:
    """The runner has started the run's process.

    Too late (the run was stopped or has failed meanwhile): the run stays as it is and the runner is told to
    stop the process. A run that fell back to pending because this report took long is taken up again. One that
    has completed was faster than this report: nothing is left to start, and its process may serve the next.
    Raises Forbidden for a run that another runner holds.
    """
    with transaction.atomic():
        run, session = locked(run_id)
        if run.runner_id not in {None, runner.runner_id}:
            order_stop(run, runner.runner_id, now)
        elif run.status == Run.Status.CLAIMED or _may_take_up(run, runner, now):
            _start(run, session, runner, now)
        elif run.status != Run.Status.RUNNING and not _was_overtaken(run, runner):
            order_stop(run, runner.runner_id, now)
            Run.objects.filter(pk=run.pk, started_at__isnull=True).update(started_at=now)
    _require_holder(run, runner)


def _was_overtaken(run: Run, runner: Runner) -> bool:
    """Say whether the newest runners' report of a quick turn's end came first: the process is not to be ended."""
    return run.status == Run.Status.COMPLETED and runner.lifecycle is not None


def _may_take_up(run: Run, runner: Runner, now: datetime) -> bool:
    waits = run.status == Run.Status.PENDING and not active(run.session_id).exists()
    return waits and demands.meets(runner, run.demands) and may_begin(run, runner, now)


def _start(run: Run, session: Session, runner: Runner, now: datetime) -> None:
    claimed_at = run.claimed_at or now
    writers.note_runner(session.session_id, runner.registered_by)
    move(run, Run.Status.RUNNING, runner_id=runner.runner_id, claimed_at=claimed_at, started_at=now)
    if run.parent_session_id and run.parent_session_id != session.session_id:
        session.parent_session_id = run.parent_session_id
    if run.type == RESUME:
        session.last_resumed_at = now
    session.status = Session.Status.RUNNING
    session.save(update_fields=["status", "parent_session", "last_resumed_at"])
    if not has_event_since(session.session_id, START_EVENTS, since=claimed_at):
        write_event(run, words_of(run).start, now)


def completed(run_id: str, runner: Runner, now: datetime, *, session_status: str | None = None) -> None:
    """The run is done. The end event is added if its executor sent none.

    The session is finished; with `session_status` idle its process lives on and waits for the next run, unless it
    was being stopped, which it then is. A report that overtakes the one of the start says both.
    """
    with transaction.atomic():
        run, session = locked(run_id)
        _require_holder(run, runner)
        if run.status == Run.Status.CLAIMED:
            _start(run, session, runner, now)
        if session_status != Session.Status.IDLE:
            _forget_process(run)
            end(run, session, Run.Status.COMPLETED, now)
        elif run.status == Run.Status.STOPPING:
            if _keeps_process(run):
                executors.lives_on(run, runner.runner_id, now)
            else:
                executors.has_ended(session.session_id)
            if end(run, session, Run.Status.STOPPED, now):
                note_stop(run, now, since=run.started_at, reason="stopped")
        elif run.status == Run.Status.RUNNING:
            executors.lives_on(run, runner.runner_id, now)
            end(run, session, Run.Status.COMPLETED, now)


def failed(run_id: str, runner: Runner, error: str, now: datetime) -> None:
    """The run's process could not start or ended badly. One that was to be stopped anyway counts as stopped."""
    with transaction.atomic():
        run, session = locked(run_id)
        _require_holder(run, runner)
        stopping = run.status == Run.Status.STOPPING
        _forget_process(run)
        end(run, session, Run.Status.STOPPED if stopping else Run.Status.FAILED, now, error=error)


def stopped(run_id: str, runner: Runner, now: datetime) -> None:
    """The runner has ended the run's process."""
    with transaction.atomic():
        run, session = locked(run_id)
        _require_holder(run, runner)
        _forget_process(run)
        end(run, session, Run.Status.STOPPED, now)


def _keeps_process(run: Run) -> bool:
    """Say whether the turn alone was to be stopped."""
    return StopCommand.objects.filter(run_id=run.run_id, keeps_process=True).exists()


def _forget_process(run: Run) -> None:
    """The process of an open run has ended with it; late words of a run that has ended say nothing of the next."""
    if run.status in OPEN:
        executors.has_ended(run.session_id)


def _require_holder(run: Run, runner: Runner) -> None:
    if run.runner_id != runner.runner_id:
        raise Forbidden(f"Run {run.run_id} is not held by runner {runner.runner_id}")
