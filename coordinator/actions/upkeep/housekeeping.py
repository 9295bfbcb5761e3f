"""Housekeeping of late runs, vanished runners and lost reports. Idempotent; any worker may run it.

Each step selects what is due and passes it, one by one, to the action that checks again under its lock. Some worker
calls `run_housekeeping` every SIGNALBOX_LIFECYCLE_INTERVAL (operations.jobs).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.db.models import Exists, OuterRef, QuerySet

from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.actions.people import key_quotas
from coordinator.actions.sessions import inactivity as ending
from coordinator.actions.sessions import notes, origins, reported_sessions
from coordinator.errors import NotFound
from coordinator.models import Callback, Event, LivingExecutor, Run, Runner, Session, StopCommand
from coordinator.models.jobs import CLOCK_SKEW
from coordinator.runs.liveness import runner_stale_after
from coordinator.runs.statuses import ACTIVE, STOP_EVENTS
from coordinator.sessions import inactivity

log = logging.getLogger(__name__)

# A claimed run whose start is not reported falls back after this: a runner fetches the blueprint and spawns
# the executor in between, each within its own 30 s timeout.
CLAIM_LEASE = timedelta(seconds=60)
# The executor says its end about a second before the runner reports it.
REPORT_GRACE = timedelta(seconds=60)
# A runner gives a process 5 s to end before it kills it.
STOP_GRACE = timedelta(seconds=60)
CALLBACK_RETENTION = timedelta(days=7)


def run_housekeeping(now: datetime) -> None:
    """Do everything that is due at `now`."""
    for step in STEPS:
        step(now)


def run_for_each_key_ignoring_errors(keys: list[str], act: Callable[[str], object]) -> None:
    """Do something for each; one that fails, or is gone meanwhile, keeps no other from its turn."""
    for key in keys:
        try:
            act(key)
        except NotFound:
            continue
        except Exception:
            log.exception("housekeeping of %s failed", key)


def filter_runs_not_awaiting_person() -> QuerySet[Run]:
    """Return the runs that are housekeeping's business: not those that wait for a person's word."""
    return Run.objects.filter(hold__isnull=True)


def find_due_run_ids(**due: object) -> list[str]:
    return list(
        filter_runs_not_awaiting_person()
        .filter(**due)
        .order_by("created_at")
        .values_list("run_id", flat=True)[:1000]
    )


def reset_future_timestamps(now: datetime) -> None:
    """Where the clock was set back, let what is counted from a moment that has not come be counted from now.

    A runner that has vanished would else pass for alive, and a lost claim or stop wait, until the clock is there again.
    """
    ahead = now + CLOCK_SKEW
    Runner.objects.filter(last_heartbeat__gt=ahead).update(last_heartbeat=now)
    filter_runs_not_awaiting_person().filter(status=Run.Status.CLAIMED, claimed_at__gt=ahead).update(
        claimed_at=now
    )
    StopCommand.objects.filter(requested_at__gt=ahead).update(requested_at=now)
    StopCommand.objects.filter(delivered_at__gt=ahead).update(delivered_at=now)
    latest = now + timedelta(seconds=settings.RUN_NO_MATCH_TIMEOUT)
    waiting = filter_runs_not_awaiting_person().filter(
        status=Run.Status.PENDING, timeout_at__gt=latest + CLOCK_SKEW
    )
    waiting.update(timeout_at=latest)


def fail_unclaimed_runs(now: datetime) -> None:
    """Fail pending runs that no runner could take in time."""
    due_ids = find_due_run_ids(status=Run.Status.PENDING, timeout_at__lte=now)
    run_for_each_key_ignoring_errors(due_ids, lambda run_id: runs.fail_run_if_demands_unmet(run_id, now))


def unclaim_unstarted_runs(now: datetime) -> None:
    """Let runs wait again that were claimed and never started: the answer was lost, or its runner was."""
    lease = min(CLAIM_LEASE, runner_stale_after())
    due_runs = filter_runs_not_awaiting_person().filter(
        status=Run.Status.CLAIMED, claimed_at__lte=now - lease
    )
    for run_id, runner_id in list(due_runs.values_list("run_id", "runner_id")):
        run_for_each_key_ignoring_errors([run_id], partial(runs.unclaim_run, runner_id=runner_id, now=now))


def complete_runs_of_finished_sessions(now: datetime) -> None:
    """Complete runs whose session ended a while ago without the runner's report."""
    ended = Event.objects.filter(
        session_id=OuterRef("session_id"),
        event_type__in=STOP_EVENTS,
        context__received_at__gt=now - REPORT_GRACE,
    )
    due_runs = filter_runs_not_awaiting_person().filter(
        ~Exists(ended),
        status=Run.Status.RUNNING,
        session__status=Session.Status.FINISHED,
        started_at__lte=now - REPORT_GRACE,
    )
    run_for_each_key_ignoring_errors(
        list(due_runs.values_list("run_id", flat=True)),
        lambda run_id: runs.complete_run_of_finished_session(run_id, now),
    )


