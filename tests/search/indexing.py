"""Indexing in tests that never commit."""

from __future__ import annotations

import pytest
from django.db import connection

from coordinator.actions import search
from coordinator.search import index, text


def index_new() -> int:
    """Index what is new, and say how many events that were. PostgreSQL tells the feed of changes at the commit."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("SET CONSTRAINTS ALL DEFERRED")
    return search.index_new_events()


def words_kept() -> list[str]:
    """Return the words that the index keeps by themselves."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT word FROM sbx_search_terms ORDER BY word")
        return [word for (word,) in cursor.fetchall()]


def pieces_kept() -> list[str]:
    """Return the words that the index finds by their pieces."""
    kept = {
        "sqlite": "SELECT word FROM sbx_search_words ORDER BY word",
        "postgresql": "SELECT word FROM sbx_search_terms WHERE cut ORDER BY word",
    }
    with connection.cursor() as cursor:
        cursor.execute(kept[connection.vendor])
        return [word for (word,) in cursor.fetchall()]


def indexed(word: str) -> list[int]:
    """Return which events the index itself has a word for, deleted ones too."""
    matches = {
        "sqlite": "SELECT rowid FROM sbx_search WHERE sbx_search MATCH %s",
        "postgresql": "SELECT event_id FROM sbx_search WHERE words @@ to_tsquery('simple', %s)",
    }
    with connection.cursor() as cursor:
        cursor.execute(matches[connection.vendor], [word])
        return [pk for (pk,) in cursor.fetchall()]


def check_index() -> None:
    """Raise DatabaseError where SQLite's index does not fit together; PostgreSQL's cannot be otherwise."""
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO sbx_search (sbx_search) VALUES ('integrity-check')")
            cursor.execute(
                "INSERT INTO sbx_search_pieces (sbx_search_pieces, rank) VALUES ('integrity-check', 1)"
            )


def let_ids_begin_anew() -> None:
    """Have the next event be the first, until the test's transaction is undone.

    A search in stretches of a few ids would walk through all that other tests have used.
    """
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'events'")
        else:
            cursor.execute("ALTER SEQUENCE events_id_seq RESTART")


def let_spans_be_seconds(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """Have the index know the time by so many seconds, not by ten minutes, so that few events make many stretches."""
    for module in (index, text):
        monkeypatch.setattr(module, "SPAN_MICROSECONDS", seconds * 1_000_000)
        monkeypatch.setattr(module, "LAST_SPAN", text.LAST_SPAN * 600)
    monkeypatch.setattr(text, "SPANS_OF_DAY", 86_400 // seconds)
