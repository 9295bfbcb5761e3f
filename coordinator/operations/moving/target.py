"""The PostgreSQL database that is moved to, through the default connection."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, transaction

from coordinator.engine import database_move_state
from coordinator.engine.locks import hold_migration_lock
from coordinator.operations import startup
from coordinator.operations.moving.rows import Row
from coordinator.operations.moving.tables import MovedTable

READ_AT_ONCE = 2_000  # rows
OLDER_MOVE = "sbx_move_keys"  # a table of moves by versions that copied while a server ran


class ForeignKey(NamedTuple):
    """A foreign key as PostgreSQL defines it."""

    table: str
    name: str
    definition: str


def require_empty_or_interrupted_target() -> None:
    """Raise CommandError unless tables can be made here: it is empty, or holds a move that was interrupted."""
    names = connection.introspection.table_names()
    database_label = startup.describe_database()
    with connection.cursor() as cursor:
        cursor.execute("SELECT has_schema_privilege('public', 'CREATE'), current_setting('server_encoding')")
        may_create, encoding = cursor.fetchone()
    if not may_create:
        raise CommandError(
            f"The user of {database_label} may not make tables there. Make it the owner of the database."
        )
    if encoding != "UTF8":
        raise CommandError(f"{database_label} has the encoding {encoding}. Make one with ENCODING 'UTF8'.")
    if OLDER_MOVE in names and database_move_state.is_move_incomplete():
        raise CommandError(
            f"A move to {database_label} was begun by an older version. Drop and make the database again, "
            "and run this again."
        )
    if names and not database_move_state.is_move_incomplete():
        raise CommandError(
            f"{database_label} has tables already, and a move needs an empty database. Make one "
            "(CREATE DATABASE …), or drop and make this one again if nothing in it is needed."
        )


def record_incomplete_move() -> None:
    """Note that what is here is incomplete: no server starts on it."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {database_move_state.STATE} (moved_at text)")
        cursor.execute(
            f"INSERT INTO {database_move_state.STATE} SELECT NULL"
            f" WHERE NOT EXISTS (SELECT 1 FROM {database_move_state.STATE})"
        )


def clear_incomplete_move_record() -> None:
    """Remove the note of `record_incomplete_move`; part of the transaction that copied everything."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {database_move_state.STATE}")


def migrate_target_database() -> None:
    """Make the tables that are not there yet."""
    with hold_migration_lock():
        call_command("migrate", interactive=False, verbosity=0)


def empty_tables_and_drop_constraints(tables: Sequence[MovedTable]) -> list[ForeignKey]:
    """Empty the tables and take triggers and foreign keys away, so that rows come in any order and make no others.

    Part of the transaction that copies everything. Return the foreign keys, for `restore_constraints`.
    """
    names = [table.name for table in tables]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        cursor.execute(f"TRUNCATE {', '.join(names)} CASCADE")
        for name in names:
            cursor.execute(f"ALTER TABLE {name} DISABLE TRIGGER USER")
        cursor.execute(
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE contype = 'f' AND conparentid = 0 AND connamespace = 'public'::regnamespace"
        )
        keys = [ForeignKey(*row) for row in cursor.fetchall()]
        for key in keys:
            cursor.execute(f"ALTER TABLE {key.table} DROP CONSTRAINT {key.name}")
    return keys


def restore_constraints(tables: Sequence[MovedTable], keys: Sequence[ForeignKey]) -> None:
    """Put foreign keys and triggers back. Raises CommandError where rows refer to rows that do not exist."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # the checks of foreign keys are planned by what there is now
        for key in keys:
            try:
                cursor.execute(f"ALTER TABLE {key.table} ADD CONSTRAINT {key.name} {key.definition}")
            except DatabaseError as problem:
                raise CommandError(
                    f"{key.table} has rows that refer to rows which do not exist: {format_one_line_error(problem)}"
                ) from None
        for table in tables:
            cursor.execute(f"ALTER TABLE {table.name} ENABLE TRIGGER USER")


def write_rows_to_target_table(table: MovedTable, rows: Iterable[Row]) -> None:
    """Copy rows by COPY, which sends each as it comes. Raises DatabaseError that names the row it stopped at."""
    columns = f"{table.name} ({table.quoted_columns})"
    with connection.cursor() as cursor:
        try:
            with connection.wrap_database_errors, cursor.copy(f"COPY {columns} FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        except DatabaseError as problem:
            raise type(problem)(describe_copy_failure(table, problem)) from problem


def describe_copy_failure(table: MovedTable, problem: Exception) -> str:
    """Say at which row of the table COPY stopped: PostgreSQL says which line it was."""
    context = getattr(getattr(problem.__cause__, "diag", None), "context", "") or ""
    line = re.search(r"line (\d+)", context)
    row_label = f" (row {line[1]} of those that were sent)" if line else ""
    return f"{table.name}{row_label}: {format_one_line_error(problem)}"


def iterate_target_rows(table: MovedTable) -> Iterator[Row]:
    """Yield all rows, reading some at a time."""
    with transaction.atomic(), connection.chunked_cursor() as cursor:
        cursor.execute(f"SELECT {table.quoted_columns} FROM {table.name}")
        while some := cursor.fetchmany(READ_AT_ONCE):
            yield from some


def set_target_sequences(last_ids: Mapping[str, int]) -> None:
    """Have every sequence continue after the last id that SQLite gave, even one that no row has any longer."""
    with connection.cursor() as cursor:
        for table, column, sequence in list_sequences(cursor):
            last = last_ids.get(table, 0)
            cursor.execute(
                f"SELECT setval(%s, greatest(1, m.last, %s), greatest(m.last, %s) > 0)"
                f' FROM (SELECT coalesce(max("{column}"), 0) AS last FROM {table}) m',
                [sequence, last, last],
            )
        # Positions in the feed that clients received are before those sent from here on: they load afresh.
        cursor.execute(
            "SELECT setval(pg_get_serial_sequence('changes', 'id'), %s)", [last_ids.get("changes", 0) + 1]
        )


def list_sequences(cursor: Any) -> list[tuple[str, str, str]]:
    """Return every column that counts by itself: its table, its name and its sequence."""
    cursor.execute(
        "SELECT t.relname, a.attname, s.oid::regclass::text FROM pg_class s"
        " JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = s.oid AND d.deptype IN ('a', 'i')"
        " JOIN pg_class t ON d.refclassid = 'pg_class'::regclass AND t.oid = d.refobjid"
        " JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid"
        " WHERE s.relkind = 'S' AND t.relnamespace = 'public'::regnamespace AND NOT t.relispartition"
    )
    return list(cursor.fetchall())


def format_one_line_error(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).strip().splitlines()]
    detail = next((line.removeprefix("DETAIL:").strip() for line in lines if line.startswith("DETAIL:")), "")
    return f"{lines[0] if lines else type(problem).__name__}. {detail}".strip()
