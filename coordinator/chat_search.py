"""What is found in all chats: messages by the words in them, newest first. The index is actions.chat_search's."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from coordinator.chat_content import words_of as said
from coordinator.models import ChatMessage
from coordinator.search import Piece, snippet
from coordinator.search_index import fts5_query, tsquery
from coordinator.search_text import terms_of

MOST = 50


@dataclass(frozen=True, slots=True)
class ChatHit:
    """A message that was found, with the passage that shows why."""

    message: ChatMessage
    snippet: list[Piece]


def find(text: str, *, agent_id: str = "", limit: int = MOST) -> list[ChatHit]:
    """Return the newest messages in which the words are; none where no word was asked for."""
    terms = terms_of(text)
    if not terms:
        return []
    if connection.vendor == "sqlite":
        found = "id IN (SELECT rowid FROM sbx_chat_words WHERE sbx_chat_words MATCH %s)"
        question = fts5_query([[term] for term in terms])
    else:
        found, question = "words @@ to_tsquery('simple', %s)", tsquery([[term] for term in terms])
    # A literal of our own and a parameter: nothing that was typed is in the statement.
    ids = f"chat_messages.id IN (SELECT message_id FROM sbx_chat_search WHERE {found})"  # noqa: S608
    rows = ChatMessage.objects.extra(where=[ids], params=[question]).select_related("agent")  # noqa: S610
    if agent_id:
        rows = rows.filter(agent=agent_id)
    return [
        ChatHit(row, snippet([said(row.content)], terms))
        for row in rows.order_by("-created_at", "-id")[:limit]
    ]
