"""The kinds of runs and the sets of their statuses, said once."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.models import Run

START, RESUME = "start_session", "resume_session"
ACTIVE = (Run.Status.CLAIMED, Run.Status.RUNNING, Run.Status.STOPPING)
OPEN = (Run.Status.PENDING, *ACTIVE)
OVER = (Run.Status.COMPLETED, Run.Status.FAILED, Run.Status.STOPPED)
START_EVENTS = ("session_start", "run_start")
STOP_EVENTS = ("session_stop", "run_completed")


def run_status_in_list_sql(statuses: Iterable[str]) -> str:
    """Return the statuses as they stand between the brackets of IN (…) in plain SQL."""
    return ", ".join(f"'{status}'" for status in statuses)