def end_unconfirmed_stops(now: datetime) -> None:
    """End runs that are being stopped for long without their runner's word."""
    due_stops = StopCommand.objects.filter(requested_at__lte=now - STOP_GRACE)
    run_ids = list(due_stops.values_list("run_id", flat=True))
    run_for_each_key_ignoring_errors(run_ids, lambda run_id: runs.end_run_after_unconfirmed_stop(run_id, now))
    stopping = LivingExecutor.objects.filter(session__status=Session.Status.STOPPING)
    for session_id, runner_id in stopping.filter(run_id__in=run_ids).values_list("pk", "runner_id"):
        end = partial(runs.executors.end_executor_without_end_report, runner_id=runner_id)
        run_for_each_key_ignoring_errors([session_id], end)
    due_stops.exclude(run_id__in=Run.objects.filter(status=Run.Status.STOPPING).values("run_id")).delete()


def remove_vanished_runners(now: datetime) -> None:
    """Remove runners that were silent for long, and deregistered ones that no longer poll."""
    silent = timedelta(seconds=settings.RUNNER_REMOVE_AFTER)
    vanished_runners = [
        runner.runner_id
        for runner in Runner.objects.all()
        if runner.heartbeat_age_or_max(now) >= silent
        or (runner.deregistered_at is not None and runner.heartbeat_age_or_max(now) >= runner_stale_after())
    ]
    run_for_each_key_ignoring_errors(
        vanished_runners,
        lambda runner_id: runners.delete_runner_and_recover_runs(
            runner_id, "Runner vanished during execution", now
        ),
    )


def recover_orphan_runs(now: datetime) -> None:
    """Recover runs held by a runner that is not registered (any more)."""
    known_runners = Runner.objects.values("runner_id")
    orphan_runs = (
        filter_runs_not_awaiting_person().filter(status__in=ACTIVE).exclude(runner_id__in=known_runners)
    )
    orphan_runner_ids = LivingExecutor.objects.exclude(runner_id__in=known_runners).values_list(
        "runner_id", flat=True
    )
    for runner_id in {*orphan_runs.values_list("runner_id", flat=True), *orphan_runner_ids}:
        run_for_each_key_ignoring_errors(
            [runner_id or ""],
            lambda key: runs.recover_runner_runs(key, "Runner vanished during execution", now),
        )


def end_silent_sessions(now: datetime) -> None:
    """Finish sessions of agents that report by themselves and have reported nothing for long."""
    run_for_each_key_ignoring_errors(
        inactivity.silent_session_ids_to_end(now),
        lambda session_id: ending.end_session_if_silent(session_id, now),
    )


def finish_abandoned_messages(now: datetime) -> None:
    """Write the messages whose senders died in the middle: their pieces must not lie there, unmasked, for ever."""
    unfinished = reported_sessions.find_unfinished_message_session_ids(now)
    run_for_each_key_ignoring_errors(
        unfinished, lambda session_id: reported_sessions.write_unfinished_messages(session_id, now)
    )


def drop_delivered_callbacks(now: datetime) -> None:
    """Delete callbacks that were sent long ago, and those whose parent is gone."""
    Callback.objects.filter(delivered_run_id__isnull=False, created_at__lt=now - CALLBACK_RETENTION).delete()
    existing_sessions = Session.objects.filter(pk=OuterRef("parent_session_id"))
    Callback.objects.filter(~Exists(existing_sessions)).delete()


STEPS: tuple[Callable[[datetime], None], ...] = (
    reset_future_timestamps,
    unclaim_unstarted_runs,
    remove_vanished_runners,
    recover_orphan_runs,
    complete_runs_of_finished_sessions,
    end_unconfirmed_stops,
    fail_unclaimed_runs,
    finish_abandoned_messages,
    end_silent_sessions,
    drop_delivered_callbacks,
    notes.close_undeliverable_notes,
    origins.delete_expired_origin_claims,
    key_quotas.delete_old_quota_days,
)
