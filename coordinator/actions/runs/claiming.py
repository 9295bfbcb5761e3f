"""Claiming a run for a runner, and giving a claim back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from coordinator.actions import session_keys, writers
from coordinator.actions.runs.machine import active, locked, move, no_match_timeout
from coordinator.errors import NotFound
from coordinator.models import HeldRun, LivingExecutor, Run, Runner
from coordinator.models.fields import decoded
from coordinator.models.runners import AUTONOMOUS
from coordinator.policy import brakes, budgets
from coordinator.runs import demands, offers
from coordinator.runs.statuses import ACTIVE, in_sql

PAGE = 200  # runs read at a time


# Pending runs that are not held, oldest first, whose session has nothing older to do; a session whose process waits
# with another runner is resumed there. Plain SQL: runners ask it all the time, and Django takes longer to make it than
# the database to answer. Ordered by nothing more, so that the index on status and creation serves it.
CLAIMABLE = (
    "SELECT r.run_id, r.demands, r.agent_name, r.project_dir,"  # noqa: S608 - constants of ours
    " (SELECT p.parameters FROM run_parameters p WHERE p.run_id = r.run_id), r.created_at"
    " FROM runs r WHERE r.status = 'pending'{ahead}"
    f" AND NOT EXISTS (SELECT 1 FROM runs u WHERE u.session_id = r.session_id AND u.status IN ({in_sql(ACTIVE)}))"
    " AND NOT EXISTS (SELECT 1 FROM runs u WHERE u.session_id = r.session_id AND u.status = 'pending'"
    " AND u.created_at < r.created_at)"
    " AND NOT EXISTS (SELECT 1 FROM held_runs h WHERE h.run_id = r.run_id)"
    " AND NOT EXISTS (SELECT 1 FROM living_executors l"
    " WHERE l.session_id = r.session_id AND l.runner_id <> %s)"
    f" ORDER BY r.created_at, r.run_id || '' LIMIT {PAGE}"
)
AHEAD = " AND (r.created_at > %s OR (r.created_at = %s AND r.run_id > %s))"
# Whether anything may keep a run from beginning on a runner, in one look; which of it does is asked where there is any.
HINDRANCES = (
    "SELECT EXISTS (SELECT 1 FROM held_runs WHERE run_id = %s)"
    " OR EXISTS (SELECT 1 FROM living_executors WHERE session_id = %s AND runner_id <> %s)"
    " OR EXISTS (SELECT 1 FROM brakes WHERE released_at IS NULL)"
    " OR EXISTS (SELECT 1 FROM budgets WHERE ended_at IS NULL)"
)


@dataclass(frozen=True, slots=True)
class PendingRun:
    """A run that may be claimed, and what says by whom."""

    run_id: str
    demands: Any
    agent_name: str | None
    project_dir: str | None
    parameters: Any


def claim_next(runner: Runner, now: datetime) -> Run | None:
    """Claim the oldest pending run that `runner` may take, for it alone; None where there is none."""
    offered = offers.of_runners([runner.runner_id]).get(runner.runner_id)
    for pending in _waiting(runner):
        if _fits(runner, offered, pending) and (run := _claim(pending.run_id, runner, now)):
            return run
    return None


def _fits(runner: Runner, offered: Any, run: PendingRun) -> bool:
    """Say whether the runner meets the run's demands, and with its offers (None: it has none) can serve it."""
    if not (demands.meets(runner, run.demands) and _brings(runner, run.agent_name)):
        return False
    return not offers.lacks(offered, offers.agent_in(run.parameters), run.project_dir)


def _brings(runner: Runner, agent: str | None) -> bool:
    """A procedural agent runs where it came from."""
    return runner.executor_type == AUTONOMOUS or any(one["name"] == agent for one in runner.agents)


def _waiting(runner: Runner) -> Iterator[PendingRun]:
    """Yield the runs that the runner may claim, oldest first, each page read whole before its first run.

    With a cursor left open SQLite refuses the claim: a read cannot become a write once somebody else has written.
    """
    ahead: list[Any] = []
    while True:
        with connection.cursor() as cursor:
            statement = CLAIMABLE.format(ahead=AHEAD if ahead else "")
            cursor.execute(statement, [*ahead, runner.runner_id])
            page = cursor.fetchall()
        for run_id, wanted, agent, folder, given, _created_at in page:
            yield PendingRun(run_id, _decoded(wanted), agent, folder, _decoded(given))
        if len(page) < PAGE:
            return
        last_at, last_id = page[-1][-1], page[-1][0]
        ahead = [last_at, last_at, last_id]


def _decoded(text: str | None) -> Any:
    return None if text is None else decoded(text)


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
    with connection.cursor() as cursor:
        cursor.execute(HINDRANCES, [run.pk, run.session_id, runner.runner_id])
        if not cursor.fetchone()[0]:
            return True
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
        session_keys.end(run.session_id, "Its run was returned to the queue.", now)
        move(run, Run.Status.PENDING, runner_id=None, claimed_at=None, timeout_at=timeout_at)
