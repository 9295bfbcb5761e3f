"""Reading chats: pages of a thread, unread counts. A thread holds all messages with one agent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet

from coordinator.errors import BadRequest, NotFound
from coordinator.lib import instants
from coordinator.models import Agent, ChatAttachment, ChatMessage, ReadMark, UnreadableText
from coordinator.models.chat import ChatSource
from coordinator.secrets.masking import without_secrets

PAGE = 50
MOST_MESSAGES = 200
MOST_COUNTED = 100  # beyond it, a number of unread messages says nothing more

_PLACE = re.compile(r"(-?\d{1,19})(?::(.*))?", re.DOTALL)
MILLISECOND = timedelta(milliseconds=1)
FIRST, LAST = (edge.replace(tzinfo=UTC) for edge in (datetime.min, datetime.max))


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """A place between two messages: an instant, and the id that tells messages of one instant apart."""

    at: datetime
    message_id: str | None = None

    def __str__(self) -> str:
        return f"{instants.to_us(self.at) // 1000}:{self.message_id or ''}"

    def older(self) -> Q:
        """Match what stands before this place; a place without an id is the beginning of its instant."""
        earlier = Q(created_at__lt=self.at)
        if self.message_id is None:
            return earlier
        return earlier | Q(created_at=self.at, id__lt=self.message_id)

    def newer(self) -> Q:
        """Match what stands after this place; a place without an id is the end of its instant.

        What has no readable instant stands nowhere: it is in no news, or whoever waits would be told it for ever.
        """
        later = Q(created_at__gt=self.at, created_at__lte=LAST)
        if self.message_id is None:
            return later
        return later | Q(created_at=self.at, id__gt=self.message_id)


def place_of(message: ChatMessage) -> MessagePlace:
    """Return the place of a message; an instant that cannot be read stands at the end of all.

    An id that no text equals is left out, or what stands after it would be the message itself, for ever.
    """
    at, message_id = message.created_at, message.pk
    return MessagePlace(
        at if isinstance(at, datetime) else LAST,
        None if isinstance(message_id, UnreadableText) else message_id,
    )


def place_from(text: str) -> MessagePlace:
    """Read `1771848000000` or `1771848000000:msg_…`. Raises BadRequest for anything else."""
    match = _PLACE.fullmatch(text.strip())
    if match is None:
        raise BadRequest(f"A place must be milliseconds, or milliseconds:id as in an answer, not {text!r}.")
    milliseconds, message_id = match.groups()
    try:
        at = instants.EPOCH + int(milliseconds) * MILLISECOND
    except OverflowError:
        at = FIRST if int(milliseconds) < 0 else LAST
    return MessagePlace(at, message_id or None)


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Messages in the order they are read, oldest first, and whether there are more on the side asked for."""

    messages: list[ChatMessage]
    has_more: bool


def agent_of(agent_id: str) -> Agent:
    """Return the agent. Raises NotFound."""
    found = Agent.objects.filter(pk=agent_id).first() if "\x00" not in agent_id else None
    if found is None:
        raise NotFound(f"There is no agent {agent_id!r}.")
    return found


def thread(agent_id: str) -> QuerySet[ChatMessage]:
    """Return all that is said with an agent, with the attachments' facts but not their bytes."""
    return ChatMessage.objects.filter(agent=agent_id)


def older_than(
    agent_id: str, place: MessagePlace | None, limit: int = PAGE, user_id: str | None = None
) -> MessagePage:
    """Return the last `limit` messages before `place`, or of all."""
    rows = _by(thread(agent_id), user_id)
    if place is not None:
        rows = rows.filter(place.older())
    limit = max(1, min(limit, MOST_MESSAGES))
    found = list(rows.order_by("-created_at", "-id")[: limit + 1])
    return MessagePage(found[:limit][::-1], len(found) > limit)


def newer_than(
    agent_id: str, place: MessagePlace, limit: int = PAGE, user_id: str | None = None
) -> MessagePage:
    """Return the first `limit` messages after `place`."""
    limit = max(1, min(limit, MOST_MESSAGES))
    rows = _by(thread(agent_id), user_id).filter(place.newer())
    found = list(rows.order_by("created_at", "id")[: limit + 1])
    return MessagePage(found[:limit], len(found) > limit)


