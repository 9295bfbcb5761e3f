"""Putting whole tables into parts (engine.partitions), and making them whole again, on PostgreSQL.

What stands is read from the database and given to the new parents, so that keys and indexes are those of the table
as it was, whatever migrations made of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from coordinator.engine import attached, is_sqlite
from coordinator.engine.attached import TableRight
from coordinator.engine.event_spans import TRIGGER
from coordinator.engine.partitions import (
    FIRST,
    TABLES,
    EventPartition,
    attach_partition,
    create_default_partitions,
    create_partition_tables,
    create_table_like,
    default_partition_name,
    event_id_sequence,
    last_assigned_event_id,
    list_partitions,
    lock_partition_parents,
    open_altering_cursor,
)

# The name of the constraint by which PostgreSQL knows, without a look, what a table holds.
LIMIT = "sbx_below"


def find_id_limit() -> int | None:
    """Return the id below which all of the whole tables' ids must stay, where `set_id_limit` has said so."""
    if is_sqlite():
        return None
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT substring(pg_get_constraintdef(oid) from '([0-9]+)')::bigint FROM pg_constraint"
            " WHERE conname = %s AND conrelid = to_regclass('events')",
            [LIMIT],
        )
        row = cursor.fetchone()
        return int(row[0]) if row else None


def list_unmovable_attachments() -> list[str]:
    """Name what hangs on the whole tables that would not follow them into parts."""
    with connection.cursor() as cursor:
        return attached.list_attached_objects(cursor, list(TABLES))


def set_id_limit(before: int) -> None:
    """Have the whole tables refuse ids from `before` on: what they hold is then known once it was looked at."""
    with open_altering_cursor() as cursor:
        lock_partition_parents(cursor, "ACCESS EXCLUSIVE", keys="ACCESS SHARE")
        for table, key in TABLES.items():
            cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {LIMIT} CHECK ({key} < {before}) NOT VALID")


def drop_id_limit() -> None:
    """Have the whole tables take any id again."""
    with open_altering_cursor() as cursor:
        lock_partition_parents(cursor, "ACCESS EXCLUSIVE", keys="ACCESS SHARE")
        for table in TABLES:
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {LIMIT}")


def validate_id_limit(table: str) -> None:
    """Look whether all rows of a table are below its limit; others read and write meanwhile."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {LIMIT}")


def convert_to_partitions(size: int) -> None:
    """Make the whole tables, which `validate_id_limit` has looked at, the first part of parts; more of `size` follow.

    Moves no row and looks at none. The triggers of the feed have to be put up again in the same transaction.
    """
    before = find_id_limit()
    if before is None:
        raise ValueError("The tables have no limit.")
    with open_altering_cursor() as cursor:
        divide_tables(cursor, before, size)
        for table in TABLES:
            cursor.execute(
                f"ALTER TABLE {EventPartition(0, FIRST, before).table_name(table)} DROP CONSTRAINT {LIMIT}"
            )


def partition_empty_tables(size: int) -> None:
    """Put empty tables into parts: the first three, and the default."""
    with open_altering_cursor() as cursor:
        divide_tables(cursor, size, size)


def divide_tables(cursor: CursorWrapper, before: int, size: int) -> None:
    """Make the whole tables the first part, of ids below `before`; two more of `size` follow, and the default."""
    # The keys' triggers on what they lead to are replaced by their parents' own.
    lock_partition_parents(cursor, "ACCESS EXCLUSIVE", keys="ACCESS EXCLUSIVE")
    replace_tables_by_parents(cursor, before)
    create_default_partitions(cursor)
    for number in (1, 2):
        create_partition_tables(
            cursor, EventPartition(number, before + (number - 1) * size, before + number * size)
        )
    cursor.execute(TRIGGER)


def replace_tables_by_parents(cursor: CursorWrapper, before: int) -> None:
    """Make each table the first part of a parent that takes its name, its keys, its indexes and its counter."""
    first, last = EventPartition(0, FIRST, before), last_assigned_event_id()
    rights = attached.list_table_rights(cursor, event_id_sequence(cursor))
    for table, key in TABLES.items():
        keys, indexes = list_table_keys(cursor, table), list_table_indexes(cursor, table)
        drop_table_triggers(cursor, table)
        part = first.table_name(table)
        for name, _ in keys:
            cursor.execute(
                f"ALTER TABLE {table} RENAME CONSTRAINT {name} TO {partition_object_name(part, name)}"
            )
        for name, _ in indexes:
            cursor.execute(f"ALTER INDEX {name} RENAME TO {partition_object_name(part, name)}")
        if table == "events":
            cursor.execute("ALTER TABLE events ALTER id DROP IDENTITY")
        cursor.execute(f"ALTER TABLE {table} RENAME TO {part}")
        create_table_like(cursor, part, table, f"PARTITION BY RANGE ({key})")
        for name, definition in keys:
            if "REFERENCES events" not in definition:
                cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
        for name, using in indexes:
            cursor.execute(f"CREATE INDEX {name} ON {table} {using}")
    create_event_id_sequence(cursor, last, rights)
    attach_partition(cursor, first)


def create_event_id_sequence(cursor: CursorWrapper, last: int, rights: Sequence[TableRight]) -> None:
    """Have events get their ids from a new sequence, from the one after `last` on."""
    cursor.execute(
        f"ALTER TABLE events ALTER id ADD GENERATED BY DEFAULT AS IDENTITY (START WITH {last + 1})"
    )
    attached.grant_exact_rights(cursor, event_id_sequence(cursor), rights, kind="SEQUENCE")


def drop_table_triggers(cursor: CursorWrapper, table: str) -> None:
    """Drop the table's triggers, which its parent is to have instead (feed.triggers.restore)."""
    cursor.execute(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal AND tgparentid = 0",
        [table],
    )
    for (name,) in cursor.fetchall():
        cursor.execute(f"DROP TRIGGER {name} ON {table}")


