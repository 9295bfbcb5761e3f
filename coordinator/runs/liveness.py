"""Whether a runner is alive, by its last sign of life."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from coordinator.models import Runner

# Beyond a poll's length: the time a runner may take to come back with its next poll.
BETWEEN_POLLS = timedelta(seconds=5)


def runner_stale_after() -> timedelta:
    """Return after how long a silence a runner is called stale."""
    return timedelta(seconds=settings.RUNNER_STALE_AFTER)


def is_runner_alive(runner: Runner, now: datetime) -> bool:
    """Say whether a runner is alive: in a poll, or with a sign of life within the time until its next poll."""
    if runner.gone_at is not None or runner.deregistered_at is not None:
        return False
    next_sign = timedelta(seconds=settings.RUNNER_POLL_TIMEOUT) + BETWEEN_POLLS
    return runner.heartbeat_age_or_max(now) < min(next_sign, runner_stale_after())
