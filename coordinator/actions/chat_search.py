"""Keeps the words of chat messages findable: with each message, and by housekeeping for other programs' rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connection, transaction

from coordinator.chat_content import words_of as said
from coordinator.models import ChatMessage
from coordinator.search_text import INDEX_CHARACTERS, words_of

STEP = 500  # messages a transaction


def index(message: ChatMessage) -> None:
    """Make a new message findable, in the transaction that writes it."""
    body = " ".join(word[:100] for word in words_of(said(message.content)[:INDEX_CHARACTERS]))
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "INSERT INTO sbx_chat_search (message_id, words) VALUES (%s, to_tsvector('simple', %s))"
                " ON CONFLICT DO NOTHING",
                [message.pk, body],
            )
            return
        cursor.execute(
            "INSERT INTO sbx_chat_search (message_id) VALUES (%s) ON CONFLICT DO NOTHING RETURNING id",
            [message.pk],
        )
        if row := cursor.fetchone():
            cursor.execute("INSERT INTO sbx_chat_words (rowid, body) VALUES (%s, %s)", [row[0], body])


def index_new(now: datetime | None = None) -> int:  # noqa: ARG001 # a job is told the time
    """Index messages that other programs wrote; return how many."""
    done = 0
    while rows := list(_missing()):
        with transaction.atomic():
            for row in rows:
                index(row)
        done += len(rows)
    return done


def rebuild() -> int:
    """Empty the index and build it from all messages, in one transaction; return how many."""
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("DELETE FROM sbx_chat_words")
        cursor.execute("DELETE FROM sbx_chat_search")
        return index_new()


def _missing() -> Any:
    return ChatMessage.objects.raw(
        "SELECT m.* FROM chat_messages m WHERE NOT EXISTS"
        " (SELECT 1 FROM sbx_chat_search s WHERE s.message_id = m.id) ORDER BY m.created_at LIMIT %s",
        [STEP],
    )


def forget(messages: Any) -> None:
    """Take messages (a queryset) out of the index before they go; on PostgreSQL their rows go along by themselves."""
    if connection.vendor != "sqlite":
        return
    ids, parameters = messages.order_by().values("id").query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM sbx_chat_words WHERE rowid IN (SELECT id FROM sbx_chat_search WHERE message_id IN ({ids}))",  # noqa: S608 # the ORM's own SQL
            parameters,
        )
