"""Many rows by one statement: `INSERT … SELECT` from a JSON array on SQLite; on PostgreSQL COPY, or that for a few."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from django.db import connection

from coordinator.engine import is_sqlite, round_trips

FEW = 10  # rows that PostgreSQL takes faster by one statement than by COPY


def _insert_new(table: str, columns: Sequence[str], rows: Sequence[list[Any]]) -> Sequence[int]:
    """Insert rows into a table whose `id` counts up, as `insert` does; return their new ids."""
    if not is_sqlite():
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT nextval(pg_get_serial_sequence('{table}', 'id')) FROM generate_series(1, %s)",
                [len(rows)],
            )
            ids = [int(row[0]) for row in cursor.fetchall()]
        insert(table, "id", columns, ids, rows)
        return ids
    with connection.cursor() as cursor:
        used, packed = _packed(columns, rows)
        cursor.execute(_insert_from_json(table, used), [packed])
        # AUTOINCREMENT gave successive ones: nobody else can write in this transaction.
        last = int(cursor.lastrowid)
    return range(last - len(rows) + 1, last + 1)


def insert_new_with(
    table: str,
    columns: Sequence[str],
    rows: Sequence[tuple[list[Any], list[Any]]],
    *,
    beside: str,
    key: str,
    beside_columns: Sequence[str],
) -> Sequence[int]:
    """Insert the first of each pair as `_insert_new` does, the second into `beside` with that id as its `key`.

    Returns the new ids. On PostgreSQL a few rows are one statement: each round trip costs more than the rows, and COPY
    alone takes two.
    """
    if is_sqlite() or len(rows) > FEW:
        ids = _insert_new(table, columns, [row for row, _ in rows])
        insert(beside, key, beside_columns, ids, (row for _, row in rows))
        return ids
    given = [
        [dict(zip(columns, row, strict=True)), dict(zip(beside_columns, other, strict=True))]
        for row, other in rows
    ]
    statement = _insert_both(table, tuple(columns), beside, key, tuple(beside_columns))
    with round_trips.planning_cursor() as cursor:
        cursor.execute(statement, [msgspec.json.encode(given).decode()])
        return [int(row[0]) for row in cursor.fetchall()]


@functools.cache
def _insert_both(
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


def stretches(table: str, key: str, step: int, after: int | None = None) -> Iterator[tuple[int, int]]:
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


def insert(
    table: str, id_column: str, columns: Sequence[str], ids: Sequence[int], rows: Iterable[list[Any]]
) -> None:
    """Insert a row for each id. On SQLite one statement for all: fewer steps, and so fewer hand-overs of the
    interpreter lock; `ids` are successive there, as `_insert_new` gives them. Raises Django's errors on both: Django
    wraps no COPY by itself, and psycopg's own would pass for a mistake where the database is only away."""
    with connection.cursor() as cursor:
        if is_sqlite():
            used, packed = _packed(columns, list(rows))
            cursor.execute(_insert_from_json(table, used, id_column), [ids[0], packed])
            return
        into = f"COPY {table} ({id_column}, {', '.join(columns)}) FROM STDIN"
        with connection.wrap_database_errors, cursor.copy(into) as copy:
            for row_id, row in zip(ids, rows, strict=True):
                copy.write_row([row_id, *row])


def _packed(columns: Sequence[str], rows: Sequence[list[Any]]) -> tuple[tuple[str, ...], str]:
    """Return the columns in which any row holds a value, and the rows' values in these as JSON.

    Most events leave most columns empty, and taking a value out of JSON is what costs. So no column that may be NULL
    has another default.
    """
    filled = [
        (name, values)
        for name, values in zip(columns, zip(*rows, strict=True), strict=True)
        if name == columns[0] or values.count(None) < len(values)
    ]
    used = tuple(name for name, _ in filled)
    return used, msgspec.json.encode(list(zip(*(values for _, values in filled), strict=True))).decode()


@functools.lru_cache(maxsize=256)  # rows choose the columns
def _insert_from_json(table: str, columns: tuple[str, ...], id_column: str = "") -> str:
    """Return the statement; with `id_column`, its first parameter is the first row's id."""
    values = [f"json_extract(value, '$[{n}]')" for n in range(len(columns))]
    if id_column:
        columns, values = (id_column, *columns), ["%s + key", *values]
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM json_each(%s)"


@functools.cache
def rows_of_json(*types: str) -> str:
    """Return a SELECT that reads a parameter, a JSON array of arrays, as rows of these types (`text`, `bigint`)."""
    if is_sqlite():
        values = ", ".join(f"json_extract(value, '$[{n}]')" for n in range(len(types)))
        return f"SELECT {values} FROM json_each(%s) WHERE true"
    values = ", ".join(f"(value->>{n})::{kind}" for n, kind in enumerate(types))
    return f"SELECT {values} FROM jsonb_array_elements(%s::jsonb)"


def texts_of_json() -> str:
    """Return a SELECT that reads a parameter, a JSON array of texts, as rows."""
    source = "json_each(%s)" if is_sqlite() else "jsonb_array_elements_text(%s::jsonb)"
    return f"SELECT value FROM {source}"
