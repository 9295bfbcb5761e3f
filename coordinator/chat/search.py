"""Search in all chats: messages by the words in them, newest first. actions.chat.chat_search keeps the index.

A typed word matches words that begin with it, for chats have no index of pieces; in quotes it is exact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from coordinator.chat.content import masked_message_search_text
from coordinator.engine.chat_words import build_chat_match_sql
from coordinator.models import ChatMessage
from coordinator.search.events import SnippetPiece, build_search_snippet
from coordinator.search.text import SearchTerm, normalize_search_text, parse_search_terms

MOST_HITS = 50
MOST_LOOKED_AT = 1_000  # messages whose text is compared with an exact phrase


@dataclass(frozen=True, slots=True)
class ChatHit:
    """A message that was found, with the passage that shows why."""

    message: ChatMessage
    snippet: list[SnippetPiece]


def find_chat_messages(text: str, *, agent_id: str = "", limit: int = MOST_HITS) -> list[ChatHit]:
    """Return the newest messages in which the words are; none where no word was asked for."""
    terms = parse_search_terms(text)
    with_words = [term for term in terms if term.words]
    if not with_words:
        return []
    condition, question = build_chat_match_sql([[term] for term in with_words])
    # A literal of our own and a parameter: nothing that was typed is in the statement.
    ids = f"chat_messages.id IN (SELECT message_id FROM sbx_chat_search WHERE {condition})"  # noqa: S608
    rows = ChatMessage.objects.extra(where=[ids], params=[question]).select_related("agent")  # noqa: S610
    if agent_id:
        rows = rows.filter(agent=agent_id)
    rows = rows.order_by("-created_at", "-id")
    exactly = [re.compile(term.search_term_regex_text) for term in terms if term.exact]
    if exactly:
        looked_at = rows[:MOST_LOOKED_AT]
        matching_messages = (
            row
            for row in looked_at
            if all(
                exact.search(normalize_search_text(masked_message_search_text(row.content)))
                for exact in exactly
            )
        )
        return [build_chat_hit(row, terms) for row in islice(matching_messages, limit)]
    return [build_chat_hit(row, terms) for row in rows[:limit]]


def build_chat_hit(row: ChatMessage, terms: Sequence[SearchTerm]) -> ChatHit:
    return ChatHit(row, build_search_snippet([masked_message_search_text(row.content)], terms))
