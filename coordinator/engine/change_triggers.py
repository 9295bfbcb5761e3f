"""The triggers that write `changes`, and the comparison of current with wanted triggers (tables: feed.triggers).

SQLite: plain AFTER triggers. There is one writer at a time, so ids follow commit order by themselves.

PostgreSQL: deferred constraint triggers. They run at commit, after every row lock of the transaction is taken,
and begin with one transaction-level advisory lock that is held until the commit is done. So ids follow commit
order ("everything after N" never skips a row), and writers, who never wait for rows while they hold the lock,
cannot deadlock with it. (One exception: foreign keys that Django defers to the commit, as in its auth tables,
may then wait for a row. Two who delete a person and edit that person's groups in the same instant may see
PostgreSQL's deadlock error; the documents' foreign keys are all checked at once.) The lock is re-entrant and
equal NOTIFYs of one transaction are sent once, so both are simply asked for on every row. Two consequences: a
transaction that is rolled back, such as a test's, writes no changes; and a migration must not write rows of a
table in the feed and alter that table in one transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from coordinator.engine import is_sqlite
from coordinator.engine.commits import CHANNEL

# Any number that nothing else on this database server takes an advisory lock on: "sbx feed" in ASCII.
COMMIT_ORDER_LOCK = int.from_bytes(b"sbx feed")
PREFIX = "sbx_feed_"


@dataclass(frozen=True, slots=True)
class FeedTable:
    """One table that the feed reports: which topic, which column names the row, which its parent."""

    table: str
    key: str
    topic: str
    parent: str | None = None
    quiet: frozenset[str] = frozenset()
    ops: tuple[str, ...] = ("insert", "update", "delete")
    # A row of this table is a part of the reported object: whatever happens to it is an update of that object.
    part: bool = False


@dataclass(frozen=True, slots=True)
class FeedTrigger:
    """One wanted trigger: what makes it, and what is compared with the current one."""

    name: str
    table: str
    statements: tuple[str, ...]

    @property
    def trigger_fingerprint(self) -> str:
        """What distinguishes this trigger from an older one of the same name."""
        return hashlib.sha256("\n".join(self.statements).encode()).hexdigest()


def feed_trigger_fingerprints_by_name(
    on: BaseDatabaseWrapper, tables: Iterable[FeedTable]
) -> dict[str, tuple[str, str]]:
    """Return the feed's triggers in the database: by name, their table and their fingerprint."""
    with on.cursor() as cursor:
        if is_sqlite(on):
            cursor.execute(
                "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE %s",
                [f"{PREFIX}%"],
            )
            return {
                name: (table, hashlib.sha256(sql.encode()).hexdigest())
                for name, table, sql in cursor.fetchall()
            }
        # The comment holds what made the trigger; the body is compared too, for hands that edit functions.
        cursor.execute(
            """
            SELECT t.tgname, c.relname, obj_description(t.oid, 'pg_trigger'), p.prosrc,
                t.tgenabled = 'O' AND t.tgdeferrable AND t.tginitdeferred
            FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
            WHERE t.tgname LIKE %s AND c.relnamespace = current_schema()::regnamespace
                AND t.tgparentid = 0 -- not those that a part of a table has of it
            """,
            [f"{PREFIX}%"],
        )
        bodies = {f"{PREFIX}{feed_table.table}": postgres_trigger_body(feed_table) for feed_table in tables}
        return {
            name: (table, mark if sound and body == bodies.get(f"{PREFIX}{table}") else "altered")
            for name, table, mark, body, sound in cursor.fetchall()
        }


def list_table_columns(cursor: CursorWrapper, table: str) -> list[str]:
    """Return the names of a table's columns, in their order; Django's introspection parses the table's SQL for more."""
    cursor.execute(f"SELECT * FROM {table} LIMIT 0")
    return [column[0] for column in cursor.description]


def create_feed_trigger(on: BaseDatabaseWrapper, cursor: CursorWrapper, trigger: FeedTrigger) -> None:
    """Put a trigger up."""
    for statement in trigger.statements:
        cursor.execute(statement)
    if not is_sqlite(on):
        cursor.execute(
            f"COMMENT ON TRIGGER {trigger.name} ON {trigger.table} IS '{trigger.trigger_fingerprint}'"
        )


