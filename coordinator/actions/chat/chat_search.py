"""The search index of chat messages: updated with each message, and by housekeeping for other programs' rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction

from coordinator.chat.content import masked_message_search_text
from coordinator.engine import chat_words
from coordinator.models import ChatMessage, UnreadableText
from coordinator.search.text import INDEX_CHARACTERS, count_lexemes_fitting_in_index, split_into_index_words

STEP = 500  # messages a transaction


def index_chat_body(message: ChatMessage) -> None:
    """Make a new message findable, in the transaction that writes it."""
    search_words = [
        word[:100]
        for word in split_into_index_words(masked_message_search_text(message.content)[:INDEX_CHARACTERS])
    ]
    chat_words.index_chat_message(
        message.pk, " ".join(search_words[: count_lexemes_fitting_in_index(search_words)])
    )


def index_unindexed_chat_messages(now: datetime | None = None) -> int:  # jobs get the time  # noqa: ARG001
    """Index messages that other programs wrote; return how many. One whose id is no text cannot be named."""
    done = left_out = 0
    while rows := list(find_unindexed_messages(left_out)):
        findable = [row for row in rows if not (row.pk is None or isinstance(row.pk, UnreadableText))]
        with transaction.atomic():
            for row in findable:
                index_chat_body(row)
        done += len(findable)
        left_out += len(rows) - len(findable)
    return done


def rebuild_chat_index() -> int:
    """Empty the index and build it from all messages, in one transaction; return how many."""
    with transaction.atomic():
        chat_words.clear_chat_index()
        return index_unindexed_chat_messages()


def find_unindexed_messages(left_out: int) -> Any:
    return ChatMessage.objects.raw(
        "SELECT m.* FROM chat_messages m WHERE NOT EXISTS"
        " (SELECT 1 FROM sbx_chat_search s WHERE s.message_id = m.id) ORDER BY m.created_at, m.id LIMIT %s OFFSET %s",
        [STEP, left_out],
    )


def remove_from_chat_index(messages: Any) -> None:
    """Take messages (a queryset) out of the index before they go."""
    chat_words.remove_messages_from_chat_index(*messages.order_by().values("id").query.sql_with_params())
