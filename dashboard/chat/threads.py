"""The list of agents next to a thread, each with its last message, unread count and presence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import OuterRef, Subquery
from django.utils import timezone

from coordinator.chat import reading as chat
from coordinator.chat.content import masked_message_search_text
from coordinator.chat.presence import agent_presence_status
from coordinator.models import Agent, ChatMessage
from coordinator.models.chat import ChatSource
from coordinator.sessions.title_words import preview_markdown

BEGINNING = 90


@dataclass(frozen=True, slots=True)
class ChatRow:
    agent: Agent
    status: str
    last: ChatMessage | None
    unread: int

    @property
    def last_message_preview(self) -> str:
        if self.last is None:
            return "No messages yet"
        preview_text = preview_markdown(masked_message_search_text(self.last.content), BEGINNING)
        speaker = (
            "" if self.last.source == ChatSource.AGENT else f"{self.last.user_id.removeprefix('key:')}: "
        )
        return f"{speaker}{preview_text or 'An attachment'}"


def load_chat_rows(person: User | AnonymousUser, now: datetime | None = None) -> list[ChatRow]:
    moment = now or timezone.now()
    newest = ChatMessage.objects.filter(agent=OuterRef("pk")).order_by("-created_at", "-id").values("pk")[:1]
    agents = list(Agent.objects.annotate(last_id=Subquery(newest)).order_by("name", "pk"))
    last = ChatMessage.objects.in_bulk([agent.last_id for agent in agents if agent.last_id])
    joined = person.date_joined if isinstance(person, User) else moment
    read_positions = chat.load_read_positions(person.get_username())
    behind = [
        agent.pk
        for agent in agents
        if agent.last_id
        and can_have_unread_messages(last[agent.last_id], read_positions.get(agent.pk), joined)
    ]
    unread = chat.count_unread_messages_by_agent(person.get_username(), behind, joined)
    rows = [
        ChatRow(agent, agent_presence_status(agent, moment), last.get(agent.last_id), unread.get(agent.pk, 0))
        for agent in agents
    ]
    return sorted(rows, key=last_message_sort_key, reverse=True)


def can_have_unread_messages(last: ChatMessage, read: chat.MessagePosition | None, joined: datetime) -> bool:
    """Return whether the thread can have unread messages.

    Most threads are read to the end and need no count.
    """
    position = chat.message_position(last)
    return (
        position.at > joined
        if read is None
        else (position.at, position.message_id) > (read.at, read.message_id)
    )


def last_message_sort_key(row: ChatRow) -> tuple[bool, float]:
    if row.last is None:
        return (False, 0.0)
    return (True, chat.message_position(row.last).at.timestamp())
