"""Claiming a run for a runner, and giving a claim back."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from coordinator import demands
from coordinator.actions import writers
from coordinator.actions.runs.machine import ACTIVE, active, locked, move, no_match_timeout
from coordinator.models import HeldRun, Run, Runner


def claim_next(runner: Runner, now: datetime) -> Run | None:
    """Claim the oldest pending run that `runner` may take, for it alone; None where there is none."""
    for run_id, wanted in claimable().values_list("run_id", "demands").iterator(chunk_size=200):
        if demands.meets(runner, wanted) and (run := _claim(run_id, runner, now)):
            return run
    return None


def claimable() -> QuerySet[Run]:
    """Return pending runs that are not held, oldest first, whose session has nothing older to do.

    Ordered by nothing more: the index on status and creation then serves it, whatever stands beside.
    """
    of_this_session = Run.objects.filter(session_id=OuterRef("session_id"))
    at_work = of_this_session.filter(status__in=ACTIVE)
    queued_before = of_this_session.filter(
        status=Run.Status.PENDING, created_at__text__lt=OuterRef("created_at__text")
    )
    held = HeldRun.objects.filter(pk=OuterRef("run_id"))
    waiting = Run.objects.filter(~Exists(at_work), ~Exists(queued_before), ~Exists(held))
    return waiting.filter(status=Run.Status.PENDING).order_by("created_at")


def _claim(run_id: str, runner: Runner, now: datetime) -> Run | None:
    with transaction.atomic():
        run, session = locked(run_id)
        if active(session.session_id).exists():
            return None
        if HeldRun.objects.filter(pk=run_id).exists():
            return None
        if not move(run, Run.Status.CLAIMED, runner_id=runner.runner_id, claimed_at=now):
            return None
        writers.note_runner(session.session_id, runner.registered_by)
    return run


def unclaim(run_id: str, runner_id: str, now: datetime) -> None:
    """Put a run back that `runner_id` claimed but never got or never started. Otherwise changes nothing."""
    with transaction.atomic():
        run, _session = locked(run_id)
        if run.runner_id != runner_id or run.status != Run.Status.CLAIMED:
            return
        timeout_at = now + no_match_timeout() if run.demands else None
        move(run, Run.Status.PENDING, runner_id=None, claimed_at=None, timeout_at=timeout_at)
