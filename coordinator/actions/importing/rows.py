"""Raw SQL access to rows of our tables, which may hold values that no action would write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection

from coordinator.engine.values import adapt_values_for_text_column

AT_ONCE = 400  # values in one statement


def read_table_columns(table: str) -> list[str]:
    """Return the names of a table's columns as the database has them."""
    with connection.cursor() as cursor:
        return [column.name for column in connection.introspection.get_table_description(cursor, table)]


def select_target_table_rows(
    table: str, names: Sequence[str], column: str, values: Sequence[Any] | None
) -> list[tuple[Any, ...]]:
    """Return columns of the rows whose `column` is one of `values`, or of all rows."""
    sql = f'SELECT {quote_column_names(names)} FROM "{table}"'  # names of ours  # noqa: S608
    if values is None:
        return execute_sql_and_fetch_all(sql, [])
    storable_values = [value for value in values if isinstance(value, str | int) and "\0" not in str(value)]
    selected: list[tuple[Any, ...]] = []
    for start in range(0, len(storable_values), AT_ONCE):
        part = storable_values[start : start + AT_ONCE]
        selected += execute_sql_and_fetch_all(
            f'{sql} WHERE "{column}" IN ({", ".join(["%s"] * len(part))})',
            list(adapt_values_for_text_column(part)),
        )
    return selected


def execute_sql_and_fetch_all(sql: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def build_insert_sql(table: str, names: Sequence[str], *, skip_known: bool = False) -> str:
    """Return an INSERT of these columns; `skip_known` leaves a row alone that is there."""
    placeholders = ", ".join(["%s"] * len(names))
    conflict_clause = " ON CONFLICT DO NOTHING" if skip_known else ""
    columns = quote_column_names(names)  # names of ours
    return f'INSERT INTO "{table}" ({columns}) VALUES ({placeholders}){conflict_clause}'  # noqa: S608


def overwrite_table_row(table: str, row: dict[str, Any], key: Sequence[str]) -> None:
    """Write a row's columns over those of the row with its key."""
    names = [name for name in row if name not in key]
    sets = ", ".join(f'"{name}" = %s' for name in names)
    where = " AND ".join(f'"{name}" = %s' for name in key)
    with connection.cursor() as cursor:
        cursor.execute(
            f'UPDATE "{table}" SET {sets} WHERE {where}',  # names of ours  # noqa: S608
            [*(row[name] for name in names), *(row[name] for name in key)],
        )


def quote_column_names(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
