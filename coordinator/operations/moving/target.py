"""The PostgreSQL database that is moved to, through the default connection, and how far the move has come in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, transaction

from coordinator.actions.upkeep import partitions as parts_of_events
from coordinator.engine import moved
from coordinator.engine.locks import hold_migration_lock
from coordinator.feed import triggers
from coordinator.operations.moving.rows import Row
from coordinator.operations.moving.tables import OURS, MovedTable

STATE, COPIED, KEYS = moved.STATE, f"{OURS}_copied", f"{OURS}_keys"
NOT_BEGUN = "not begun"
# Their triggers of our own would make rows of what is copied, or delete some.
WITH_TRIGGERS = ("audit_logs", "audit_leaves", "event_context")
ROOM = 1_000_000  # ids of events for which there are parts before the copy begins, beyond the last
AT_ONCE = 1_000
READ_AT_ONCE = 2_000


class MoveState(NamedTuple):
    """How far a move has come: the writes of SQLite up to `note_move_progress`, of those that are noted since
    `noting`, are here.

    `copied`: every row was, once; what came later is noted. `moved_at` is set once it was switched to this
    database.
    """

    move_id: str
    source: str
    noting: str | None
    noted: int | None
    copied: bool
    moved_at: str | None
    audit_id: int | None


def load_move_state() -> MoveState | None:
    """Return the state of the move into this database; None where there was none."""
    if not moved.has_move_begun_here():
        return None
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(MoveState._fields)} FROM {STATE}")
        row = cursor.fetchone()
        return MoveState(*row) if row else None


def explain_unusable_target(move_id: str | None) -> str | None:
    """Return why nothing can be moved here; None where it can: it is empty, or has the same move, interrupted."""
    known = load_move_state()
    if known is None:
        return (
            "It has tables already, and a move needs an empty database. Make one (CREATE DATABASE …), or drop and make "
            "this one again if nothing in it is needed."
            if connection.introspection.table_names()
            else None
        )
    if known.move_id in {move_id, NOT_BEGUN}:
        return None
    what = "was moved to it" if known.moved_at else "began to move to it"
    return f"Another database ({known.source}) {what}. Name an empty database."


def create_target_tables(source: str) -> None:
    """Make the tables that are not there yet, and before them a note of what they are for."""
    if load_move_state() is None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                f"CREATE TABLE {STATE} (move_id text NOT NULL, source text NOT NULL, noting text, noted bigint,"
                " copied boolean NOT NULL DEFAULT false,"
                " moved_at text, audit_id bigint)"
            )
            cursor.execute(f"INSERT INTO {STATE} VALUES (%s, %s)", [NOT_BEGUN, source])
    with hold_migration_lock():
        call_command("migrate", interactive=False, verbosity=0)


def note_move_progress(upto: int | None = None, **columns: Any) -> None:
    """Note how far the move has come."""
    columns |= {} if upto is None else {"noted": upto}
    with connection.cursor() as cursor:
        names = ", ".join(f"{name} = %s" for name in columns)
        cursor.execute(f"UPDATE {STATE} SET {names}", list(columns.values()))


def empty_target_tables(tables: Sequence[MovedTable], last_event: int) -> None:
    """Empty the tables, seeds and all, for a copy from the beginning."""
    parts_of_events.create_parts_up_to(last_event + ROOM)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {KEYS} (on_table text, name text, definition text)")
        cursor.execute(f"DROP TABLE IF EXISTS {COPIED}")
        cursor.execute(
            f"CREATE TABLE {COPIED} (name text PRIMARY KEY, upto text NOT NULL, rows bigint NOT NULL)"
        )
        cursor.execute(f"TRUNCATE {', '.join(table.name for table in tables)} CASCADE")


def drop_target_constraints() -> None:
    """Take foreign keys and triggers away, so that rows can come in any order and make no others."""
    with transaction.atomic(), connection.cursor() as cursor:
        triggers.drop_feed_triggers(connection)
        for table in WITH_TRIGGERS:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE contype = 'f' AND conparentid = 0 AND connamespace = 'public'::regnamespace"
        )
        for table, name, definition in cursor.fetchall():
            cursor.execute(f"INSERT INTO {KEYS} VALUES (%s, %s, %s)", [table, name, definition])
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")


def restore_foreign_keys() -> None:
    """Put the foreign keys back, which looks at all rows."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT on_table, name, definition FROM {KEYS} ORDER BY on_table, name")
        keys = cursor.fetchall()
    for table, name, definition in keys:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
                cursor.execute(f"DELETE FROM {KEYS} WHERE on_table = %s AND name = %s", [table, name])
        except DatabaseError as problem:
            raise CommandError(
                f"{table} has rows that refer to rows which do not exist: {format_one_line_error(problem)}"
            ) from None
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE event_context ENABLE TRIGGER USER")  # keeps where sessions' events lie


def enable_target_triggers() -> None:
    """Enable the triggers again: from here on this database records its changes for the feed."""
    with connection.cursor() as cursor:
        for table in WITH_TRIGGERS:
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
    triggers.restore_triggers(connection)


def load_copy_progress(table: MovedTable) -> tuple[Row | None, int]:
    """Return the last key of a table that was copied, and how many rows were."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT upto, rows FROM {COPIED} WHERE name = %s", [table.name])
        found = cursor.fetchone()
    return (tuple(json.loads(found[0])), found[1]) if found else (None, 0)


def copy_rows_and_note(table: MovedTable, rows: Sequence[Row], upto: Row) -> None:
    """Copy rows, and note how far that came, in one transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        copy_rows_with_cursor(cursor, table, rows)
        cursor.execute(
            f"INSERT INTO {COPIED} AS c VALUES (%s, %s, %s)"
            " ON CONFLICT (name) DO UPDATE SET upto = excluded.upto, rows = c.rows + excluded.rows",
            [table.name, json.dumps(upto), len(rows)],
        )


