"""Many rows by one statement: COPY on PostgreSQL, or from a JSON array for few; on SQLite always from a JSON array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from django.db import connection

from coordinator.engine import is_sqlite

FEW = 10  # pairs of rows that PostgreSQL takes by one statement: with COPY one event takes a quarter longer


def insert_rows_and_return_ids(
    table: str, columns: Sequence[str], rows: Sequence[list[Any]]
) -> Sequence[int]:
    """Insert rows as `insert_rows_with_preassigned_ids` does, where `id` counts up; return their new ids."""
    if not is_sqlite():
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT nextval(pg_get_serial_sequence('{table}', 'id')) FROM generate_series(1, %s)",
                [len(rows)],
            )
            ids = [int(row[0]) for row in cursor.fetchall()]
        insert_rows_with_preassigned_ids(table, "id", columns, ids, rows)
        return ids
    with connection.cursor() as cursor:
        cursor.execute(*sqlite_insert_statement_and_parameters(table, columns, rows))
        # AUTOINCREMENT gave successive ones: nobody else can write in this transaction.
        last = int(cursor.lastrowid)
    return range(last - len(rows) + 1, last + 1)


def insert_rows_into_two_tables(
    table: str,
    columns: Sequence[str],
    rows: Sequence[tuple[list[Any], list[Any]]],
    *,
    second_table: str,
    key: str,
    second_columns: Sequence[str],
) -> Sequence[int]:
    """Insert the first of each pair as `insert_rows_and_return_ids` does, the second into `second_table`.

    The second has the id of the first as its `key`. Returns the new ids.
    """
    if is_sqlite() or len(rows) > FEW:
        ids = insert_rows_and_return_ids(table, columns, [row for row, _ in rows])
        insert_rows_with_preassigned_ids(second_table, key, second_columns, ids, (row for _, row in rows))
        return ids
    pairs = [
        [dict(zip(columns, row, strict=True)), dict(zip(second_columns, other, strict=True))]
        for row, other in rows
    ]
    first, second = ", ".join(columns), ", ".join(second_columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            WITH pair AS MATERIALIZED (
                SELECT nextval(pg_get_serial_sequence('{table}', 'id')) AS new_id, value->0 AS first, value->1 AS second
                FROM jsonb_array_elements(%s::jsonb)
            ), inserted AS (
                INSERT INTO {table} (id, {first})
                SELECT new_id, {first} FROM pair, jsonb_populate_record(NULL::{table}, pair.first)
            ), inserted_beside AS (
                INSERT INTO {second_table} ({key}, {second})
                SELECT new_id, {second} FROM pair, jsonb_populate_record(NULL::{second_table}, pair.second)
            )
            SELECT new_id FROM pair ORDER BY new_id""",
            [msgspec.json.encode(pairs).decode()],
        )
        return [int(row[0]) for row in cursor.fetchall()]


def iterate_id_ranges(table: str, key: str, step: int, after: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the first and the last id of so many rows of a table each, in order, from beyond `after` on.

    From row to row: between two ids there may be any number that no row has.
    """
    last = after
    while True:
        beyond = "" if last is None else f" WHERE {key} > {last}"
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT min({key}), max({key}) FROM (SELECT {key} FROM {table}{beyond} ORDER BY {key} LIMIT {step}) r"
            )
            first, last = cursor.fetchone()
        if first is None or last is None:
            return
        yield first, last


def insert_rows_with_preassigned_ids(
    table: str, id_column: str, columns: Sequence[str], ids: Sequence[int], rows: Iterable[list[Any]]
) -> None:
    """Insert a row for each id.

    On SQLite one statement for all: fewer steps, and so fewer hand-overs of the interpreter lock; `ids` are successive
    there, as `insert_rows_and_return_ids` gives them. Raises Django's errors on both: Django wraps no COPY by itself,
    and psycopg's own would pass for a mistake where the database is only away.
    """
    if is_sqlite():
        with connection.cursor() as cursor:
            cursor.execute(
                *sqlite_insert_statement_and_parameters(table, columns, list(rows), id_column, ids[0])
            )
        return
    into = f"COPY {table} ({id_column}, {', '.join(columns)}) FROM STDIN"
    with connection.cursor() as cursor, connection.wrap_database_errors, cursor.copy(into) as copy:
        for row_id, row in zip(ids, rows, strict=True):
            copy.write_row([row_id, *row])


def sqlite_insert_statement_and_parameters(
    table: str, columns: Sequence[str], rows: Sequence[list[Any]], id_column: str = "", first_id: int = 0
) -> tuple[str, list[Any]]:
    """Return the statement that inserts rows, and its parameters; with `id_column`, ids count up from `first_id`.

    Most events leave most columns empty, and what is not said costs nothing. So no column that may be NULL has another
    default.
    """
    by_column = zip(columns, zip(*rows, strict=True), strict=True)
    filled = [
        (name, values) for name, values in by_column if name == columns[0] or values.count(None) < len(values)
    ]
    packed = msgspec.json.encode(list(zip(*(values for _, values in filled), strict=True))).decode()
    names = [name for name, _ in filled]
    values = [f"json_extract(value, '$[{number}]')" for number in range(len(names))]
    if id_column:
        names, values = [id_column, *names], ["%s + key", *values]
    statement = f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM json_each(%s)"
    return statement, [first_id, packed] if id_column else [packed]


def rows_select_sql_and_parameters(rows: Sequence[Sequence[Any]], *types: str) -> tuple[str, list[Any]]:
    """Return a SELECT that gives `rows`, of columns of these types (`text`, `bigint`), and its parameters.

    It may be used in `INSERT … ON CONFLICT`.
    """
    packed = [msgspec.json.encode(rows).decode()]
    if is_sqlite():
        values = ", ".join(f"json_extract(value, '$[{n}]')" for n in range(len(types)))
        return f"SELECT {values} FROM json_each(%s) WHERE true", packed
    values = ", ".join(f"(value->>{n})::{kind}" for n, kind in enumerate(types))
    return f"SELECT {values} FROM jsonb_array_elements(%s::jsonb)", packed
