"""Agents as rows of a list, and everything that one agent's page shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q

from coordinator.chat.presence import STATES, status_of
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
    def seen(self) -> Any:
        """The last sign of life, or None for never."""
        return None if self.agent.last_seen == EPOCH else self.agent.last_seen

    @property
    def capabilities(self) -> list[str]:
        """What the agent needs, as far as it can be read."""
        return words_of(self.agent.required_capabilities)


def words_of(value: Any) -> list[str]:
    """Return a stored list as words; anything else that is stored stands as one."""
    if value is None or value == "":
        return []
    return [str(word) for word in value] if isinstance(value, list) else [str(value)]


def agent_rows(agents: Iterable[Agent], now: datetime) -> list[AgentRow]:
    """Return agents as rows, with what is counted of all of them in one query a table."""
    found = list(agents)
    ids = [agent.pk for agent in found]
    plugins = _counts(AgentPlugin.objects.filter(agent__in=ids))
    messages = _counts(ChatMessage.objects.filter(agent__in=ids))
    grants = _counts(Grant.objects.standing(now).filter(agent_id__in=ids))
    return [
        AgentRow(
            agent,
            status_of(agent, now),
            plugins.get(agent.pk, 0),
            messages.get(agent.pk, 0),
            grants.get(agent.pk, 0),
        )
        for agent in found
    ]


def _counts(rows: Any) -> dict[str, int]:
    return dict(rows.order_by().values_list("agent_id").annotate(number=Count("*")))


def by_status(rows: Sequence[AgentRow]) -> Mapping[str, int]:
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
    def metadata(self) -> list[tuple[str, Any]] | None:
        """The metadata as rows, or None where it is no object."""
        held = self.row.agent.metadata
        return sorted(held.items()) if isinstance(held, dict) else None

    @property
    def odd_metadata(self) -> str:
        held = self.row.agent.metadata
        if held is None or isinstance(held, dict):
            return ""
        return str(held) if isinstance(held, UnreadableText) else repr(held)


def agent_details(agent: Agent, now: datetime) -> AgentDetails:
    assigned = list(AgentPlugin.objects.filter(agent=agent).order_by("plugin_id"))
    known = PluginSetting.objects.in_bulk()
    mine = {row.plugin_id for row in assigned}
    sessions = Session.objects.filter(Q(agent_name=agent.pk) | Q(agent_name=agent.name))
    return AgentDetails(
        agent_rows([agent], now)[0],
        [(row, known.get(row.plugin_id)) for row in assigned],
        sorted(set(known) - mine - {None}),
        list(Grant.objects.standing(now).filter(agent_id=agent.pk).order_by("server_id", "tool_name", "-id")),
        list(sessions.order_by("-created_at", "-pk")[:RECENT]),
        sessions.count(),
        list(ApiKey.objects.filter(agent_id=agent.pk, revoked_at__isnull=True).order_by("name")),
    )
