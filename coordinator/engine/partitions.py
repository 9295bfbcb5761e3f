"""The events table in parts on PostgreSQL: ranges of ids, each about a month's worth. SQLite keeps one table.

The key is the id, since the schema's primary key must contain it and knows nothing else; months are not told by ids,
so a part is as large as a month at the pace of its time. Ids count up, so what is old lies in the first parts, and
where a session or a day lies is known as a range of ids: PostgreSQL then leaves the other parts out of its plans.

What hangs on an event is cut at the same ids (TABLES): a part of `events` and the parts that belong to it are made
together and dropped together. Their foreign keys lead from part to part, not from table to table, for PostgreSQL
would have to look through a whole table for each part that goes. What lies beyond the last part, or has an id that
nobody expects, is taken by a part of its own, the default; it should be empty.

Whoever fills a database by other ways than ours (a mover, a restore): copy into the parents, by their names, with any
ids; nothing else has to be known. Call `actions.partitions.make_room` first, or what is beyond the parts lands in the
default, and set the counter of `events` afterwards. `sbx_session_spans` (engine.event_spans) is kept by a trigger on
the rows of `event_context` and need not be copied, nor need `sbx_event_marks`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db import DatabaseError, connection, transaction
from django.db.backends.utils import CursorWrapper

from coordinator.engine import attached, is_sqlite
from coordinator.engine.locks import limit_lock_wait

# Each with the column that holds the event's id. Parents come first.
TABLES = {
    "events": "id",
    "event_context": "event_id",
    "sbx_search": "event_id",
    "sbx_file_touches": "event_id",
}
GRAIN = 100_000  # ids: parts begin and end at multiples of it
FIRST, LAST = -(2**63), 2**63 - 1  # ids that a part without a bound begins and ends with
LOCK_WAIT_SECONDS = 0.3  # others' statements queue behind such a lock; less than until a deadlock is seen
NO_TABLE = "42P01"  # PostgreSQL's word for it


class EventPartition(NamedTuple):
    """One range of ids, from `first` until before `before`; `number` names its tables."""

    number: int
    first: int
    before: int

    def table_name(self, table: str) -> str:
        """Return the name of this part of a table."""
        return f"{table}_p{self.number}"


def default_partition_name(table: str) -> str:
    """Return the name of the part that takes what no other does."""
    return f"{table}_default"


def has_partitioned_events() -> bool:
    """Say whether the events table is in parts."""
    if is_sqlite():
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass('events')")
        row = cursor.fetchone()
        return bool(row and row[0])


def list_partitions() -> list[EventPartition]:
    """Return the parts in order, the default left out; none where the table is whole."""
    if is_sqlite():
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i"
            " JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass('events')"
        )
        # PostgreSQL tells no bound of a part that another process has dropped while it was looking.
        told = [(name, bound) for name, bound in cursor.fetchall() if bound is not None]
        found = [parse_partition(name, bound) for name, bound in told if bound != "DEFAULT"]
    return sorted(found, key=lambda part: part.first)


def parse_partition(name: str, bound: str) -> EventPartition:
    first, before = re.findall(r"\(([^)]*)\)", bound)
    return EventPartition(int(name.rpartition("_p")[2]), parse_id_bound(first), parse_id_bound(before))


def parse_id_bound(text: str) -> int:
    return {"MINVALUE": FIRST, "MAXVALUE": LAST}.get(text) or int(text.strip("'"))


def last_assigned_event_id() -> int:
    """Return the last id that was given to an event, by PostgreSQL; 0 on SQLite."""
    if is_sqlite():
        return 0
    with connection.cursor() as cursor:
        sequence = event_id_sequence(cursor)
        cursor.execute(f"SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM {sequence}")
        return int(cursor.fetchone()[0])


def event_id_sequence(cursor: CursorWrapper) -> str:
    """Return the name of what gives events their ids."""
    cursor.execute("SELECT pg_get_serial_sequence('events', 'id')")
    return str(cursor.fetchone()[0])


@contextmanager
def open_altering_cursor() -> Iterator[CursorWrapper]:
    """Give a cursor in a transaction that waits for locks only so long that others hardly notice.

    Raises OperationalError (`locks.may_come_free`) where one is not to be had, and then nothing was done.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        limit_lock_wait(LOCK_WAIT_SECONDS)
        yield cursor


