"""Claiming a run for a runner, and giving a claim back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from coordinator.actions import session_keys, writers
from coordinator.actions.runs.machine import active, locked, move, no_match_timeout
from coordinator.errors import NotFound
from coordinator.models import HeldRun, LivingExecutor, Run, Runner
from coordinator.models.runners import AUTONOMOUS
from coordinator.policy import brakes, budgets
from coordinator.runs import demands, offers
from coordinator.runs.statuses import ACTIVE

PAGE = 200  # runs read at a time


def claim_next(runner: Runner, now: datetime) -> Run | None:
    """Claim the oldest pending run that `runner` may take, for it alone; None where there is none."""
    offered = offers.of_runners([runner.runner_id]).get(runner.runner_id)
    for run_id, wanted, agent in _waiting(runner):
        fits = demands.meets(runner, wanted) and _brings(runner, agent) and _serves(offered, run_id)
        if fits and (run := _claim(run_id, runner, now)):
            return run
    return None


def _serves(offered: Any, run_id: str) -> bool:
    """Say whether a runner with these offers (None: it has none) has the agent that the run is for, and its folder."""
    run = Run.objects.select_related("ordered_with").get(pk=run_id)
    return not offers.lacks(offered, offers.agent_of(run), run.project_dir)


def _brings(runner: Runner, agent: str | None) -> bool:
    """A procedural agent runs where it came from."""
    return runner.executor_type == AUTONOMOUS or any(one["name"] == agent for one in runner.agents)


def _waiting(runner: Runner) -> Iterator[tuple[str, Any, str | None]]:
    """Yield id, demands and agent of the claimable runs, oldest first, each page read whole before its first run.

    A session whose process waits with another runner is resumed there.

    With a cursor left open SQLite refuses the claim: a read cannot become a write once somebody else has written.
    """
    elsewhere = LivingExecutor.objects.filter(pk=OuterRef("session_id")).exclude(runner_id=runner.runner_id)
    rows, ahead = claimable().filter(~Exists(elsewhere)).order_by("created_at", "run_id"), Q()
    columns = ("run_id", "demands", "agent_name", "created_at__text")
    while page := list(rows.filter(ahead).values_list(*columns)[:PAGE]):
        for run_id, wanted, agent, _created_at in page:
            yield run_id, wanted, agent
        last_id, _, _, last_at = page[-1]
        ahead = Q(created_at__text__gt=last_at) | Q(created_at__text=last_at, run_id__gt=last_id)


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
    """Claim one run; None where it is taken, held or deleted meanwhile."""
    with transaction.atomic():
        try:
            run, session = locked(run_id)
        except NotFound:
            return None
        if active(session.session_id).exists():
            return None
        if not may_begin(run, runner, now):
            return None
        if not move(run, Run.Status.CLAIMED, runner_id=runner.runner_id, claimed_at=now):
            return None
        writers.note_runner(session.session_id, runner.registered_by)
    return run


def may_begin(run: Run, runner: Runner, now: datetime) -> bool:
    """Say whether a pending run may begin on a runner.

    Nobody holds it, no brake is on, no budget that holds runs is used up, and no other runner has its process.
    """
    if HeldRun.objects.filter(pk=run.pk).exists() or _is_held_back(run, runner, now):
        return False
    return not LivingExecutor.objects.filter(pk=run.session_id).exclude(runner_id=runner.runner_id).exists()


def _is_held_back(run: Run, runner: Runner, now: datetime) -> bool:
    """Say whether a brake or a used-up budget holds the run. Which agents it means is looked up only where one may."""
    on = brakes.in_force()
    if not on and not budgets.hold_runs(now):
        return False
    agents = offers.agents_meant(run, runner)
    if any(one.holds(agents, runner.hostname) for one in on):
        return True
    return budgets.holding_run_of(run.session_id, agents, now) is not None


def unclaim(run_id: str, runner_id: str, now: datetime) -> None:
    """Put a run back that `runner_id` claimed but never got or never started. Otherwise changes nothing."""
    with transaction.atomic():
        try:
            run, _session = locked(run_id)
        except NotFound:  # deleted meanwhile
            return
        if run.runner_id != runner_id or run.status != Run.Status.CLAIMED:
            return
        timeout_at = now + no_match_timeout() if run.demands else None
        session_keys.end(run.session_id, "Its run was given back.", now)
        move(run, Run.Status.PENDING, runner_id=None, claimed_at=None, timeout_at=timeout_at)