def whole_thread(agent_id: str) -> Iterator[ChatMessage]:
    """Yield all messages in order, page by page; those whose instant cannot be read come first or last."""
    yield from thread(agent_id).filter(created_at__lte=FIRST).order_by("created_at", "id")
    page = newer_than(agent_id, MessagePlace(FIRST), MOST_MESSAGES)
    while page.messages:
        yield from page.messages
        page = newer_than(agent_id, place_of(page.messages[-1]), MOST_MESSAGES)
    yield from thread(agent_id).filter(created_at__gt=LAST).order_by("created_at", "id")


def around(agent_id: str, message_id: str, limit: int = PAGE) -> tuple[MessagePage, bool]:
    """Return a page that ends some messages after `message_id`, and whether newer ones follow it."""
    target = thread(agent_id).filter(pk=message_id).first()
    if target is None:
        raise NotFound("There is no such message in this thread. It may have been deleted.")
    after = newer_than(agent_id, place_of(target), limit // 2)
    before = older_than(agent_id, place_of(target), limit // 2)
    return MessagePage([*before.messages, target, *after.messages], before.has_more), after.has_more


def _by(rows: QuerySet[ChatMessage], user_id: str | None) -> QuerySet[ChatMessage]:
    return rows if user_id is None else rows.filter(user_id=user_id)


def as_answer(message: ChatMessage, *, whole: bool = False) -> dict[str, Any]:
    """Return a message as machines read it; `whole`, with its secrets, for the agent that is spoken to."""
    at = message.created_at
    return {
        "id": message.pk,
        "agent_id": message.agent_id,
        "user_id": message.user_id,
        "source": message.source,
        "content": message.content if whole else without_secrets(message.content),
        "metadata": message.metadata if whole else without_secrets(message.metadata),
        "created_at": instants.to_us(at) // 1000 if isinstance(at, datetime) else str(at),
        "place": str(place_of(message)),
    }


def after_own_last_message(agent_id: str) -> MessagePlace:
    """Return the place after the agent's last own message: what follows it, it has not answered yet."""
    last = thread(agent_id).filter(source=ChatSource.AGENT).order_by("-created_at", "-id").first()
    return place_of(last) if last else MessagePlace(instants.EPOCH)


def unanswered_messages(agent_id: str, place: MessagePlace, limit: int = PAGE) -> dict[str, Any] | None:
    """Return what others said to the agent after `place`, as the answer of a wait, or None where nothing is new."""
    rows = thread(agent_id).filter(place.newer()).exclude(source=ChatSource.AGENT)
    found = list(rows.order_by("created_at", "id")[:limit])
    if not found:
        return None
    return {"messages": [as_answer(row, whole=True) for row in found], "after": str(place_of(found[-1]))}


def read_places(person: str) -> dict[str, MessagePlace]:
    """Return how far a person has read, by agent."""
    marks = ReadMark.objects.filter(person=person).values_list("agent_id", "read_at", "message_id")
    return {agent_id: MessagePlace(at, message_id) for agent_id, at, message_id in marks}


def unread(person: str, agent_ids: Iterable[str], since: datetime) -> dict[str, int]:
    """Return how many messages of others each thread holds beyond what the person has read, up to MOST_COUNTED.

    For a person who never opened a thread, messages before `since` (when they joined) do not count.
    """
    places = read_places(person)
    counts = {}
    for agent_id in agent_ids:
        place = places.get(agent_id, MessagePlace(since))
        news = thread(agent_id).filter(place.newer())
        others = news.exclude(source=ChatSource.USER, user_id=person)
        counts[agent_id] = others.order_by()[:MOST_COUNTED].count()
    return counts


def attachment_of(attachment_id: str, agent_id: str | None = None) -> ChatAttachment:
    """Return an attachment; with `agent_id`, only one of that agent's thread. Raises NotFound."""
    rows = ChatAttachment.objects.select_related("message", "stored").filter(pk=attachment_id)
    found = rows.first() if agent_id is None else rows.filter(message__agent=agent_id).first()
    if found is None:
        raise NotFound("There is no such attachment.")
    return found
