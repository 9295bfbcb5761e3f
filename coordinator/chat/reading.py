"""Reading chats: pages of a thread, unread counts. A thread holds all messages with one agent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import Q, QuerySet

from coordinator.errors import BadRequest, NotFound
from coordinator.lib import instants
from coordinator.models import Agent, ChatAttachment, ChatMessage, ReadMark, UnreadableText
from coordinator.models.chat import ChatSource
from coordinator.secrets.masking import mask_secrets_in_value

PAGE = 50
MOST_MESSAGES = 200
MOST_COUNTED = 100  # beyond it, a number of unread messages says nothing more

# Read marks of the agent itself, in addition to those of people: up to where its messages were sent to it, and up to
# where it asked for what follows. No user name has a colon.
SENT_TO_AGENT, READ_BY_AGENT = "agent:sent", "agent:read"

_PLACE = re.compile(r"(-?\d{1,19})(?::(.*))?", re.DOTALL)
MILLISECOND = timedelta(milliseconds=1)
FIRST, LAST = (edge.replace(tzinfo=UTC) for edge in (datetime.min, datetime.max))


@dataclass(frozen=True, slots=True)
class MessagePosition:
    """A position between two messages: a time, and the id that distinguishes messages of the same time."""

    at: datetime
    message_id: str | None = None

    def __str__(self) -> str:
        return f"{instants.instant_to_microseconds(self.at) // 1000}:{self.message_id or ''}"

    def older_messages_condition(self) -> Q:
        """Match what is before this position; without an id it is the beginning of its time."""
        earlier = Q(created_at__lt=self.at)
        if self.message_id is None:
            return earlier
        return earlier | Q(created_at=self.at, id__lt=self.message_id)

    def newer_messages_condition(self) -> Q:
        """Match what is after this position; without an id it is the end of its time.

        A message without a readable time has no position and is never new: it would be sent to waiting clients for
        ever.
        """
        later = Q(created_at__gt=self.at, created_at__lte=LAST)
        if self.message_id is None:
            return later
        return later | Q(created_at=self.at, id__gt=self.message_id)


def message_position(message: ChatMessage) -> MessagePosition:
    """Return the position of a message; an unreadable time sorts last.

    An id that no text equals is left out, or what is after it would be the message itself, for ever.
    """
    at, message_id = message.created_at, message.pk
    return MessagePosition(
        at if isinstance(at, datetime) else LAST,
        None if isinstance(message_id, UnreadableText) else message_id,
    )


def parse_message_position(text: str) -> MessagePosition:
    """Read `1771848000000` or `1771848000000:msg_…`. Raises BadRequest for anything else."""
    match = _PLACE.fullmatch(text.strip())
    if match is None:
        raise BadRequest(f"A place must be milliseconds, or milliseconds:id as in an answer, not {text!r}.")
    milliseconds, message_id = match.groups()
    try:
        at = instants.EPOCH + int(milliseconds) * MILLISECOND
    except OverflowError:
        at = FIRST if int(milliseconds) < 0 else LAST
    return MessagePosition(at, message_id or None)


@dataclass(frozen=True, slots=True)
class ChatMessagePage:
    """Messages in the order they are read, oldest first, and whether there are more on the side asked for."""

    messages: list[ChatMessage]
    has_more: bool


def require_chat_agent(agent_id: str) -> Agent:
    """Return the agent. Raises NotFound."""
    agent = Agent.objects.filter(pk=agent_id).first() if "\x00" not in agent_id else None
    if agent is None:
        raise NotFound(f"There is no agent {agent_id!r}.")
    return agent


def agent_thread_messages(agent_id: str) -> QuerySet[ChatMessage]:
    """Return all that is said with an agent, with the attachments' facts but not their bytes."""
    return ChatMessage.objects.filter(agent=agent_id)


def load_older_messages(
    agent_id: str, position: MessagePosition | None, limit: int = PAGE, user_id: str | None = None
) -> ChatMessagePage:
    """Return the last `limit` messages before `place`, or of all."""
    rows = filter_messages_by_optional_user(agent_thread_messages(agent_id), user_id)
    if position is not None:
        rows = rows.filter(position.older_messages_condition())
    limit = max(1, min(limit, MOST_MESSAGES))
    older_rows = list(rows.order_by("-created_at", "-id")[: limit + 1])
    return ChatMessagePage(older_rows[:limit][::-1], len(older_rows) > limit)


def load_newer_message_page(
    agent_id: str, position: MessagePosition, limit: int = PAGE, user_id: str | None = None
) -> ChatMessagePage:
    """Return the first `limit` messages after `place`."""
    limit = max(1, min(limit, MOST_MESSAGES))
    rows = filter_messages_by_optional_user(agent_thread_messages(agent_id), user_id).filter(
        position.newer_messages_condition()
    )
    newer_rows = list(rows.order_by("created_at", "id")[: limit + 1])
    return ChatMessagePage(newer_rows[:limit], len(newer_rows) > limit)


def iterate_chat_messages_of_agent(agent_id: str) -> Iterator[ChatMessage]:
    """Yield all messages in order, page by page; those whose instant cannot be read come first or last."""
    yield from agent_thread_messages(agent_id).filter(created_at__lte=FIRST).order_by("created_at", "id")
    page = load_newer_message_page(agent_id, MessagePosition(FIRST), MOST_MESSAGES)
    while page.messages:
        yield from page.messages
        page = load_newer_message_page(agent_id, message_position(page.messages[-1]), MOST_MESSAGES)
    yield from agent_thread_messages(agent_id).filter(created_at__gt=LAST).order_by("created_at", "id")


