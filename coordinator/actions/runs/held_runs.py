"""Runs on hold: runs that another program had queued are not begun here until a person releases them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.runs.run_state_machine import lock_session_and_load_run, runner_match_timeout
from coordinator.errors import Conflict
from coordinator.identity.actors import Actor
from coordinator.models import HeldRun, Run
from coordinator.runs.statuses import OPEN

IMPORTED = "It had not ended in the imported database."


def hold_runs(run_ids: Iterable[str], *, reason: str, now: datetime) -> int:
    """Keep those of the runs that are open from runners and from housekeeping; return how many."""
    open_ids = list(Run.objects.filter(pk__in=list(run_ids), status__in=OPEN).values_list("pk", flat=True))
    HeldRun.objects.bulk_create(
        [HeldRun(pk=run_id, since=now, why=reason) for run_id in open_ids], ignore_conflicts=True
    )
    return len(open_ids)


def release_held_run(run_id: str, *, actor: Actor, now: datetime) -> Run:
    """Let a held run go its way: runners may take it, and what it waits for counts from now.

    Raises NotFound, and Conflict for a run that is not held.
    """
    with transaction.atomic():
        run, session = lock_session_and_load_run(run_id)
        if not HeldRun.objects.filter(pk=run_id).delete()[0]:
            raise Conflict("This run is not held.")
        run.timeout_at = now + runner_match_timeout() if run.demands else None
        run.save(update_fields=["timeout_at"])
        audit.record_audit_entry(
            "RUN_RELEASED",
            actor=actor,
            target=run_id,
            result="success",
            metadata={"session_id": session.session_id, "status": run.status},
            now=now,
        )
    return run
