"""The feed's triggers: every insert, update and delete of a told table becomes a row of `changes` (design §4).

They are defined here alone, one line of `TOLD` a table, and put up after every migrate (post_migrate.py),
because Django's table remakes on SQLite drop them. `restore` looks first and only touches what differs.

SQLite: plain AFTER triggers. There is one writer at a time, so ids follow commit order by themselves.

PostgreSQL: deferred constraint triggers. They run at commit, after every row lock of the transaction is taken,
and begin with one transaction-level advisory lock that is held until the commit is done. So ids follow commit
order ("everything after N" never skips a row), and writers, who never wait for rows while they hold the lock,
cannot deadlock with it. (One exception: foreign keys that Django defers to the commit, as in its auth tables,
may then wait for a row. Two who delete a person and edit that person's groups in the same instant may see
PostgreSQL's deadlock error; the documents' foreign keys are all checked at once.) The lock is re-entrant and
equal NOTIFYs of one transaction are sent once, so both are simply asked for on every row. Two consequences: a
transaction that is rolled back, such as a test's, writes no changes; and a migration must not write rows of a
told table and alter that table in one transaction.

An update is told if a column changed that people or machines look at; `quiet` names those that are not worth
telling. Foreign keys fire triggers too: a deleted session tells of its runs and of its freed children, but not
of its events, of which there may be 100,000 and which its own row speaks for (no DELETE trigger).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

CHANNEL = "signalbox"
# Any number that nothing else on this database server takes an advisory lock on: "sbx feed" in ASCII.
COMMIT_ORDER_LOCK = int.from_bytes(b"sbx feed")
PREFIX = "sbx_feed_"


@dataclass(frozen=True, slots=True)
class Told:
    """One table that the feed tells of: which topic, which column names the row, which its parent."""

    table: str
    key: str
    topic: str
    parent: str | None = None
    quiet: frozenset[str] = frozenset()
    ops: tuple[str, ...] = ("insert", "update", "delete")
    # A row of this table is a part of the thing told of: whatever happens to it is an update of that thing.
    part: bool = False


TOLD = (
    Told("sessions", "session_id", "sessions"),
    Told("events", "id", "events", "session_id", ops=("insert", "update")),
    Told("runs", "run_id", "runs", "session_id"),
    Told("held_runs", "run_id", "runs", part=True),
    Told("runners", "runner_id", "runners", quiet=frozenset({"last_heartbeat"})),
    Told("permission_requests", "id", "permission_requests", "plugin_id"),
    Told("permission_votes", "request_id", "permission_requests", part=True),
    Told("mcp_servers", "name", "mcp_servers"),
    Told("mcp_access_control", "id", "grants", "server_id"),
    Told("mcp_tools", "id", "mcp_tools", "server_id"),
    Told("tool_rules", "id", "tool_rules"),
    Told("chat_messages", "id", "chat_messages", "agent_id"),
    Told("agents", "id", "agents"),
    Told("api_keys", "id", "api_keys", quiet=frozenset({"last_used_at"})),
    Told("audit_logs", "id", "audit", ops=("insert",)),
    Told("auth_user", "id", "users", quiet=frozenset({"last_login"})),
    Told("auth_user_groups", "user_id", "users", part=True),
)


@dataclass(frozen=True, slots=True)
class Trigger:
    """One trigger as it should stand: what makes it, and what is compared with what stands."""

    name: str
    table: str
    statements: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """What tells this trigger from an older one of the same name."""
        return hashlib.sha256("\n".join(self.statements).encode()).hexdigest()


def expected(connection: BaseDatabaseWrapper) -> dict[str, Trigger]:
    """Return every trigger that should stand, by name, for the told tables that exist."""
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor))
        if "changes" not in tables:
            return {}
        build = {"sqlite": _sqlite_triggers, "postgresql": _postgres_triggers}[connection.vendor]
        return {
            trigger.name: trigger
            for told in TOLD
            if told.table in tables
            for trigger in build(
                told, [c.name for c in connection.introspection.get_table_description(cursor, told.table)]
            )
        }


def standing(connection: BaseDatabaseWrapper) -> dict[str, tuple[str, str]]:
    """Return the feed's triggers in the database: by name, their table and their fingerprint."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
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
            """,
            [f"{PREFIX}%"],
        )
        bodies = {f"{PREFIX}{told.table}": _postgres_body(told) for told in TOLD}
        return {
            name: (table, mark if sound and body == bodies.get(f"{PREFIX}{table}") else "altered")
            for name, table, mark, body, sound in cursor.fetchall()
        }


def restore(connection: BaseDatabaseWrapper) -> list[str]:
    """Put up what is missing or different, take down what is no longer meant; return the names touched."""
    wanted, found = expected(connection), standing(connection)
    stale = {
        name: table
        for name, (table, fingerprint) in found.items()
        if name not in wanted or fingerprint != wanted[name].fingerprint
    }
    missing = [trigger for name, trigger in wanted.items() if name not in found or name in stale]
    if stale or missing:
        # In one transaction, so that no write falls between an old trigger and the new one, untold.
        with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
            for name, table in stale.items():
                cursor.execute(_drop(connection, name, table))
            for trigger in missing:
                _create(connection, cursor, trigger)
    return sorted({*stale, *(trigger.name for trigger in missing)})


def remove(connection: BaseDatabaseWrapper) -> None:
    """Take all of the feed's triggers down, and on PostgreSQL their functions."""
    with connection.cursor() as cursor:
        for name, (table, _) in standing(connection).items():
            cursor.execute(_drop(connection, name, table))
        if connection.vendor == "postgresql":
            for told in TOLD:
                cursor.execute(f"DROP FUNCTION IF EXISTS {PREFIX}{told.table}()")


