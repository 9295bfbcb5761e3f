"""An overview of current activity, in a handful of queries: the counts and latest rows of the first page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Min, QuerySet

from coordinator.models import EventContext, PermissionRequest, Run, Runner, Session
from coordinator.models.agent_names import LinkedAgent, load_linked_agents_by_name
from coordinator.models.permissions import PermissionRequestQuerySet
from coordinator.sessions import inactivity, titles
from coordinator.usage import reading as usage
from coordinator.usage.reading import TokenUsage

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WAITING_RUNS = (Run.Status.PENDING, Run.Status.CLAIMED)
RUNNING_RUNS = (Run.Status.RUNNING, Run.Status.STOPPING)
IN_ORDER = (
    Session.Status.RUNNING,
    Session.Status.PENDING,
    Session.Status.IDLE,
    Session.Status.STOPPING,
    Session.Status.FINISHED,
    Session.Status.STOPPED,
    Session.Status.ERROR,
)
DECIDED = (PermissionRequest.Status.APPROVED, PermissionRequest.Status.DENIED)


@dataclass(frozen=True, slots=True)
class RecentSession:
    """A session and its title; none where nobody has said anything yet."""

    session: Session
    title: str
    agent: LinkedAgent | None
    is_idle: bool

    @property
    def status_or_idle(self) -> str:
        """Its status, or `idle` if it has been silent, as the list of sessions shows it."""
        return inactivity.IDLE if self.is_idle else self.session.status


@dataclass(frozen=True, slots=True)
class DashboardOverview:
    """One look at everything. Lists are short and ready to be drawn."""

    sessions_by_status: dict[str, int]
    waiting_requests: int
    oldest_request: datetime | None
    waiting: list[PermissionRequest]
    decisions: list[PermissionRequest]
    runs_waiting: int
    runs_running: int
    runners: int
    runners_online: int
    events_last_hour: int
    events_last_day: int
    recent_sessions: list[RecentSession]
    spent: TokenUsage

    @property
    def sessions(self) -> int:
        return sum(self.sessions_by_status.values())

    @property
    def running_session_count(self) -> int:
        return self.sessions_by_status.get(Session.Status.RUNNING, 0)

    @property
    def is_empty_installation(self) -> bool:
        """Nothing has ever reported here, so what to do next is all there is to say."""
        return not (self.sessions or self.runners or self.waiting_requests or self.decisions)


def load_dashboard_overview(
    now: datetime, *, waiting: PermissionRequestQuerySet | None = None, rows: int = 6
) -> DashboardOverview:
    """Return the state of everything at `now`, with at most `rows` rows in each list.

    `waiting` are the requests that wait for the viewer: by default all that wait.
    """
    waiting = PermissionRequest.objects.awaiting_decision(now) if waiting is None else waiting
    waiting_summary = waiting.aggregate(count=Count("pk"), oldest=Min("created_at"))
    runs = count_sessions_or_runs_by_status(Run.objects.filter(status__in=[*WAITING_RUNS, *RUNNING_RUNS]))
    runners = list(Runner.objects.filter(deregistered_at__isnull=True))
    last_hour, last_day = count_all_events_since_moments(now - HOUR, now - DAY)
    models, _ = usage.load_model_and_agent_usage_since(now - DAY)
    waiting_rows = list(waiting.annotate_short_listed_inputs().order_by("created_at", "pk")[:rows])
    decisions = PermissionRequest.objects.annotate_short_listed_inputs().filter(status__in=DECIDED)
    decided = list(decisions.order_by("-approved_at")[:rows])
    recent = list(Session.objects.order_by("-created_at", "-pk")[:rows])
    session_titles = titles.load_session_titles(session.pk for session in recent)
    linked = load_linked_agents_by_name(session.agent_name for session in recent)
    idle = inactivity.find_idle_session_ids(
        [session.pk for session in recent if session.status == Session.Status.RUNNING], now
    )
    return DashboardOverview(
        sessions_by_status=count_sessions_by_status(),
        waiting_requests=waiting_summary["count"],
        oldest_request=waiting_summary["oldest"],
        waiting=waiting_rows,
        decisions=decided,
        runs_waiting=sum(runs.get(status, 0) for status in WAITING_RUNS),
        runs_running=sum(runs.get(status, 0) for status in RUNNING_RUNS),
        runners=len(runners),
        runners_online=sum(is_runner_online(runner, now) for runner in runners),
        events_last_hour=last_hour,
        events_last_day=last_day,
        recent_sessions=[
            RecentSession(
                session,
                session_titles.get(session.pk, ""),
                linked.get(session.agent_name or ""),
                session.pk in idle,
            )
            for session in recent
        ],
        spent=usage.sum_token_usages(models),
    )


def is_runner_online(runner: Runner, now: datetime) -> bool:
    """Say whether a runner has given a sign of life lately."""
    return runner.gone_at is None and runner.heartbeat_age_or_max(now) < timedelta(
        seconds=settings.RUNNER_STALE_AFTER
    )


def count_sessions_by_status() -> dict[str, int]:
    """Count sessions by status: those at work first, then ended ones, then words of other programs."""
    counts = count_sessions_or_runs_by_status(Session.objects.all())
    return {word: counts.pop(word) for word in IN_ORDER if word in counts} | counts


def count_sessions_or_runs_by_status(rows: QuerySet[Session] | QuerySet[Run]) -> dict[str, int]:
    return dict(rows.order_by().values_list("status").annotate(count=Count("pk")))


def count_all_events_since_moments(*moments: datetime) -> list[int]:
    received = EventContext.objects.order_by()
    return [received.filter(received_at__gte=moment).count() for moment in moments]
