"""Many rows by one statement: on PostgreSQL COPY, or `INSERT … SELECT` from a JSON array for a few; on SQLite that for
many, and for one the plain `INSERT`, which takes two thirds of the time."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from django.db import connection

from coordinator.engine import is_sqlite

FEW = 10  # rows that PostgreSQL takes faster by one statement than by COPY
LARGEST = 2**63 - 1  # SQLite's largest integer; a larger one in JSON it keeps as a float
WRITTEN_OUT = 4  # rows that SQLite gets as they are, not as JSON; each number is a statement to remember


def insert_new_rows(table: str, columns: Sequence[str], rows: Sequence[list[Any]]) -> Sequence[int]:
    """Insert rows into a table whose `id` counts up, as `insert_rows_with_ids` does; return their new ids."""
    if not is_sqlite():
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT nextval(pg_get_serial_sequence('{table}', 'id')) FROM generate_series(1, %s)",
                [len(rows)],
            )
            ids = [int(row[0]) for row in cursor.fetchall()]
        insert_rows_with_ids(table, "id", columns, ids, rows)
        return ids
    with connection.cursor() as cursor:
        cursor.execute(*sqlite_insert_statement(table, columns, rows))
        # AUTOINCREMENT gave successive ones: nobody else can write in this transaction.
        last = int(cursor.lastrowid)
    return range(last - len(rows) + 1, last + 1)


def insert_row_pairs(
    table: str,
    columns: Sequence[str],
    rows: Sequence[tuple[list[Any], list[Any]]],
    *,
    beside: str,
    key: str,
    beside_columns: Sequence[str],
) -> Sequence[int]:
    """Insert the first of each pair as `insert_new_rows` does, the second into `beside` with that id as its `key`.

    Returns the new ids. On PostgreSQL a few rows are one statement: each round trip costs more than the rows, and COPY
    alone takes two.
    """
    if is_sqlite() or len(rows) > FEW:
        ids = insert_new_rows(table, columns, [row for row, _ in rows])
        insert_rows_with_ids(beside, key, beside_columns, ids, (row for _, row in rows))
        return ids
    given = [
        [dict(zip(columns, row, strict=True)), dict(zip(beside_columns, other, strict=True))]
        for row, other in rows
    ]
    statement = pair_insert_sql(table, tuple(columns), beside, key, tuple(beside_columns))
    with connection.cursor() as cursor:
        cursor.execute(statement, [msgspec.json.encode(given).decode()])
        return [int(row[0]) for row in cursor.fetchall()]


@functools.cache
def pair_insert_sql(
    table: str, columns: tuple[str, ...], beside: str, key: str, beside_columns: tuple[str, ...]
) -> str:
    first, second = ", ".join(columns), ", ".join(beside_columns)
    return f"""
        WITH given AS MATERIALIZED (
            SELECT nextval(pg_get_serial_sequence('{table}', 'id')) AS new_id, value->0 AS first, value->1 AS second
            FROM jsonb_array_elements(%s::jsonb)
        ), inserted AS (
            INSERT INTO {table} (id, {first})
            SELECT new_id, {first} FROM given, jsonb_populate_record(NULL::{table}, given.first)
        ), inserted_beside AS (
            INSERT INTO {beside} ({key}, {second})
            SELECT new_id, {second} FROM given, jsonb_populate_record(NULL::{beside}, given.second)
        )
        SELECT new_id FROM given ORDER BY new_id"""


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


def insert_rows_with_ids(
    table: str, id_column: str, columns: Sequence[str], ids: Sequence[int], rows: Iterable[list[Any]]
) -> None:
    """Insert a row for each id.

    On SQLite one statement for all: fewer steps, and so fewer hand-overs of the interpreter lock; `ids` are
    successive there, as `insert_new_rows` gives them. Raises Django's errors on both: Django wraps no COPY by
    itself, and psycopg's own would pass for a mistake where the database is only away.
    """
    if is_sqlite():
        with connection.cursor() as cursor:
            cursor.execute(*sqlite_insert_statement(table, columns, list(rows), id_column, ids[0]))
        return
    into = f"COPY {table} ({id_column}, {', '.join(columns)}) FROM STDIN"
    with connection.cursor() as cursor, connection.wrap_database_errors, cursor.copy(into) as copy:
        for row_id, row in zip(ids, rows, strict=True):
            copy.write_row([row_id, *row])


def sqlite_insert_statement(
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
    used = tuple(name for name, _ in filled)
    ids = [first_id] if id_column else []
    only = rows[0] if len(rows) == 1 else None
    if only is not None and all(type(value) is not int or -LARGEST <= value <= LARGEST for value in only):
        return single_row_insert_sql(table, used, id_column), [*ids, *(values[0] for _, values in filled)]
    packed = msgspec.json.encode(list(zip(*(values for _, values in filled), strict=True))).decode()
    return json_rows_insert_sql(table, used, id_column), [*ids, packed]


@functools.lru_cache(maxsize=256)  # rows choose the columns
def single_row_insert_sql(table: str, columns: tuple[str, ...], id_column: str = "") -> str:
    """Return the statement; with `id_column`, its first parameter is the row's id."""
    columns = (id_column, *columns) if id_column else columns
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"


@functools.lru_cache(maxsize=256)
def json_rows_insert_sql(table: str, columns: tuple[str, ...], id_column: str = "") -> str:
    """Return the statement; with `id_column`, its first parameter is the first row's id."""
    values = [f"json_extract(value, '$[{n}]')" for n in range(len(columns))]
    if id_column:
        columns, values = (id_column, *columns), ["%s + key", *values]
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM json_each(%s)"


def rows_select_sql(rows: Sequence[Sequence[Any]], *types: str) -> tuple[str, list[Any]]:
    """Return a SELECT or VALUES that gives `rows`, of columns of these types (`text`, `bigint`), and its parameters.

    It may stand in `INSERT … ON CONFLICT`. Few rows are written out on SQLite, which makes them faster than from JSON.
    """
    if is_sqlite() and 0 < len(rows) <= WRITTEN_OUT:
        return values_clause_sql(len(rows), len(types)), [value for row in rows for value in row]
    return json_rows_select_sql(*types), [msgspec.json.encode(rows).decode()]


@functools.cache
def values_clause_sql(rows: int, columns: int) -> str:
    row = f"({', '.join(['%s'] * columns)})"
    return f"VALUES {', '.join([row] * rows)}"


@functools.cache
def json_rows_select_sql(*types: str) -> str:
    if is_sqlite():
        values = ", ".join(f"json_extract(value, '$[{n}]')" for n in range(len(types)))
        return f"SELECT {values} FROM json_each(%s) WHERE true"
    values = ", ".join(f"(value->>{n})::{kind}" for n, kind in enumerate(types))
    return f"SELECT {values} FROM jsonb_array_elements(%s::jsonb)"