def lock_partition_parents(cursor: CursorWrapper, mode: str, keys: str = "SHARE ROW EXCLUSIVE") -> None:
    """Lock the parents, and with `keys` what their foreign keys lead to, in the order in which others come by.

    Who indexes events reads them and their sessions; who writes events holds sessions first, then draws ids.
    """
    cursor.execute(f"LOCK TABLE ONLY sbx_search, ONLY sbx_file_touches IN {mode} MODE")
    cursor.execute(f"LOCK TABLE sbx_files, sessions IN {keys} MODE")
    for table in ("events", "event_context"):
        cursor.execute(f"LOCK TABLE ONLY {table} IN {mode} MODE")


def create_partition(part: EventPartition) -> None:
    """Make a part. Nothing of its range may lie in the default."""
    with open_altering_cursor() as cursor:
        lock_partition_parents(cursor, "SHARE UPDATE EXCLUSIVE")
        create_partition_tables(cursor, part)


def create_partition_tables(cursor: CursorWrapper, part: EventPartition) -> None:
    for table in TABLES:
        create_table_like(cursor, table, part.table_name(table))
    attach_partition(cursor, part)
    add_event_foreign_keys(cursor, part.table_name)


def create_table_like(cursor: CursorWrapper, table: str, new: str, how: str = "") -> None:
    """Make an empty table of the same columns, with the same rights of others; its keys come with its place."""
    cursor.execute(f"CREATE TABLE {new} (LIKE {table} INCLUDING DEFAULTS) {how}")
    attached.grant_exact_rights(cursor, new, attached.list_table_rights(cursor, table))


def attach_partition(cursor: CursorWrapper, part: EventPartition) -> None:
    first = "MINVALUE" if part.first == FIRST else str(part.first)
    for table in TABLES:
        cursor.execute(
            f"ALTER TABLE {table} ATTACH PARTITION {part.table_name(table)} FOR VALUES FROM ({first}) TO"
            f" ({part.before})"
        )


def add_event_foreign_keys(cursor: CursorWrapper, name_of: Any) -> None:
    """Let what hangs on the events of a part go with them."""
    for table in ("event_context", "sbx_file_touches"):
        cursor.execute(
            f"ALTER TABLE {name_of(table)} ADD CONSTRAINT {name_of(table)}_event_id_fkey"
            f" FOREIGN KEY (event_id) REFERENCES {name_of('events')} (id) ON DELETE CASCADE"
        )


def create_default_partitions(cursor: CursorWrapper) -> None:
    for table in TABLES:
        cursor.execute(f"CREATE TABLE {default_partition_name(table)} PARTITION OF {table} DEFAULT")
        attached.grant_exact_rights(
            cursor, default_partition_name(table), attached.list_table_rights(cursor, table)
        )
    add_event_foreign_keys(cursor, default_partition_name)


def drop_partition(part: EventPartition, before: int) -> bool:
    """Drop a part and all that hangs on its events, at once and for good; deletes no row, so nothing is told.

    Return False, and drop nothing, where an event was received at `before` (ms) or later: while we waited for the part.
    """
    with open_altering_cursor() as cursor:
        lock_partition_parents(cursor, "ACCESS EXCLUSIVE", keys="ACCESS SHARE")
        newest = newest_partition_receipt(part)
        if newest is not None and newest >= before:
            return False
        cursor.execute(f"DROP TABLE {', '.join(part.table_name(table) for table in TABLES)}")
    return True


