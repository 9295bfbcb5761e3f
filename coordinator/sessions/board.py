"""The board of current work, and of who waits for whom: the sessions that have not ended, with what each is doing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.db.models import Count, OuterRef, Subquery

from coordinator.lib import instants
from coordinator.models import Event, EventContext, PermissionContext, Session
from coordinator.models.agent_names import LinkedAgent, load_linked_agents_by_name
from coordinator.models.permissions import RequestStatus
from coordinator.sessions import inactivity, titles
from coordinator.sessions.statuses import AT_WORK

MOST_ROWS = 8


class BoardState(StrEnum):
    """What a session is doing; those that need somebody first."""

    WAITS_FOR_PERSON = "waits for a person"
    WAITS_FOR_RUNNER = "waits for a runner"
    WAITS_FOR_AGENT = "waits for an agent"
    IN_CALL = "in a call"
    AT_WORK = "at work"
    IDLE = "idle"


ORDER = {state: place for place, state in enumerate(BoardState)}


@dataclass(frozen=True, slots=True)
class BoardRow:
    """One session: whose it is, what it is doing since when, and the sessions that it waits for."""

    session: Session
    title: str
    agent: LinkedAgent | None
    state: BoardState
    since: datetime | None
    tool_name: str
    waiting_requests: int
    waited_for: tuple[Session, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """The rows that are shown, how many sessions there are, and the agents that their names are linked to."""

    rows: list[BoardRow]
    total: int
    agents: dict[str, LinkedAgent]

    @property
    def hidden_row_count(self) -> int:
        """Return how many sessions are not shown."""
        return self.total - len(self.rows)


def load_session_board(now: datetime) -> Board:
    """Return the sessions that are at work or pending, the newest first among those that do the same."""
    live = Session.objects.filter(status__in=(*AT_WORK, Session.Status.PENDING))
    latest = EventContext.objects.filter(session_id=OuterRef("pk")).order_by("-instant_us", "-event_id")
    newest = live.order_by("-created_at", "-pk").annotate(last_event=Subquery(latest.values("event_id")[:1]))
    sessions = list(newest[:MOST_ROWS])
    ids = [session.pk for session in sessions]
    events = Event.objects.filter(pk__in=[session.last_event for session in sessions if session.last_event])
    last_events = {
        event.pk: event
        for event in events.select_related("context").only("event_type", "tool_name", "context")
    }
    requests = PermissionContext.objects.filter(
        session_id__in=ids, request__status=RequestStatus.PENDING
    ).order_by()
    waiting = dict(requests.values_list("session_id").annotate(number=Count("*")))
    children = load_active_children_by_parent(ids)
    shown_sessions = [*sessions, *(child for group in children.values() for child in group)]
    agents = load_linked_agents_by_name(session.agent_name for session in shown_sessions)
    session_titles = titles.load_session_titles(ids)
    idle = inactivity.find_idle_session_ids(ids, now)
    rows = []
    for session in sessions:
        event = last_events.get(session.last_event or 0)
        is_in_call = event is not None and event.event_type == "pre_tool"
        state = (
            BoardState.WAITS_FOR_PERSON
            if waiting.get(session.pk)
            else BoardState.WAITS_FOR_RUNNER
            if session.status == Session.Status.PENDING
            else BoardState.WAITS_FOR_AGENT
            if session.pk in children
            else BoardState.IDLE
            if session.pk in idle
            else BoardState.IN_CALL
            if is_in_call
            else BoardState.AT_WORK
        )
        rows.append(
            BoardRow(
                session,
                session_titles.get(session.pk, ""),
                agents.get(session.agent_name or ""),
                state,
                instants.instant_from_microseconds(event.context.instant_us) if event is not None else None,
                (event.tool_name or "") if event is not None and is_in_call else "",
                waiting.get(session.pk, 0),
                tuple(children.get(session.pk, ())),
            )
        )
    rows.sort(key=lambda row: ORDER[row.state])
    return Board(rows, live.count() if len(rows) == MOST_ROWS else len(rows), agents)


def load_active_children_by_parent(session_ids: Iterable[str]) -> dict[str, list[Session]]:
    """Return the sessions at work or pending that each of these sessions started."""
    children: dict[str, list[Session]] = {}
    live = Session.objects.filter(parent_session_id__in=list(session_ids))
    for child in live.filter(status__in=(*AT_WORK, Session.Status.PENDING)).order_by("created_at", "pk"):
        children.setdefault(child.parent_session_id or "", []).append(child)
    return children
