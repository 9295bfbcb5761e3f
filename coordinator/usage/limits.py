"""How full the limits of subscriptions are, and which sessions used them. Only reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from coordinator.lib import instants
from coordinator.models import ModelRequestUsage, Session, SubscriptionLimit, UsageDay
from coordinator.usage.reading import TokenUsage, load_usage_by_costliest_session

SHOWN_AFTER_RESET = timedelta(days=8)  # a limit that nothing was reported of since is left out
SESSIONS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class LimitState:
    """A limit as people see it, with the sessions that used most in its current window."""

    row: SubscriptionLimit
    is_over: bool  # its window has ended since: nothing of it is used, as far as is known
    sessions: Mapping[str, TokenUsage]

    @property
    def used_percent(self) -> int:
        return 0 if self.is_over else int(self.row.used_percent)

    @property
    def shown_percent(self) -> int:
        return min(self.used_percent, 100)

    @property
    def resets_at(self) -> datetime:
        return instants.instant_from_microseconds(self.row.resets_at_us)

    @property
    def reported_at(self) -> datetime:
        return instants.instant_from_microseconds(self.row.reported_at_us)


def load_recent_limit_states(now: datetime) -> list[LimitState]:
    """Return the limits that were reported lately, by program, host and window."""
    now_us = instants.instant_to_microseconds(now)
    since_us = instants.instant_to_microseconds(now - SHOWN_AFTER_RESET)
    rows = SubscriptionLimit.objects.filter(resets_at_us__gte=since_us)
    states = []
    for row in rows.order_by("program", "host", "name", "window_minutes"):
        is_over = row.resets_at_us <= now_us
        states.append(LimitState(row, is_over, {} if is_over else load_heaviest_usage_by_session(row, now)))
    return states


def load_heaviest_usage_by_session(row: SubscriptionLimit, now: datetime) -> dict[str, TokenUsage]:
    """Return the sessions of this program and host that used most since the window began."""
    begin_us = row.resets_at_us - row.window_minutes * 60_000_000
    # A window may be reported to begin at any time, also beyond those years that a date can have.
    first_day_ms = min(max(begin_us // 1000, 0), instants.instant_to_milliseconds(now))
    first_day = instants.local_iso_date_of_milliseconds(first_day_ms, settings.LOCAL_ZONE)
    # Where a runner drives the agent, the session names the runner's profile, and its days name the program.
    by_day = UsageDay.objects.filter(program=row.program, day__gte=first_day).values("session_id")
    sessions = Session.objects.filter(
        Q(executor_profile=row.program) | Q(agent_name=row.program) | Q(pk__in=by_day)
    )
    if row.host:
        sessions = sessions.filter(Q(hostname=row.host) | Q(hostname=None))
    used = ModelRequestUsage.objects.filter(at_us__gte=begin_us, session_id__in=sessions.values("pk"))
    return load_usage_by_costliest_session(used, SESSIONS_SHOWN)