def merge_partitions() -> None:
    """Make the tables whole again, as they were before `partition_empty_tables`: all rows in one, under the old names.

    Takes as long as it takes to copy all rows but those of the first part; nobody can write meanwhile.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        last, first, *others = last_assigned_event_id(), *list_partitions()
        lock_partition_parents(cursor, "ACCESS EXCLUSIVE", keys="ACCESS EXCLUSIVE")
        rights = {table: attached.list_table_rights(cursor, table) for table in TABLES}
        of_the_ids = attached.list_table_rights(cursor, event_id_sequence(cursor))
        names = {
            table: (list_table_keys(cursor, table), list_table_indexes(cursor, table)) for table in TABLES
        }
        children = {table: map_partition_indexes(cursor, table, first.table_name(table)) for table in TABLES}
        for table in TABLES:
            drop_table_triggers(cursor, table)
            cursor.execute(f"ALTER TABLE {table} DETACH PARTITION {first.table_name(table)}")
            cursor.execute(f"ALTER TABLE {first.table_name(table)} DROP CONSTRAINT IF EXISTS {LIMIT}")
            for name in [*(part.table_name(table) for part in others), default_partition_name(table)]:
                cursor.execute(f"INSERT INTO {first.table_name(table)} SELECT * FROM {name}")
        cursor.execute(f"DROP TABLE {', '.join(TABLES)}")
        for table in TABLES:
            cursor.execute(f"ALTER TABLE {first.table_name(table)} RENAME TO {table}")
            attached.grant_exact_rights(cursor, table, rights[table])
            rename_table_keys(cursor, table, names[table][0])
            for name, _ in names[table][1]:
                cursor.execute(f"ALTER INDEX {children[table][name]} RENAME TO {name}")
        create_event_id_sequence(cursor, last, of_the_ids)


def map_partition_indexes(cursor: CursorWrapper, table: str, part: str) -> dict[str, str]:
    """Return what a part's index is called, by its parent's name."""
    cursor.execute(
        "SELECT p.relname, c.relname FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent"
        " JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_index of_p ON of_p.indexrelid = p.oid"
        " JOIN pg_index of_c ON of_c.indexrelid = c.oid"
        " WHERE of_p.indrelid = to_regclass(%s) AND of_c.indrelid = to_regclass(%s)",
        [table, part],
    )
    return dict(cursor.fetchall())


def rename_table_keys(cursor: CursorWrapper, table: str, wanted: Sequence[tuple[str, str]]) -> None:
    """Give a table's keys these names, by their definitions; the one to its events gets the name it once had."""
    named = {definition: name for name, definition in wanted}
    for name, definition in list_table_keys(cursor, table):
        new = named.get(definition, f"{table}_event_id_fkey")
        if new != name:
            cursor.execute(f"ALTER TABLE {table} RENAME CONSTRAINT {name} TO {new}")


def partition_object_name(part: str, name: str) -> str:
    """Return a name for what a part has, from the parent's name for it."""
    return f"{part}_{name}"[:63]


def list_table_keys(cursor: CursorWrapper, table: str) -> list[tuple[str, str]]:
    cursor.execute(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE conrelid = to_regclass(%s) AND contype IN ('p', 'u', 'f') ORDER BY contype DESC, conname",
        [table],
    )
    return list(cursor.fetchall())


def list_table_indexes(cursor: CursorWrapper, table: str) -> list[tuple[str, str]]:
    """Return the indexes that belong to no key: the name, and the definition from USING on."""
    cursor.execute(
        "SELECT i.relname, pg_get_indexdef(i.oid) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid"
        " WHERE x.indrelid = to_regclass(%s)"
        " AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.oid) ORDER BY i.relname",
        [table],
    )
    return [(name, definition[definition.index("USING ") :]) for name, definition in cursor.fetchall()]
