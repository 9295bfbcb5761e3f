"""The index's progress: the one row of `sbx_search_progress`, and the events in `sbx_search_stale`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import connection, transaction


class IndexProgress(NamedTuple):
    """`followed`: the change up to which events are indexed. `swept`: the event up to which a sweep through all of
    them has come, or None where none is under way. `untidy`: words may be kept that no event has any longer.
    `rebuilt`: how often the index was emptied. `cut_upto`: the word up to which kept words are cut into pieces, or
    None where all are; `words_cut` and `words_to_cut` say how many of how many. `filed`: the event up to
    which is noted what calls touched, or None where all of it is.
    """

    followed: int = 0
    swept: int | None = 0
    untidy: bool = True
    rebuilt: int = 0
    cut_upto: str | None = ""
    words_cut: int = 0
    words_to_cut: int = 0
    filed: int | None = 0


def load_index_progress() -> IndexProgress:
    """Return how far the index has come; nowhere, where the row is missing."""
    progress_rows = fetch_query_rows(
        f"SELECT {', '.join(IndexProgress._fields)} FROM sbx_search_progress WHERE id = 1"  # noqa: S608
    )
    return IndexProgress(*progress_rows[0]) if progress_rows else IndexProgress()


def save_index_progress(**columns: int | bool | str | None) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("INSERT INTO sbx_search_progress (id, swept) VALUES (1, 0) ON CONFLICT DO NOTHING")
        cursor.execute(
            f"UPDATE sbx_search_progress SET {', '.join(f'{name} = %s' for name in columns)} WHERE id = 1",  # noqa: S608
            list(columns.values()),
        )


def mark_indexed_events_stale(ids: Sequence[int]) -> None:
    """Have the index forget these events' words and read them again."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO sbx_search_stale VALUES (%s) ON CONFLICT DO NOTHING", [(pk,) for pk in ids]
        )


def fetch_query_rows(statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, list(parameters))
        result_rows: list[tuple[Any, ...]] = cursor.fetchall()
        return result_rows


def fetch_query_ids(statement: str, parameters: Sequence[Any] = ()) -> list[int]:
    """Return the first column of what a query finds."""
    return [row[0] for row in fetch_query_rows(statement, parameters)]


def build_sql_placeholders(values: Sequence[object]) -> str:
    return ", ".join(["%s"] * len(values))
