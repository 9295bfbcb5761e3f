"""What needs a person's attention.

Requests, changed tools and brakes are not included, because the overview shows them elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.urls import reverse

from coordinator.models import (
    ApiKey,
    BudgetMark,
    HeldRun,
    Job,
    McpAccessToken,
    McpAuthorization,
    McpCircuitBreaker,
    Run,
    Session,
    SessionGuard,
)
from coordinator.models.upstream_sign_ins import SignInMode
from coordinator.runs.statuses import ACTIVE, OPEN
from dashboard.sessions.filters import ended_since_condition
from dashboard.templatetags.signalbox import count_of

UNTAKEN_AFTER = timedelta(minutes=5)
LOOKED_BACK = timedelta(days=1)
KEY_ENDS_WITHIN = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Need:
    """Something that needs attention: its count and description, and the URL of the page that shows it."""

    text: str
    url: str
    is_bad: bool = False


def list_things_needing_attention(now: datetime, *, is_admin: bool) -> list[Need]:
    """Return what needs attention now.

    Without `is_admin`, items that only an administrator can settle are left out.
    """
    since = now - LOOKED_BACK
    sessions, runs = reverse("sessions:list"), reverse("runs:list")
    failed = Session.objects.filter(
        ended_since_condition(since), status=Session.Status.ERROR, archived__isnull=True
    )
    today = now.astimezone(settings.LOCAL_ZONE).replace(hour=0, minute=0, second=0, microsecond=0)
    spent = BudgetMark.objects.filter(level__gte=100, at__gte=today, budget__ended_at__isnull=True)
    # A prompt that waits for its session's turn to end waits for no runner.
    at_work = Run.objects.filter(session=OuterRef("session"), status__in=ACTIVE)
    untaken = Run.objects.filter(
        ~Exists(at_work), status=Run.Status.PENDING, created_at__lt=now - UNTAKEN_AFTER
    )
    guards = SessionGuard.objects.filter(unguarded__gt=0, counted_at__gte=since)
    keys = ApiKey.objects.filter(revoked_at__isnull=True, expires_at__gt=now)
    needs = [
        (
            spent.values("budget").distinct().count(),
            "budget,budgets",
            "used up today",
            reverse("budgets:home"),
            True,
        ),
        (
            HeldRun.objects.filter(run__status__in=OPEN).count(),
            "run,runs",
            "held until somebody releases them",
            f"{runs}?status=pending",
            False,
        ),
        (
            untaken.filter(hold__isnull=True).count(),
            "run,runs",
            "that no runner takes",
            f"{runs}?status=pending",
            False,
        ),
        (
            failed.count(),
            "session,sessions",
            "ended in an error in 24 hours",
            f"{sessions}?status=error&ended={LOOKED_BACK // timedelta(hours=1)}",
            False,
        ),
        (
            guards.count(),
            "session,sessions",
            "had calls without a guard in 24 hours",
            reverse("agents:list"),
            True,
        ),
        (
            count_servers_needing_shared_login() if is_admin else 0,
            "MCP server,MCP servers",
            "without its sign-in",
            reverse("mcp:list"),
            True,
        ),
        (
            McpCircuitBreaker.objects.filter(open_until__isnull=False).count(),
            "MCP server,MCP servers",
            "cut off after failed calls",
            reverse("mcp:list"),
            True,
        ),
        (
            keys.filter(expires_at__lte=now + KEY_ENDS_WITHIN).count() if is_admin else 0,
            "API key,API keys",
            "to be replaced within a week",
            reverse("keys:list"),
            False,
        ),
        (
            Job.objects.filter(error__isnull=False, attempts__gt=0).count() if is_admin else 0,
            "background job,background jobs",
            "failed and will be tried again",
            reverse("admin:coordinator_job_changelist"),
            True,
        ),
    ]
    return [
        Need(f"{count_of(number, noun)} {text}", url, is_bad)
        for number, noun, text, url, is_bad in needs
        if number
    ]


def count_servers_needing_shared_login() -> int:
    """Return the number of MCP servers whose shared sign-in is missing or must be repeated."""
    shared = set(McpAuthorization.objects.filter(mode=SignInMode.SHARED).values_list("server_id", flat=True))
    tokens = McpAccessToken.objects.filter(user_id__isnull=True, server_id__in=shared)
    return len(shared - {token.server_id for token in tokens if not token.needs_sign_in})
