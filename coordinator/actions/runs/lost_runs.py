"""Runs that time out or lose their runner; called by actions.upkeep.housekeeping and actions.agents.runners."""

from __future__ import annotations

import contextlib
from datetime import datetime

from django.db import transaction

from coordinator.actions.runs import executors
from coordinator.actions.runs.claiming import PendingRun, can_runner_take_run, is_run_blocked, unclaim_run
from coordinator.actions.runs.run_state_machine import (
    NOBODY_CAME,
    UNCONFIRMED_STOP,
    filter_active_runs_of_session,
    lock_session_and_load_run,
    runner_match_timeout,
    try_end_run,
)
from coordinator.errors import NotFound
from coordinator.models import LivingExecutor, Run, Runner, Session, StopCommand
from coordinator.runs import offers
from coordinator.runs.liveness import is_runner_alive
from coordinator.runs.statuses import ACTIVE


def fail_run_if_demands_unmet(run_id: str, now: datetime) -> bool:
    """Fail a pending run whose demands nobody met in time; say whether that was so.

    The time begins again for a run that only a brake or a used-up budget keeps from a runner: it waits for a person.
    """
    with transaction.atomic():
        run, session = lock_session_and_load_run(run_id)
        overdue = isinstance(run.timeout_at, datetime) and run.timeout_at <= now
        earlier = Run.objects.filter(
            session=session, status=Run.Status.PENDING, created_at__lt=run.created_at
        )
        if (
            run.status != Run.Status.PENDING
            or not overdue
            or filter_active_runs_of_session(session.session_id).exists()
            or earlier.exists()
        ):
            return False
        if is_run_blocked_on_able_runner(run, now):
            Run.objects.filter(pk=run.pk).update(timeout_at=now + runner_match_timeout())
            return False
        return try_end_run(run, session, Run.Status.FAILED, now, error=NOBODY_CAME)


def is_run_blocked_on_able_runner(run: Run, now: datetime) -> bool:
    """Return whether a runner that is alive could take the pending run, and a brake or a used-up budget forbids it."""
    alive = [runner for runner in Runner.objects.all() if is_runner_alive(runner, now)]
    keeper = LivingExecutor.objects.filter(pk=run.session_id).values_list("runner_id", flat=True).first()
    offered = offers.load_offers_by_runner_id(runner.pk for runner in alive)
    ordered_with = getattr(run, "ordered_with", None)
    pending = PendingRun(
        run.run_id,
        run.demands,
        run.agent_name,
        run.project_dir,
        ordered_with.parameters if ordered_with is not None else None,
    )
    return any(
        keeper in {None, runner.pk}
        and can_runner_take_run(runner, offered.get(runner.pk), pending)
        and is_run_blocked(run, runner, now)
        for runner in alive
    )


def complete_run_of_finished_session(run_id: str, now: datetime) -> bool:
    """Complete a running run whose session said its end long ago: the runner's report was lost."""
    with transaction.atomic():
        run, session = lock_session_and_load_run(run_id)
        if run.status != Run.Status.RUNNING or session.status != Session.Status.FINISHED:
            return False
        return try_end_run(run, session, Run.Status.COMPLETED, now)


def end_run_after_unconfirmed_stop(run_id: str, now: datetime) -> bool:
    """End a run whose stop command was sent long ago and never answered."""
    with transaction.atomic():
        run, session = lock_session_and_load_run(run_id)
        if run.status != Run.Status.STOPPING:
            return False
        executors.delete_living_executor_row(session.session_id)
        return try_end_run(run, session, Run.Status.STOPPED, now, error=UNCONFIRMED_STOP)


def recover_runner_runs(runner_id: str, reason: str, now: datetime) -> None:
    """A runner has gone: what it had only claimed waits again, what it ran has failed, what it stopped is."""
    runs = Run.objects.filter(runner_id=runner_id, status__in=ACTIVE).order_by("created_at")
    for run_id in list(runs.values_list("run_id", flat=True)):
        unclaim_run(run_id, runner_id, now)
        with contextlib.suppress(NotFound):  # deleted meanwhile: nothing is left to recover
            end_lost_run(run_id, runner_id, reason, now)
    with contextlib.suppress(NotFound):
        executors.end_executors_of_lost_runner(runner_id)
    StopCommand.objects.filter(runner_id=runner_id).delete()


def end_lost_run(run_id: str, runner_id: str, reason: str, now: datetime) -> None:
    with transaction.atomic():
        run, session = lock_session_and_load_run(run_id)
        if run.runner_id != runner_id:
            return
        if run.status == Run.Status.RUNNING:
            executors.delete_living_executor_row(session.session_id)
            try_end_run(run, session, Run.Status.FAILED, now, error=reason)
        elif run.status == Run.Status.STOPPING:
            executors.delete_living_executor_row(session.session_id)
            try_end_run(run, session, Run.Status.STOPPED, now, error=reason)
