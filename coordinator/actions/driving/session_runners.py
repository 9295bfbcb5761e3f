"""The runner that drives a session, namely the one that took its last run, and the state it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connection

from coordinator.errors import Forbidden, NotFound
from coordinator.models import DrivenSession, Run, Runner, Session

# Whether a runner drives agents, and whether a session is another's. Asked whenever a run is given out.
DRIVES = (
    "SELECT EXISTS (SELECT 1 FROM runner_offers WHERE runner_id = %s),"
    " EXISTS (SELECT 1 FROM driven_sessions WHERE session_id = %s AND runner_id <> %s)"
)


def require_last_run_of_runner(session_id: str, runner: Runner) -> Run:
    """Return the session's last run that a runner has taken. Raises NotFound, and Forbidden where another has it."""
    claimed_runs = Run.objects.filter(session_id=session_id, runner_id__isnull=False)
    last = claimed_runs.order_by("-created_at__text", "-run_id").first()
    if last is None:
        if not Session.objects.filter(pk=session_id).exists():
            raise NotFound("Session not found")
        raise Forbidden(f"No run of session {session_id} is held by runner {runner.runner_id}")
    if last.runner_id != runner.runner_id:
        raise Forbidden(f"Session {session_id} is held by another runner")
    return last


def lock_or_assign_driven_session(session_id: str, runner: Runner) -> DrivenSession:
    """Return the session's row, locked until the transaction ends. Raises as `require_last_run_of_runner` does.

    Who polls a run of the session becomes its holder here (`assign_session_and_build_state`), so that this is one
    query.
    """
    driven = lock_driven_session(session_id)
    if driven is None or driven.runner_id != runner.runner_id:
        require_last_run_of_runner(session_id, runner)
        driven, _ = DrivenSession.objects.update_or_create(
            session_id=session_id, defaults={"runner_id": runner.runner_id}
        )
    return driven


def lock_driven_session(session_id: str) -> DrivenSession | None:
    """Lock the session's row, and so its updates, until the transaction ends; None if there is no row."""
    return DrivenSession.objects.select_for_update().filter(pk=session_id).first()


def save_changed_driven_columns(driven: DrivenSession, before: Mapping[str, Any]) -> None:
    """Write what has changed since `before` was noted: most updates change nothing but their number."""
    changed = [name for name, value in driven_values_by_column(driven).items() if value != before[name]]
    if changed:
        driven.save(update_fields=changed)


def driven_values_by_column(driven: DrivenSession) -> dict[str, Any]:
    """Return the row's values by column, without its key."""
    return {
        column.attname: getattr(driven, column.attname)
        for column in DrivenSession._meta.concrete_fields
        if not column.primary_key
    }


def assign_session_and_build_state(run: Run) -> dict[str, Any] | None:
    """Return the state of the run's session that is sent to its runner; None if the runner drives no agents."""
    holder = str(run.runner_id)
    with connection.cursor() as cursor:
        cursor.execute(DRIVES, [holder, run.session_id, holder])
        drives, is_anothers = cursor.fetchone()
    if is_anothers:
        DrivenSession.objects.filter(pk=run.session_id).update(runner_id=holder)
    if not drives:
        return None
    # Created now: the agent's hooks may be received before the runner's first report.
    driven_session, _ = DrivenSession.objects.get_or_create(
        session_id=run.session_id, defaults={"runner_id": holder}
    )
    return {
        "agent": driven_session.agent,
        "agent_session_id": driven_session.agent_session_id,
        "mode": driven_session.mode,
        "model": driven_session.model,
        "worktree": driven_session.worktree,
        "next": driven_session.last_n + 1,
    }
