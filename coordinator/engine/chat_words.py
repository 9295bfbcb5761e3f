"""The index of chat messages' words. Its rows are keyed by numbers of their own, as FTS5 wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection

from coordinator.engine import is_sqlite
from coordinator.engine.full_text import Groups, build_fts5_query, build_tsquery


def index_chat_message(message_id: str, text: str) -> None:
    """Index a message by its words, joined by blanks, unless it is indexed."""
    with connection.cursor() as cursor:
        if not is_sqlite():
            cursor.execute(
                "INSERT INTO sbx_chat_search (message_id, words) VALUES (%s, to_tsvector('simple', %s))"
                " ON CONFLICT DO NOTHING",
                [message_id, text],
            )
            return
        cursor.execute(
            "INSERT INTO sbx_chat_search (message_id) VALUES (%s) ON CONFLICT DO NOTHING RETURNING id",
            [message_id],
        )
        if row := cursor.fetchone():
            cursor.execute("INSERT INTO sbx_chat_words (rowid, body) VALUES (%s, %s)", [row[0], text])


def clear_chat_index() -> None:
    """Take all messages out of the index."""
    with connection.cursor() as cursor:
        if is_sqlite():
            cursor.execute("DELETE FROM sbx_chat_words")
        cursor.execute("DELETE FROM sbx_chat_search")


def remove_messages_from_chat_index(messages: str, parameters: Sequence[Any]) -> None:
    """Take messages out before they go: `messages` selects their ids. On PostgreSQL a foreign key takes them along."""
    if not is_sqlite():
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM sbx_chat_words WHERE rowid IN"
            f" (SELECT id FROM sbx_chat_search WHERE message_id IN ({messages}))",
            parameters,
        )


def build_chat_match_sql(groups: Groups) -> tuple[str, str]:
    """Return a condition on sbx_chat_search for groups of words, and its parameter."""
    if is_sqlite():
        condition = "id IN (SELECT rowid FROM sbx_chat_words WHERE sbx_chat_words MATCH %s)"
        return condition, build_fts5_query(groups)
    return "words @@ to_tsquery('simple', %s)", build_tsquery(groups)