def _create(connection: BaseDatabaseWrapper, cursor: CursorWrapper, trigger: Trigger) -> None:
    for statement in trigger.statements:
        cursor.execute(statement)
    if connection.vendor == "postgresql":
        cursor.execute(f"COMMENT ON TRIGGER {trigger.name} ON {trigger.table} IS '{trigger.fingerprint}'")


def _drop(connection: BaseDatabaseWrapper, name: str, table: str) -> str:
    return f"DROP TRIGGER {name}" + (f" ON {table}" if connection.vendor == "postgresql" else "")


def _watched(told: Told, columns: list[str]) -> list[str]:
    return [column for column in columns if column not in told.quiet]


def _sqlite_triggers(told: Told, columns: list[str]) -> Iterator[Trigger]:
    for op in told.ops:
        row = "OLD" if op == "delete" else "NEW"
        name = f"{PREFIX}{told.table}_{op}"
        watched = " OR ".join(f'OLD."{c}" IS NOT NEW."{c}"' for c in _watched(told, columns))
        yield Trigger(
            name,
            told.table,
            (
                f"CREATE TRIGGER {name} AFTER {op.upper()} ON {told.table}"
                f"{f' WHEN {watched}' if op == 'update' else ''}\nBEGIN\n"
                "    INSERT INTO changes (at, topic, key, parent, op) VALUES (\n"
                "        CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER),\n"
                f"        '{told.topic}', {row}.{told.key}, {_parent(told, row)}, '{_told_op(told, op)}');\nEND",
            ),
        )


def _postgres_triggers(told: Told, columns: list[str]) -> Iterator[Trigger]:
    function = (
        f"CREATE OR REPLACE FUNCTION {PREFIX}{told.table}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$body${_postgres_body(told)}$body$"
    )
    watched = _watched(told, columns)
    changed = " OR ".join(f'OLD."{c}" IS DISTINCT FROM NEW."{c}"' for c in watched)
    for op in told.ops:
        name = f"{PREFIX}{told.table}_{op}"
        yield Trigger(
            name,
            told.table,
            (
                function,
                f"CREATE CONSTRAINT TRIGGER {name} AFTER {op.upper()} ON {told.table} "
                f"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
                f"{f' WHEN ({changed})' if op == 'update' else ''} EXECUTE FUNCTION {PREFIX}{told.table}()",
            ),
        )


def _postgres_body(told: Told) -> str:
    """Return the function that a told table's triggers share. It names columns: a row may hold megabytes."""

    def insert(row: str, op: str) -> str:
        return (
            "INSERT INTO changes (at, topic, key, parent, op) VALUES (\n"
            "            (extract(epoch FROM clock_timestamp()) * 1000)::bigint,\n"
            f"            '{told.topic}', {row}.{told.key}, {_parent(told, row)}, {op});"
        )

    op = "'update'" if told.part else "lower(TG_OP)"
    return f"""
BEGIN
    PERFORM pg_advisory_xact_lock({COMMIT_ORDER_LOCK});
    IF TG_OP = 'DELETE' THEN
        {insert("OLD", op)}
    ELSE
        {insert("NEW", op)}
    END IF;
    PERFORM pg_notify('{CHANNEL}', '');
    RETURN NULL;
END
"""


def _parent(told: Told, row: str) -> str:
    return f"{row}.{told.parent}" if told.parent else "NULL"


def _told_op(told: Told, op: str) -> str:
    return "update" if told.part else op
