"""Executors that outlive their runs: processes that wait in a session, and how they end.

The newest runners keep a session's process between its runs (`executor.lifecycle` is `persistent`). They report it when
a run completes with the session `idle`, and report again when the process has ended. Until then only they can resume
the session, a stop is an order to them, and the session is not deleted under its process.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from coordinator.actions.people import session_keys
from coordinator.actions.runs.run_state_machine import (
    filter_active_runs_of_session,
    lock_session,
    set_session_status,
)
from coordinator.errors import Forbidden
from coordinator.models import LivingExecutor, Run, Runner, Session, StopCommand

# The session's status after its process has ended, by the outcome that its runner reports.
ENDS: dict[str, str] = {
    "finished": Session.Status.FINISHED,
    "stopped": Session.Status.STOPPED,
    "failed": Session.Status.ERROR,
}


def record_idle_executor(run: Run, runner_id: str, now: datetime) -> None:
    """Record that the completed run's process waits for the next run. The session's lock is held."""
    values = {"runner_id": runner_id, "run_id": run.run_id, "since": now}
    LivingExecutor.objects.update_or_create(session_id=run.session_id, defaults=values)


def delete_living_executor_row(session_id: str) -> None:
    """Delete the row of the session's process, if any. The session's lock is held."""
    LivingExecutor.objects.filter(pk=session_id).delete()


def record_idle_executor_end(session_id: str, runner: Runner, status: str, now: datetime) -> None:  # noqa: ARG001 - as other reports
    """Record the runner's report that an idle session's process has ended: the session is `status`, one of ENDS.

    Said of a session whose process it does not keep (it ended before, or never lived on) it changes nothing. Raises
    NotFound, and Forbidden where another runner keeps the process.
    """
    with transaction.atomic():
        session = lock_session(session_id)
        living = LivingExecutor.objects.filter(pk=session_id).first()
        if living is None:
            return
        if living.runner_id != runner.runner_id:
            raise Forbidden(f"The executor of session {session_id} is kept by another runner")
        delete_executor_and_update_session(session, living, ENDS[status])


def end_executors_of_lost_runner(runner_id: str) -> None:
    """End the processes of a runner that is gone: idle sessions are finished, those being stopped are stopped."""
    living_executors = LivingExecutor.objects.filter(runner_id=runner_id)
    for session_id in list(living_executors.values_list("pk", flat=True)):
        end_executor_without_end_report(session_id, runner_id)


def end_executor_without_end_report(session_id: str, runner_id: str) -> bool:
    """End a session's process whose end its runner has not reported; return whether there was one."""
    with transaction.atomic():
        session = lock_session(session_id)
        living = LivingExecutor.objects.filter(pk=session_id, runner_id=runner_id).first()
        if living is None:
            return False
        is_to_stop = session.status == Session.Status.STOPPING
        delete_executor_and_update_session(
            session, living, Session.Status.STOPPED if is_to_stop else Session.Status.FINISHED
        )
    return True


def delete_executor_and_update_session(session: Session, living: LivingExecutor, status: str) -> None:
    """Delete the process's row and update the session's status, unless a run is active."""
    living.delete()
    session_keys.end_session_key(session.session_id, "Its agent's process has ended.")
    StopCommand.objects.filter(runner_id=living.runner_id, run_id=living.run_id).delete()
    is_waited_for = Run.objects.filter(session=session, status=Run.Status.PENDING).exists()
    if filter_active_runs_of_session(session.session_id).exists():
        return
    set_session_status(session, Session.Status.PENDING if is_waited_for else status)