def is_missing_table_error(problem: DatabaseError) -> bool:
    """Say whether a statement failed because its table is not there: another process has dropped the part."""
    return getattr(problem.__cause__, "sqlstate", None) == NO_TABLE


def count_default_events(first: int = FIRST, before: int = LAST) -> int:
    """Return how many events from `first` until before `before` lie in the default."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT count(*) FROM {default_partition_name('events')} WHERE id >= %s AND id < %s",
            [first, before],
        )
        return int(cursor.fetchone()[0])


def analyze_event_tables() -> None:
    """Gather what plans over several parts are made by; PostgreSQL does so by itself for each part alone."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ANALYZE events, event_context, sbx_file_touches")


def list_partition_sessions(part: EventPartition, after: str, most: int) -> list[str]:
    """Return sessions with events in a part, those beyond `after` in order, at most so many."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
WITH RECURSIVE found (session_id, number) AS (
    SELECT min(session_id), 1 FROM {part.table_name("event_context")} WHERE session_id > %s
    UNION ALL
    SELECT (SELECT min(session_id) FROM {part.table_name("event_context")} WHERE session_id > found.session_id),
        number + 1
    FROM found WHERE found.session_id IS NOT NULL AND number < %s
)
SELECT session_id FROM found WHERE session_id IS NOT NULL""",
            [after, most],
        )
        return [row[0] for row in cursor.fetchall()]


def newest_partition_receipt(part: EventPartition) -> int | None:
    """Return when the newest event of a part was received (ms); None where it has none."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT max(received_at) FROM {part.table_name('event_context')}")
        found = cursor.fetchone()[0]
        return None if found is None else int(found)


def count_partition_events(part: EventPartition) -> tuple[int, int]:
    """Return how many events a part holds, and how many of them have a context: the same, once they were adopted."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT (SELECT count(*) FROM {part.table_name('events')}), (SELECT count(*) FROM"
            f" {part.table_name('event_context')})"
        )
        events, contexts = cursor.fetchone()
        return int(events), int(contexts)


def partition_size_bytes(part: EventPartition) -> int:
    """Return the bytes of a part, its indexes and what hangs on its events."""
    with connection.cursor() as cursor:
        names = [part.table_name(table) for table in TABLES]
        cursor.execute(
            "SELECT sum(pg_total_relation_size(to_regclass(name))) FROM unnest(%s::text[]) AS name", [names]
        )
        return int(cursor.fetchone()[0] or 0)


def create_partition_from_default(part: EventPartition) -> int:
    """Make a part and move what the default holds of its range into it; return how many events that were.

    Writers wait meanwhile, some ten microseconds a row.
    """
    with open_altering_cursor() as cursor:
        lock_partition_parents(cursor, "SHARE ROW EXCLUSIVE")
        moved = 0
        for table, key in TABLES.items():
            default, new = default_partition_name(table), part.table_name(table)
            create_table_like(cursor, table, new)
            cursor.execute(
                f"INSERT INTO {new} SELECT * FROM {default} WHERE {key} >= %s AND {key} < %s",
                [part.first, part.before],
            )
            moved = max(moved, cursor.rowcount)
        for table, key in reversed(TABLES.items()):
            cursor.execute(
                f"DELETE FROM {default_partition_name(table)} WHERE {key} >= %s AND {key} < %s",
                [part.first, part.before],
            )
        attach_partition(cursor, part)
        add_event_foreign_keys(cursor, part.table_name)
    return moved


def partition_bounds_condition(low: int, high: int, *columns: str) -> str:
    """Return conditions, to append to others, that name the parts in which ids from `low` until before `high` lie.

    No closer than that: they are to leave out the other parts, not to lead to rows. Nothing on SQLite.
    """
    if is_sqlite():
        return ""
    first, before = low // GRAIN * GRAIN, -(-high // GRAIN) * GRAIN
    return "".join(f" AND {column} >= {first} AND {column} < {before}" for column in columns)
