"""Reading and writing rows of our tables as they are, through SQL: they may hold what no action would write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection

from coordinator.engine.values import to_compare

AT_ONCE = 400  # values in one statement


def columns(table: str) -> list[str]:
    """Return the names of a table's columns as the database has them."""
    with connection.cursor() as cursor:
        return [column.name for column in connection.introspection.get_table_description(cursor, table)]


def select(
    table: str, names: Sequence[str], column: str, values: Sequence[Any] | None
) -> list[tuple[Any, ...]]:
    """Return columns of the rows whose `column` is one of `values`, or of all rows."""
    sql = f'SELECT {_listed(names)} FROM "{table}"'  # noqa: S608 # names of ours
    if values is None:
        return _fetched(sql, [])
    wanted = [value for value in values if isinstance(value, str | int) and "\0" not in str(value)]
    found: list[tuple[Any, ...]] = []
    for start in range(0, len(wanted), AT_ONCE):
        part = wanted[start : start + AT_ONCE]
        found += _fetched(
            f'{sql} WHERE "{column}" IN ({", ".join(["%s"] * len(part))})', list(to_compare(part))
        )
    return found


def _fetched(sql: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def insert_sql(table: str, names: Sequence[str], *, skip_known: bool = False) -> str:
    """Return an INSERT of these columns; `skip_known` leaves a row alone that is there."""
    places = ", ".join(["%s"] * len(names))
    known = " ON CONFLICT DO NOTHING" if skip_known else ""
    return f'INSERT INTO "{table}" ({_listed(names)}) VALUES ({places}){known}'  # noqa: S608 # names of ours


def update(table: str, row: dict[str, Any], key: Sequence[str]) -> None:
    """Write a row's columns over those of the row with its key."""
    names = [name for name in row if name not in key]
    sets = ", ".join(f'"{name}" = %s' for name in names)
    where = " AND ".join(f'"{name}" = %s' for name in key)
    with connection.cursor() as cursor:
        cursor.execute(
            f'UPDATE "{table}" SET {sets} WHERE {where}',  # noqa: S608 # names of ours
            [*(row[name] for name in names), *(row[name] for name in key)],
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
