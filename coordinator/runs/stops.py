"""Whether a session can be stopped from here: only a run can be, whose runner is told, or which waits for one."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.models import Run

STOPPABLE = (Run.Status.PENDING, Run.Status.CLAIMED, Run.Status.RUNNING)


def can_stop_session(runs: Iterable[Run]) -> bool:
    """Say whether one of a session's runs can be stopped. A session without one is told of, and not run, here."""
    return any(run.status in STOPPABLE for run in runs)


def is_session_stopping(runs: Iterable[Run]) -> bool:
    """Say whether a runner was told to stop one of a session's runs."""
    return any(run.status == Run.Status.STOPPING for run in runs)
