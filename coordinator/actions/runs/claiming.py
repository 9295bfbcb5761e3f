"""Claims of runs for a runner, and their release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from coordinator.actions.people import session_keys
from coordinator.actions.runs.run_state_machine import (
    filter_active_runs_of_session,
    lock_session_and_load_run,
    runner_match_timeout,
    transition_run,
)
from coordinator.actions.sessions import writers
from coordinator.errors import NotFound
from coordinator.models import HeldRun, LivingExecutor, Run, Runner
from coordinator.models.fields import decode_stored_json
from coordinator.models.runners import AUTONOMOUS
from coordinator.policy.limits import brakes, budgets
from coordinator.runs import demands, offers
from coordinator.runs.statuses import ACTIVE, run_status_in_list_sql

PAGE = 200  # runs read at a time


# Pending runs that are not held, oldest first, whose session has nothing older to do; a session whose process waits
# with another runner is resumed there. Plain SQL: runners ask it all the time, and Django takes longer to make it than
# the database to answer. Ordered by nothing more, so that the index on status and creation serves it.
CLAIMABLE = (
    "SELECT r.run_id, r.demands, r.agent_name, r.project_dir,"  # noqa: S608 - constants of ours
    " (SELECT p.parameters FROM run_parameters p WHERE p.run_id = r.run_id), r.created_at"
    " FROM runs r WHERE r.status = 'pending'{ahead}"
    " AND NOT EXISTS (SELECT 1 FROM runs u WHERE u.session_id = r.session_id AND u.status IN"
    f" ({run_status_in_list_sql(ACTIVE)}))"
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


def claim_next_run(runner: Runner, now: datetime) -> Run | None:
    """Claim the oldest pending run that `runner` may take, for it alone; None where there is none."""
    offered = offers.load_offers_by_runner_id([runner.runner_id]).get(runner.runner_id)
    for pending in iterate_claimable_runs(runner):
        if can_runner_take_run(runner, offered, pending) and (
            run := claim_specific_run_or_none(pending.run_id, runner, now)
        ):
            return run
    return None


def can_runner_take_run(runner: Runner, offered: Any, run: PendingRun) -> bool:
    """Return whether the runner meets the run's demands, and with its offers (None: it has none) can serve it."""
    if not (
        demands.runner_meets_demands(runner, run.demands) and can_runner_run_agent(runner, run.agent_name)
    ):
        return False
    return not offers.describe_missing_offer(
        offered, offers.agent_name_in_parameters(run.parameters), run.project_dir
    )


def can_runner_run_agent(runner: Runner, agent: str | None) -> bool:
    """A procedural agent runs where it came from."""
    return runner.executor_type == AUTONOMOUS or any(
        procedural_agent["name"] == agent for procedural_agent in runner.procedural_agents
    )


def iterate_claimable_runs(runner: Runner) -> Iterator[PendingRun]:
    """Yield the runs that the runner may claim, oldest first, each page read whole before its first run.

    With a cursor left open SQLite refuses the claim: a read cannot become a write once somebody else has written.
    """
    ahead: list[Any] = []
    while True:
        with connection.cursor() as cursor:
            statement = CLAIMABLE.format(ahead=AHEAD if ahead else "")
            cursor.execute(statement, [*ahead, runner.runner_id])
            page = cursor.fetchall()
        for run_id, run_demands, agent, folder, run_parameters, _created_at in page:
            yield PendingRun(
                run_id, decode_json_column(run_demands), agent, folder, decode_json_column(run_parameters)
            )
        if len(page) < PAGE:
            return
        last_at, last_id = page[-1][-1], page[-1][0]
        ahead = [last_at, last_at, last_id]


def decode_json_column(text: str | None) -> Any:
    return None if text is None else decode_stored_json(text)


def claim_specific_run_or_none(run_id: str, runner: Runner, now: datetime) -> Run | None:
    """Claim one run; None where it is taken, held or deleted meanwhile."""
    with transaction.atomic():
        try:
            run, session = lock_session_and_load_run(run_id)
        except NotFound:
            return None
        if filter_active_runs_of_session(session.session_id).exists():
            return None
        if not can_run_begin_on_runner(run, runner, now):
            return None
        if not transition_run(run, Run.Status.CLAIMED, runner_id=runner.runner_id, claimed_at=now):
            return None
        writers.add_runner_session_writer(session.session_id, runner.registered_by)
    return run


def can_run_begin_on_runner(run: Run, runner: Runner, now: datetime) -> bool:
    """Return whether a pending run may begin on a runner.

    Nobody holds it, no brake is on, no budget that holds runs is used up, and no other runner has its process.
    """
    with connection.cursor() as cursor:
        cursor.execute(HINDRANCES, [run.pk, run.session_id, runner.runner_id])
        if not cursor.fetchone()[0]:
            return True
    if HeldRun.objects.filter(pk=run.pk).exists() or is_run_blocked(run, runner, now):
        return False
    return not LivingExecutor.objects.filter(pk=run.session_id).exclude(runner_id=runner.runner_id).exists()


def is_run_blocked(run: Run, runner: Runner, now: datetime) -> bool:
    """Return whether a brake or a used-up budget blocks the run. Its agents are looked up only if one may."""
    on = brakes.load_active_brakes()
    if not on and not budgets.has_hold_at_limit_budget(now):
        return False
    agents = offers.load_run_agent_brake_names(run, runner)
    if any(brake.applies_to(agents, runner.hostname) for brake in on):
        return True
    return budgets.find_budget_blocking_session(run.session_id, agents, now) is not None


def unclaim_run(run_id: str, runner_id: str | None, now: datetime) -> None:
    """Put a run back that `runner_id` claimed but never got or never started. Otherwise changes nothing."""
    with transaction.atomic():
        try:
            run, _session = lock_session_and_load_run(run_id)
        except NotFound:  # deleted meanwhile
            return
        if run.runner_id != runner_id or run.status != Run.Status.CLAIMED:
            return
        timeout_at = now + runner_match_timeout() if run.demands else None
        session_keys.end_session_key(run.session_id, "Its run was returned to the queue.", now)
        transition_run(run, Run.Status.PENDING, runner_id=None, claimed_at=None, timeout_at=timeout_at)