def load_message_page_around(
    agent_id: str, message_id: str, limit: int = PAGE
) -> tuple[ChatMessagePage, bool]:
    """Return a page that ends some messages after `message_id`, and whether newer ones follow it."""
    target = agent_thread_messages(agent_id).filter(pk=message_id).first()
    if target is None:
        raise NotFound("There is no such message in this thread. It may have been deleted.")
    after = load_newer_message_page(agent_id, message_position(target), limit // 2)
    before = load_older_messages(agent_id, message_position(target), limit // 2)
    return ChatMessagePage([*before.messages, target, *after.messages], before.has_more), after.has_more


def filter_messages_by_optional_user(
    rows: QuerySet[ChatMessage], user_id: str | None
) -> QuerySet[ChatMessage]:
    return rows if user_id is None else rows.filter(user_id=user_id)


def chat_message_as_json(message: ChatMessage, *, with_secrets: bool = False) -> dict[str, Any]:
    """Return a message as machines read it; `with_secrets`, with its secrets, for the agent that is spoken to."""
    at = message.created_at
    return {
        "id": message.pk,
        "agent_id": message.agent_id,
        "user_id": message.user_id,
        "source": message.source,
        "content": message.content if with_secrets else mask_secrets_in_value(message.content),
        "metadata": message.metadata if with_secrets else mask_secrets_in_value(message.metadata),
        "created_at": instants.instant_to_microseconds(at) // 1000 if isinstance(at, datetime) else str(at),
        "place": str(message_position(message)),
    }


def last_agent_position_or_epoch(agent_id: str) -> MessagePosition:
    """Return the place after the agent's last own message: what follows it, it has not answered yet."""
    last = (
        agent_thread_messages(agent_id).filter(source=ChatSource.AGENT).order_by("-created_at", "-id").first()
    )
    return message_position(last) if last else MessagePosition(instants.EPOCH)


def unanswered_messages_json_or_none(
    agent_id: str, position: MessagePosition, limit: int = PAGE, *, with_secrets: bool = False
) -> dict[str, Any] | None:
    """Return what others said to the agent after `place`, as the answer of a wait, or None where nothing is new.

    `with_secrets`: for the agent that is spoken to.
    """
    rows = (
        agent_thread_messages(agent_id)
        .filter(position.newer_messages_condition())
        .exclude(source=ChatSource.AGENT)
    )
    unanswered_rows = list(rows.order_by("created_at", "id")[:limit])
    if not unanswered_rows:
        return None
    return {
        "messages": [chat_message_as_json(row, with_secrets=with_secrets) for row in unanswered_rows],
        "after": str(message_position(unanswered_rows[-1])),
    }


class MessageDelivery(StrEnum):
    """How far people's newest message is on its way to the agent."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    SEEN = "seen"


def newest_user_message_delivery_state(agent_id: str) -> MessageDelivery | None:
    """Return the state of what people wrote last; None where nobody wrote since the agent's own last message."""
    last = agent_thread_messages(agent_id).order_by("-created_at", "-id").first()
    if last is None or last.source != ChatSource.USER:
        return None
    position = message_position(last)
    marks = ReadMark.objects.filter(agent_id=agent_id, person__in=(SENT_TO_AGENT, READ_BY_AGENT))
    reached = {
        mark.person
        for mark in marks
        if (mark.read_at, mark.message_id) >= (position.at, position.message_id or "")
    }
    if READ_BY_AGENT in reached:
        return MessageDelivery.SEEN
    return MessageDelivery.DELIVERED if SENT_TO_AGENT in reached else MessageDelivery.WAITING


def load_read_positions(person: str) -> dict[str, MessagePosition]:
    """Return how far a person has read, by agent."""
    marks = ReadMark.objects.filter(person=person).values_list("agent_id", "read_at", "message_id")
    return {agent_id: MessagePosition(at, message_id) for agent_id, at, message_id in marks}


def count_unread_messages_by_agent(person: str, agent_ids: Iterable[str], since: datetime) -> dict[str, int]:
    """Return how many messages of others each thread holds beyond what the person has read, up to MOST_COUNTED.

    For a person who never opened a thread, messages before `since` (when they joined) do not count.
    """
    positions = load_read_positions(person)
    counts = {}
    for agent_id in agent_ids:
        position = positions.get(agent_id, MessagePosition(since))
        new_messages = agent_thread_messages(agent_id).filter(position.newer_messages_condition())
        new_messages_of_others = new_messages.exclude(source=ChatSource.USER, user_id=person)
        counts[agent_id] = new_messages_of_others.order_by()[:MOST_COUNTED].count()
    return counts


def require_chat_attachment(attachment_id: str, agent_ids: Iterable[str] | None = None) -> ChatAttachment:
    """Return an attachment; with `agent_ids`, only one of these agents' threads. Raises NotFound."""
    rows = ChatAttachment.objects.select_related("message", "stored").filter(pk=attachment_id)
    attachment = (
        rows.first() if agent_ids is None else rows.filter(message__agent__in=list(agent_ids)).first()
    )
    if attachment is None:
        raise NotFound("There is no such attachment.")
    return attachment
