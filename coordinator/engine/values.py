"""Conversion of values for columns and statements."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from coordinator.engine import is_sqlite
from coordinator.lib import instants


def instant_microseconds_sql(column: str, on: BaseDatabaseWrapper = connection) -> str:
    """Return SQL for the microseconds since 1970 that a column's ISO text names, NULL where it names none.

    By the grammar of lib.instants; for Django's cursor, so percent signs are doubled.
    """
    return (
        instants.sqlite_text_to_microseconds_sql(column).replace("%", "%%")
        if is_sqlite(on)
        else f"sbx_instant_us({column})"
    )


def cast_to_text_sql(column: str) -> str:
    """Return SQL for what a column holds as text: in SQLite another program may have stored a BLOB, or a number."""
    return f"CAST({column} AS TEXT)"


def adapt_values_for_text_column(values: Sequence[str | int]) -> list[str | int]:
    """Return foreign values to compare a text column with: PostgreSQL does not compare text with integers."""
    return list(values) if is_sqlite() else [str(value) for value in values]


def cast_to_bytes_sql(column: str) -> str:
    """Return SQL for a column's bytes as they are: a foreign program's text on SQLite need not be UTF-8."""
    return f"CAST({column} AS BLOB)" if is_sqlite() else column


def case_insensitive_like_operator() -> str:
    """Return the operator that compares with a pattern, whatever the letters' case (SQLite: of ASCII letters)."""
    return "LIKE" if is_sqlite() else "ILIKE"
