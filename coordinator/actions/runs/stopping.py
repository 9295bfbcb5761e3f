"""Stopping a run, or a session with all that it has before it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from coordinator.actions import audit
from coordinator.actions.runs.machine import (
    AFTERWARDS,
    OPEN,
    end,
    lock_session,
    locked,
    move,
    order_stop,
    set_session,
)
from coordinator.actors import Actor
from coordinator.errors import BadRequest
from coordinator.models import Run, Runner, Session


@dataclass(frozen=True, slots=True)
class Stop:
    """What came of the wish to stop a run: `status` is the run's, `message` is set where it has ended."""

    run_id: str
    session_id: str
    status: str
    message: str | None = None


def stop(run_id: str, *, by: Actor, now: datetime) -> Stop:
    """Stop a run: a pending one at once, any other through its runner, which is told on its poll.

    Raises NotFound, or BadRequest for a run that is being stopped or has ended.
    """
    with transaction.atomic():
        run, session = locked(run_id)
        if run.status not in {Run.Status.PENDING, Run.Status.CLAIMED, Run.Status.RUNNING}:
            raise BadRequest(f"Run cannot be stopped (status: RunStatus.{run.status.upper()})")
        audit.record(
            "RUN_STOPPED",
            actor=by,
            target=run.run_id,
            result="success",
            metadata={"session_id": session.session_id, "before": run.status},
            now=now,
        )
        return _stop(run, session, now)


def _stop(run: Run, session: Session, now: datetime) -> Stop:
    """Stop an open run whose session's lock is held."""
    if run.status == Run.Status.PENDING:
        end(run, session, Run.Status.STOPPED, now)
        return _stop_of(run, "Run cancelled before execution")
    if not Runner.objects.filter(pk=run.runner_id).exists():
        end(run, session, Run.Status.STOPPED, now)
        return _stop_of(run, "Run stopped: its runner is gone")
    order_stop(run, str(run.runner_id), now)
    move(run, Run.Status.STOPPING)
    set_session(session, Session.Status.STOPPING)
    return _stop_of(run)


def _stop_of(run: Run, message: str | None = None) -> Stop:
    return Stop(run.run_id, run.session_id, run.status, message)


def stop_session(session_id: str, *, by: Actor, now: datetime) -> Stop:
    """Stop whatever a session does: its run at work, or else its queued run, and all that is queued behind.

    Where nothing is open, a session that still looks alive is marked as stopped. The Stop's `run_id` is empty
    then. Raises NotFound.
    """
    with transaction.atomic():
        session = lock_session(session_id)
        if session.status == Session.Status.STOPPING:
            return Stop("", session_id, session.status, "Session is already being stopped")
        open_runs = list(Run.objects.filter(session_id=session_id, status__in=OPEN).order_by("created_at"))
        if not open_runs and session.status in {*AFTERWARDS.values()}:
            return Stop("", session_id, session.status, f"Session already {session.status}")
        audit.record(
            "SESSION_STOPPED",
            actor=by,
            target=session_id,
            result="success",
            metadata={"before": session.status, "runs": [run.run_id for run in open_runs]},
            now=now,
        )
        if not open_runs:
            set_session(session, Session.Status.STOPPED)
            return Stop("", session_id, session.status, "No run is open - session marked as stopped")
        # Those that wait go first, so that the end of the one at work does not let one of them begin.
        open_runs.sort(key=lambda run: run.status != Run.Status.PENDING)
        return [_stop(run, session, now) for run in open_runs][-1]
