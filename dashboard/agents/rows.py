"""Agents as rows of a list, and the details on one agent's page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, QuerySet

from coordinator.chat.presence import STATES, agent_presence_status
from coordinator.lib.instants import EPOCH
from coordinator.models import (
    Agent,
    AgentName,
    AgentPlugin,
    ApiKey,
    Blueprint,
    ChatMessage,
    DrivenSession,
    Grant,
    PluginSetting,
    Session,
    SessionGuard,
    UnreadableText,
)
from coordinator.models.agent_names import (
    LinkReason,
    link_reasons_by_agent_name,
    list_all_agent_names,
    load_linked_agents_by_name,
)
from coordinator.sessions import titles
from coordinator.sessions.unguarded_calls import describe_permission_mode

RECENT = 8
UNGUARDED_DAYS = 30
MOST_GUARDS = 200  # the newest guarded sessions of these days that are read


@dataclass(frozen=True, slots=True)
class AgentRow:
    agent: Agent
    status: str
    plugins: int
    messages: int
    grants: int

    @property
    def last_seen_at(self) -> Any:
        """The time of the last heartbeat, or None for never."""
        return None if self.agent.last_seen == EPOCH else self.agent.last_seen

    @property
    def capability_names(self) -> list[str]:
        """The capabilities that the agent requires, as texts."""
        return stored_value_as_text_list(self.agent.required_capabilities)


def stored_value_as_text_list(value: Any) -> list[str]:
    """Return the items of a stored list as texts. Any other value is returned as a list with one text."""
    if value is None or value == "":
        return []
    return [str(word) for word in value] if isinstance(value, list) else [str(value)]


def load_agent_rows(agents: Iterable[Agent], now: datetime) -> list[AgentRow]:
    """Return a row for each agent. What is counted for them takes one query for each table."""
    agent_list = list(agents)
    ids = [agent.pk for agent in agent_list]
    plugins = count_rows_by_agent(AgentPlugin.objects.filter(agent__in=ids))
    messages = count_rows_by_agent(ChatMessage.objects.filter(agent__in=ids))
    grants = count_rows_by_agent(Grant.objects.not_ended(now).filter(agent_id__in=ids))
    return [
        AgentRow(
            agent,
            agent_presence_status(agent, now),
            plugins.get(agent.pk, 0),
            messages.get(agent.pk, 0),
            grants.get(agent.pk, 0),
        )
        for agent in agent_list
    ]


def count_rows_by_agent(rows: Any) -> dict[str, int]:
    return dict(rows.order_by().values_list("agent_id").annotate(number=Count("*")))


def count_agents_by_status(rows: Sequence[AgentRow]) -> Mapping[str, int]:
    """Return how many agents have each status, in the order of STATES."""
    return {state: sum(row.status == state for row in rows) for state in STATES}


@dataclass(frozen=True, slots=True)
class UnguardedSession:
    """A session with unguarded calls, or with a permission mode in which the agent does not ask.

    `mode_note` says what that mode means; it is empty for any other mode.
    """

    guard: SessionGuard
    title: str
    mode_note: str
    is_driven: bool  # a runner drives it: the agent asks the runner and calls no hook


REASONS = {
    LinkReason.ID: "its id",
    LinkReason.SAME_ID: "its id follows from it",
    LinkReason.AGENT_NAME: "what it is called",
}


@dataclass(frozen=True, slots=True)
class AgentNameRow:
    """A name that is linked to the agent, why it is, and how many sessions use it."""

    name: str
    reason: LinkReason
    is_blueprint: bool
    sessions: int
    link: AgentName | None  # the link that a person made, if one did

    @property
    def is_agent_id_name(self) -> bool:
        return self.reason == LinkReason.ID

    @property
    def agent_link_reason_label(self) -> str:
        """Why the name belongs to the agent, in words; empty if a person linked it (`link`)."""
        return REASONS.get(self.reason, "")


@dataclass(frozen=True, slots=True)
class AgentDetails:
    row: AgentRow
    names: list[AgentNameRow]
    linkable_names: list[str]
    plugins: list[tuple[AgentPlugin, PluginSetting | None]]
    others: list[str]
    grants: list[Grant]
    sessions: list[Session]
    session_titles: dict[str, str]
    sessions_count: int
    keys: list[ApiKey]
    unguarded: list[UnguardedSession]

    @property
    def metadata_items(self) -> list[tuple[str, Any]] | None:
        """The metadata as sorted pairs; None if it is not an object."""
        metadata = self.row.agent.metadata
        return sorted(metadata.items()) if isinstance(metadata, dict) else None

    @property
    def unreadable_metadata(self) -> str:
        metadata = self.row.agent.metadata
        if metadata is None or isinstance(metadata, dict):
            return ""
        return str(metadata) if isinstance(metadata, UnreadableText) else repr(metadata)


def load_agent_details(agent: Agent, now: datetime) -> AgentDetails:
    assigned = list(AgentPlugin.objects.filter(agent=agent).order_by("plugin_id"))
    plugin_settings = PluginSetting.objects.in_bulk()
    assigned_ids = {row.plugin_id for row in assigned}
    linked = link_reasons_by_agent_name(agent.pk)
    sessions = Session.objects.filter(agent_name__in=linked)
    names = load_linked_name_rows(linked, sessions)
    known_names = list_all_agent_names()
    recent = list(sessions.order_by("-created_at", "-pk")[:RECENT])
    return AgentDetails(
        load_agent_rows([agent], now)[0],
        names,
        sorted(known_names - load_linked_agents_by_name(known_names).keys()),
        [(row, plugin_settings.get(row.plugin_id)) for row in assigned],
        sorted(set(plugin_settings) - assigned_ids - {None}),
        list(
            Grant.objects.not_ended(now)
            .filter(agent_id__in=linked)
            .order_by("server_id", "tool_name", "agent_id", "-id")
        ),
        recent,
        titles.load_session_titles(session.pk for session in recent),
        sum(row.sessions for row in names),
        list(ApiKey.objects.filter(agent_id__in=linked, revoked_at__isnull=True).order_by("name")),
        list_unguarded_sessions(sessions, now),
    )


def load_linked_name_rows(
    linked: Mapping[str, LinkReason], sessions: QuerySet[Session]
) -> list[AgentNameRow]:
    """Return a row for each name of an agent."""
    counts = dict(sessions.order_by().values_list("agent_name").annotate(number=Count("pk")))
    blueprints = set(Blueprint.objects.filter(pk__in=linked).values_list("pk", flat=True))
    links = AgentName.objects.in_bulk(list(linked))
    return [
        AgentNameRow(name, reason, name in blueprints, counts.get(name, 0), links.get(name))
        for name, reason in linked.items()
    ]


def list_unguarded_sessions(sessions: QuerySet[Session], now: datetime) -> list[UnguardedSession]:
    """Return the newest sessions of the last 30 days with unguarded calls, or whose agent does not ask."""
    since = now - timedelta(days=UNGUARDED_DAYS)
    guards = SessionGuard.objects.filter(session__in=sessions, session__created_at__gte=since)
    rows = list(guards.select_related("session").order_by("-session__created_at", "-pk")[:MOST_GUARDS])
    listed = [row for row in rows if row.unguarded or describe_permission_mode(row.mode)][:RECENT]
    session_titles = titles.load_session_titles([row.pk for row in listed])
    driven_ids = set(
        DrivenSession.objects.filter(pk__in=[row.pk for row in listed]).values_list("pk", flat=True)
    )
    return [
        UnguardedSession(
            row, session_titles.get(row.pk, ""), describe_permission_mode(row.mode), row.pk in driven_ids
        )
        for row in listed
    ]
