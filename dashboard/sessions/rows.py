"""Rows of the list of sessions, used by the page, by fragments and by the event stream."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.template.loader import render_to_string
from django.utils import timezone

from coordinator.feed.reader import FeedChange
from coordinator.lib import instants
from coordinator.live.fragments import Drawing, LiveView, PageFragment
from coordinator.models import PermissionContext, Session
from coordinator.models.agent_names import LinkedAgent, load_linked_agents_by_name
from coordinator.sessions import inactivity, titles
from coordinator.sessions.list_facts import (
    SessionListFacts,
    count_session_waiting_requests,
    load_session_list_facts,
    session_start_microseconds,
)
from coordinator.sessions.statuses import LIVE
from dashboard.rendering.allowance import wrap_with_rendering_allowance
from dashboard.templatetags.signalbox import render_live_session_title

DIGITS_OF_AN_ID = 19  # a number with this many digits may not fit into 64 bits
WAITING_TEMPLATES = {
    "data-session-waiting": "sessions/_waiting.html",
    "data-session-waiting-count": "sessions/_waiting_count.html",
}


@dataclass(frozen=True, slots=True)
class SessionRow:
    session: Session
    facts: SessionListFacts
    is_idle: bool = False
    agent: LinkedAgent | None = None
    is_pinned: bool = False  # by the viewer; False in the stream, which renders for everybody

    @property
    def status_or_idle(self) -> str:
        """The session's status, or `idle` if a running session has been silent."""
        return inactivity.IDLE if self.is_idle else self.session.status

    @property
    def began_at(self) -> object:
        """When the session began, at the latest with its first event.

        An unreadable time is returned unchanged.
        """
        if not isinstance(self.session.created_at, datetime) or self.facts.first_us is None:
            return self.session.created_at
        return instants.instant_from_microseconds(
            session_start_microseconds(self.session, self.facts.first_us)
        )

    @property
    def is_live(self) -> bool:
        return self.session.status in LIVE


def load_session_rows(
    sessions: Iterable[Session], pinned_ids: Collection[str] = frozenset()
) -> list[SessionRow]:
    session_list = list(sessions)
    facts = load_session_list_facts(session.pk for session in session_list)
    running = [session.pk for session in session_list if session.status == Session.Status.RUNNING]
    idle = inactivity.find_idle_session_ids(running, timezone.now()) if running else set()
    agents = load_linked_agents_by_name(session.agent_name for session in session_list)
    return [
        SessionRow(
            session,
            facts[session.pk],
            session.pk in idle,
            agents.get(session.agent_name or ""),
            session.pk in pinned_ids,
        )
        for session in session_list
    ]


def build_session_row_fragments(change: FeedChange) -> Sequence[PageFragment]:
    """Return the fragment of a changed session's row, for every list that shows it.

    There is no fragment for a new session: the page only counts it.
    """
    if change.op != "update":
        return []
    sessions = Session.objects.filter(pk=change.key)
    return [
        PageFragment(
            f'[data-session-row="{escape_css_text(change.key)}"]',
            render_to_string("sessions/_list_row.html", {"row": row}),
        )
        for row in load_session_rows(sessions)
    ]


def build_waiting_request_count_fragments(change: FeedChange) -> Sequence[PageFragment]:
    """Return fragments with the number of a session's waiting requests, after a change of a request."""
    if not (change.key.isascii() and change.key.isdecimal() and len(change.key) < DIGITS_OF_AN_ID):
        return []  # a vote or an assignment, whose key is a `request_id`, does not change the number
    permission_contexts = PermissionContext.objects.filter(
        request__pk=int(change.key), session_id__isnull=False
    )
    fragments = []
    for session_id in permission_contexts.values_list("session_id", flat=True):
        if session_id is None:
            continue
        context = {"session_id": session_id, "waiting": count_session_waiting_requests(session_id)}
        fragments += [
            PageFragment(
                f'[{attribute}="{escape_css_text(session_id)}"]', render_to_string(template, context)
            )
            for attribute, template in WAITING_TEMPLATES.items()
        ]
    return fragments


def session_row_drawing_or_none(session_id: str) -> Drawing | None:
    """Return the current row of a session, with which lists update the cells that depend on events."""
    rows = load_session_rows(Session.objects.filter(pk=session_id))
    return {"row": render_to_string("sessions/_list_row.html", {"row": rows[0]})[:]} if rows else None


# One topic for each running session, for lists. Cells that do not depend on events have fragments above.
VIEW = LiveView(
    "session_row",
    frozenset({"events"}),
    frozenset(),
    lambda *_: None,
    wrap_with_rendering_allowance(session_row_drawing_or_none),
)


def build_session_title_fragments(change: FeedChange) -> Sequence[PageFragment]:
    """Return the fragment of a session's current title, for every element that names the session."""
    title = titles.load_session_title(change.key)
    return [
        PageFragment(
            f'[data-session-title="{escape_css_text(change.key)}"]',
            render_live_session_title(change.key, title),
        )
    ]


def escape_css_text(text: str) -> str:
    """Return a text escaped for a quoted CSS string."""
    return "".join(f"\\{ord(character):x} " if character in '"\\\n\r\f' else character for character in text)