def copy_new_rows(table: MovedTable, rows: Sequence[Row]) -> None:
    """Copy rows that are not there."""
    with connection.cursor() as cursor:
        copy_rows_with_cursor(cursor, table, rows)


def delete_target_rows(table: MovedTable, keys: Sequence[Row]) -> None:
    """Delete the rows of the keys."""
    if not keys:
        return
    where, parameters = build_key_condition(table, keys)
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {table.name} WHERE {where}", parameters)


def upsert_target_rows(table: MovedTable, rows: Sequence[Row]) -> None:
    """Insert rows, or update those that are there."""
    marks = ", ".join(["%s"] * len(table.column_names))
    others = [name for name in table.column_names if name not in table.key]
    update = ", ".join(f'"{name}" = excluded."{name}"' for name in others)
    what = f"UPDATE SET {update}" if update else "NOTHING"
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {table.name} ({table.quoted_columns}) VALUES ({marks}) ON CONFLICT"
            f" ({table.quoted_key_columns}) DO {what}",
            list(rows),
        )


def copy_rows_with_cursor(cursor: Any, table: MovedTable, rows: Sequence[Row]) -> None:
    try:
        with (
            connection.wrap_database_errors,
            cursor.copy(f"COPY {table.name} ({table.quoted_columns}) FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)
    except DatabaseError as problem:
        raise type(problem)(describe_copy_failure(table, rows, problem)) from problem


def describe_copy_failure(table: MovedTable, rows: Sequence[Row], problem: Exception) -> str:
    """Name the row that COPY stopped at: PostgreSQL says which line it was."""
    context = getattr(getattr(problem.__cause__, "diag", None), "context", "") or ""
    line = re.search(r"line (\d+)", context)
    at = int(line[1]) - 1 if line else len(rows)
    key = f" {', '.join(map(repr, table.extract_row_key(rows[at])))}" if at < len(rows) else ""
    return f"{table.name}{key}: {format_one_line_error(problem)}"


def count_target_rows(table: MovedTable) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table.name}")
        return int(cursor.fetchone()[0])


def iterate_target_rows(table: MovedTable, beside: int | None = None) -> Iterator[Row]:
    """Yield all rows; without the one whose key is the number `beside`."""
    where = "" if beside is None else f" WHERE {table.quoted_key_columns} <> {beside}"
    with transaction.atomic(), connection.chunked_cursor() as cursor:
        cursor.execute(f"SELECT {table.quoted_columns} FROM {table.name}{where}")
        while some := cursor.fetchmany(READ_AT_ONCE):
            yield from some


def iterate_target_rows_by_key(table: MovedTable, keys: Sequence[Row]) -> Iterator[Row]:
    """Yield those rows of the keys that are there."""
    for start in range(0, len(keys), AT_ONCE):
        where, parameters = build_key_condition(table, keys[start : start + AT_ONCE])
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {table.quoted_columns} FROM {table.name} WHERE {where}", parameters)
            yield from cursor.fetchall()


def load_target_keys(table: MovedTable) -> set[Row]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {table.quoted_key_columns} FROM {table.name}")
        return set(cursor.fetchall())


def build_key_condition(table: MovedTable, keys: Sequence[Row]) -> tuple[str, list[Any]]:
    columns = list(zip(*keys, strict=True))
    arrays = ", ".join(f"%s::{kind}[]" for kind in table.key_types)
    return f"({table.quoted_key_columns}) IN (SELECT * FROM unnest({arrays}))", [
        list(column) for column in columns
    ]


def set_target_sequences(tables: Sequence[MovedTable], given: dict[str, int]) -> None:
    """Have every sequence continue after the last id that SQLite gave, even one that no row has any longer."""
    with connection.cursor() as cursor:
        for table in tables:
            if table.key != ("id",) or table.key_types[0] not in {"bigint", "integer"}:
                continue
            cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [table.name])
            (sequence,) = cursor.fetchone()
            if sequence is None:
                continue
            cursor.execute(
                f"SELECT setval(%s, greatest(1, m.last, %s), m.last > 0 OR %s > 0)"
                f" FROM (SELECT coalesce(max(id), 0) AS last FROM {table.name}) m",
                [sequence, given.get(table.name, 0), given.get(table.name, 0)],
            )
        # Positions in the feed that clients were told lie before what is told from here on: they load afresh.
        cursor.execute(
            "SELECT setval(pg_get_serial_sequence('changes', 'id'), %s)", [given.get("changes", 0) + 1]
        )


def analyze_target() -> None:
    """Have PostgreSQL gather the statistics by which it plans (ANALYZE)."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def check_constraints_now() -> None:
    """Have what PostgreSQL checks at the commit checked here."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def mark_move_finished(now: datetime, audit_id: int) -> None:
    """Note that this database is the one from now on, and forget how it was filled."""
    note_move_progress(moved_at=now.isoformat(), audit_id=audit_id)


def drop_move_tables() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {COPIED}, {KEYS}")


def format_one_line_error(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).strip().splitlines()]
    detail = next((line.removeprefix("DETAIL:").strip() for line in lines if line.startswith("DETAIL:")), "")
    return f"{lines[0] if lines else type(problem).__name__}. {detail}".strip()
