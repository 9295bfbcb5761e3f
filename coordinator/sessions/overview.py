"""What is going on right now, in a handful of queries: the counts and latest rows of the first page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Min, QuerySet

from coordinator.models import EventContext, PermissionRequest, Run, Runner, Session
from coordinator.sessions import spans, titles, usage
from coordinator.sessions.usage import Usage

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


@dataclass(frozen=True, slots=True)
class Asked:
    """A permission request and the title of the session that it was made in, where it names one."""

    request: PermissionRequest
    session_id: str | None
    title: str


@dataclass(frozen=True, slots=True)
class Overview:
    """One look at everything. Lists are short and ready to be drawn."""

    sessions_by_status: dict[str, int]
    waiting_requests: int
    oldest_request: datetime | None
    waiting: list[Asked]
    decisions: list[Asked]
    runs_waiting: int
    runs_running: int
    runners: int
    runners_online: int
    events_last_hour: int
    events_last_day: int
    recent_sessions: list[RecentSession]
    spent: Usage
    spent_by: list[tuple[str, dict[str, Usage]]]

    @property
    def sessions(self) -> int:
        return sum(self.sessions_by_status.values())

    @property
    def sessions_running(self) -> int:
        return self.sessions_by_status.get(Session.Status.RUNNING, 0)

    @property
    def is_fresh(self) -> bool:
        """Nothing has ever reported here, so what to do next is all there is to say."""
        return not (self.sessions or self.runners or self.waiting_requests or self.decisions)


def look(now: datetime, *, rows: int = 8) -> Overview:
    """Return the state of everything at `now`, with at most `rows` rows in each list."""
    waiting = PermissionRequest.objects.waiting(now)
    asked = waiting.aggregate(count=Count("pk"), oldest=Min("created_at"))
    runs = _by_status(Run.objects.filter(status__in=[*WAITING_RUNS, *RUNNING_RUNS]))
    runners = list(Runner.objects.filter(deregistered_at__isnull=True))
    last_hour, last_day = _events_since(now - HOUR, now - DAY)
    models, agents = usage.since(now - DAY)
    asked_now = list(waiting.without_bodies().order_by("created_at", "pk")[:rows])
    decisions = PermissionRequest.objects.without_bodies().filter(status__in=DECIDED)
    decided = list(decisions.order_by("-approved_at")[:rows])
    recent = list(Session.objects.order_by("-created_at", "-pk")[:rows])
    named = titles.of([*(session.pk for session in recent), *map(_session_of, [*asked_now, *decided])])
    return Overview(
        sessions_by_status=_sessions_by_status(),
        waiting_requests=asked["count"],
        oldest_request=asked["oldest"],
        waiting=_asked(asked_now, named),
        decisions=_asked(decided, named),
        runs_waiting=sum(runs.get(status, 0) for status in WAITING_RUNS),
        runs_running=sum(runs.get(status, 0) for status in RUNNING_RUNS),
        runners=len(runners),
        runners_online=sum(is_online(runner, now) for runner in runners),
        events_last_hour=last_hour,
        events_last_day=last_day,
        recent_sessions=[RecentSession(session, named.get(session.pk, "")) for session in recent],
        spent=usage.total(models),
        spent_by=[("Model", _first(models, rows)), ("Agent", _first(agents, rows))],
    )


def _asked(requests: list[PermissionRequest], named: dict[str, str]) -> list[Asked]:
    found = []
    for request in requests:
        session_id = _session_of(request)
        found.append(Asked(request, session_id, named.get(session_id or "", "")))
    return found


def _session_of(request: PermissionRequest) -> str | None:
    return request.context.session_id if hasattr(request, "context") else None


def _first(usages: dict[str, Usage], most: int) -> dict[str, Usage]:
    return dict(list(usages.items())[:most])


def is_online(runner: Runner, now: datetime) -> bool:
    """Say whether a runner has given a sign of life lately."""
    return runner.gone_at is None and runner.silence(now) < timedelta(seconds=settings.RUNNER_STALE_AFTER)


def _sessions_by_status() -> dict[str, int]:
    """Count sessions by status: those at work first, then ended ones, then words of other programs."""
    counts = _by_status(Session.objects.all())
    return {word: counts.pop(word) for word in IN_ORDER if word in counts} | counts


def _by_status(rows: QuerySet[Session] | QuerySet[Run]) -> dict[str, int]:
    return dict(rows.order_by().values_list("status").annotate(count=Count("pk")))


def _events_since(*moments: datetime) -> list[int]:
    received = EventContext.objects.order_by()
    return [
        spans.since(received.filter(received_at__gte=moment), moment, "event_id").count()
        for moment in moments
    ]
