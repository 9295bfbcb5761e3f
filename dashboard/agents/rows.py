"""Agents as rows of a list, and everything that one agent's page shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q

from coordinator.chat.presence import STATES, agent_presence_status
from coordinator.lib.instants import EPOCH
from coordinator.models import (
    Agent,
    AgentPlugin,
    ApiKey,
    ChatMessage,
    Grant,
    PluginSetting,
    Session,
    UnreadableText,
)

RECENT = 8


@dataclass(frozen=True, slots=True)
class AgentRow:
    agent: Agent
    status: str
    plugins: int
    messages: int
    grants: int

    @property
    def last_seen_at(self) -> Any:
        """The last sign of life, or None for never."""
        return None if self.agent.last_seen == EPOCH else self.agent.last_seen

    @property
    def capability_names(self) -> list[str]:
        """What the agent needs, as far as it can be read."""
        return list_stored_words(self.agent.required_capabilities)


def list_stored_words(value: Any) -> list[str]:
    """Return a stored list as words; anything else that is stored stands as one."""
    if value is None or value == "":
        return []
    return [str(word) for word in value] if isinstance(value, list) else [str(value)]


def load_agent_rows(agents: Iterable[Agent], now: datetime) -> list[AgentRow]:
    """Return agents as rows, with what is counted of all of them in one query a table."""
    agent_list = list(agents)
    ids = [agent.pk for agent in agent_list]
    plugins = count_by_agent(AgentPlugin.objects.filter(agent__in=ids))
    messages = count_by_agent(ChatMessage.objects.filter(agent__in=ids))
    grants = count_by_agent(Grant.objects.not_ended(now).filter(agent_id__in=ids))
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


def count_by_agent(rows: Any) -> dict[str, int]:
    return dict(rows.order_by().values_list("agent_id").annotate(number=Count("*")))


def count_agents_by_status(rows: Sequence[AgentRow]) -> Mapping[str, int]:
    """Return how many agents are in each state, in the order of the states."""
    return {state: sum(row.status == state for row in rows) for state in STATES}


@dataclass(frozen=True, slots=True)
class AgentDetails:
    row: AgentRow
    plugins: list[tuple[AgentPlugin, PluginSetting | None]]
    others: list[str]
    grants: list[Grant]
    sessions: list[Session]
    sessions_count: int
    keys: list[ApiKey]

    @property
    def metadata_items(self) -> list[tuple[str, Any]] | None:
        """The metadata as rows, or None where it is no object."""
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
    mine = {row.plugin_id for row in assigned}
    sessions = Session.objects.filter(Q(agent_name=agent.pk) | Q(agent_name=agent.name))
    return AgentDetails(
        load_agent_rows([agent], now)[0],
        [(row, plugin_settings.get(row.plugin_id)) for row in assigned],
        sorted(set(plugin_settings) - mine - {None}),
        list(
            Grant.objects.not_ended(now).filter(agent_id=agent.pk).order_by("server_id", "tool_name", "-id")
        ),
        list(sessions.order_by("-created_at", "-pk")[:RECENT]),
        sessions.count(),
        list(ApiKey.objects.filter(agent_id=agent.pk, revoked_at__isnull=True).order_by("name")),
    )