def drop_feed_trigger(on: BaseDatabaseWrapper, cursor: CursorWrapper, name: str, table: str) -> None:
    """Take a trigger down."""
    cursor.execute(f"DROP TRIGGER {name}" if is_sqlite(on) else f"DROP TRIGGER {name} ON {table}")


def drop_trigger_functions(
    on: BaseDatabaseWrapper, cursor: CursorWrapper, tables: Iterable[FeedTable]
) -> None:
    """Take down what PostgreSQL's triggers of these tables ran."""
    if not is_sqlite(on):
        for table in tables:
            cursor.execute(f"DROP FUNCTION IF EXISTS {PREFIX}{table.table}()")


def build_feed_triggers(
    on: BaseDatabaseWrapper, feed_table: FeedTable, columns: list[str]
) -> Iterator[FeedTrigger]:
    """Yield the triggers of a table in the feed that has these columns."""
    return (iterate_sqlite_feed_triggers if is_sqlite(on) else build_postgres_triggers)(feed_table, columns)


def columns_published_on_update(feed_table: FeedTable, columns: list[str]) -> list[str]:
    return [column for column in columns if column not in feed_table.quiet]


def iterate_sqlite_feed_triggers(feed_table: FeedTable, columns: list[str]) -> Iterator[FeedTrigger]:
    for op in feed_table.ops:
        row = "OLD" if op == "delete" else "NEW"
        name = f"{PREFIX}{feed_table.table}_{op}"
        watched = " OR ".join(
            f'OLD."{c}" IS NOT NEW."{c}"' for c in columns_published_on_update(feed_table, columns)
        )
        yield FeedTrigger(
            name,
            feed_table.table,
            (
                f"CREATE TRIGGER {name} AFTER {op.upper()} ON {feed_table.table}"
                f"{f' WHEN {watched}' if op == 'update' else ''}\nBEGIN\n"
                "    INSERT INTO changes (at, topic, key, parent, op) VALUES (\n"
                "        CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER),\n"
                # SQLite takes NULL in a TEXT PRIMARY KEY: a program that stores such a row must not fail for our sake.
                f"        '{feed_table.topic}', coalesce({row}.{feed_table.key}, ''),"
                f" {parent_column_sql(feed_table, row)},"
                f" '{published_operation_name(feed_table, op)}');\nEND",
            ),
        )


def build_postgres_triggers(feed_table: FeedTable, columns: list[str]) -> Iterator[FeedTrigger]:
    function = (
        f"CREATE OR REPLACE FUNCTION {PREFIX}{feed_table.table}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$body${postgres_trigger_body(feed_table)}$body$"
    )
    watched = columns_published_on_update(feed_table, columns)
    changed = " OR ".join(f'OLD."{c}" IS DISTINCT FROM NEW."{c}"' for c in watched)
    for op in feed_table.ops:
        name = f"{PREFIX}{feed_table.table}_{op}"
        yield FeedTrigger(
            name,
            feed_table.table,
            (
                function,
                f"CREATE CONSTRAINT TRIGGER {name} AFTER {op.upper()} ON {feed_table.table} "
                f"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
                f"{f' WHEN ({changed})' if op == 'update' else ''} EXECUTE FUNCTION {PREFIX}{feed_table.table}()",
            ),
        )


def postgres_trigger_body(feed_table: FeedTable) -> str:
    """Return the function that the triggers of a feed table share. It names columns: a row may hold megabytes."""

    def insert_change(row: str, op: str) -> str:
        return (
            "INSERT INTO changes (at, topic, key, parent, op) VALUES (\n"
            "            (extract(epoch FROM clock_timestamp()) * 1000)::bigint,\n"
            f"            '{feed_table.topic}', {row}.{feed_table.key}, {parent_column_sql(feed_table, row)}, {op});"
        )

    op = "'update'" if feed_table.part else "lower(TG_OP)"
    return f"""
BEGIN
    PERFORM pg_advisory_xact_lock({COMMIT_ORDER_LOCK});
    IF TG_OP = 'DELETE' THEN
        {insert_change("OLD", op)}
    ELSE
        {insert_change("NEW", op)}
    END IF;
    PERFORM pg_notify('{CHANNEL}', '');
    RETURN NULL;
END
"""


def parent_column_sql(feed_table: FeedTable, row: str) -> str:
    return f"{row}.{feed_table.parent}" if feed_table.parent else "NULL"


def published_operation_name(feed_table: FeedTable, op: str) -> str:
    return "update" if feed_table.part else op
