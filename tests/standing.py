"""What stands in a freshly migrated database, so that a test that commits can leave it as it was.

Django's own way, flush, neither empties unmanaged tables (`audit_logs`) nor brings back what migrations
seeded. So the rows of every table are remembered once, and after each transactional test all tables are
emptied, the remembered rows put back, and the feed's triggers and the role groups with them. Sequences go on.
"""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction

from coordinator import triggers

Rows = list[tuple[Any, ...]]
KEPT = {"django_migrations"}


class Standing:
    """The rows of a migrated database, table by table."""

    def __init__(self) -> None:
        self.rows = {table: rows for table in tables() if (rows := rows_of(table))}

    def restore(self) -> None:
        """Make the database hold these rows and no others; put triggers back."""
        triggers.restore(connection)
        stray = [table for table in filled(tables()) if table not in self.rows]
        changed = any(rows_of(table) != rows for table, rows in self.rows.items())
        emptied = tables() if changed else stray
        if not emptied:
            return
        with connection.constraint_checks_disabled(), transaction.atomic(), connection.cursor() as cursor:
            empty(cursor, emptied)
            if changed:
                for table in parents_first(list(self.rows)):
                    marks = ", ".join(["%s"] * len(self.rows[table][0]))
                    cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", self.rows[table])
            if connection.vendor == "postgresql":
                cursor.execute(
                    "SET CONSTRAINTS ALL IMMEDIATE"
                )  # the feed's triggers write now, not at commit
            cursor.execute("DELETE FROM changes")


def tables() -> list[str]:
    """Return every table whose rows are a test's business. A search index's own inner tables are not."""
    with connection.cursor() as cursor:
        names = set(connection.introspection.table_names(cursor)) - KEPT
        if connection.vendor == "sqlite":
            cursor.execute("SELECT name FROM pragma_table_list WHERE type = 'shadow'")
            names -= {name for (name,) in cursor.fetchall()}
    return sorted(names)


def filled(names: list[str]) -> list[str]:
    """Return those tables that have rows, in one query."""
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f"SELECT '{n}' WHERE EXISTS (SELECT 1 FROM {n})" for n in names))
        return [name for (name,) in cursor.fetchall()]


def rows_of(table: str) -> Rows:
    """Return all rows of a table, in an order that does not depend on where they lie."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        return sorted(cursor.fetchall(), key=repr)


def empty(cursor: Any, names: list[str]) -> None:
    """Delete every row of the tables, leaving their sequences."""
    if connection.vendor == "postgresql":
        cursor.execute(f"TRUNCATE {', '.join(names)} CASCADE")
    else:
        for name in names:
            # The search index keeps no text of its own, so FTS5 cannot delete from it row by row.
            whole = f"INSERT INTO {name} ({name}) VALUES ('delete-all')"
            cursor.execute(whole if name == "sbx_search" else f"DELETE FROM {name}")


def parents_first(names: list[str]) -> list[str]:
    """Return the tables so that each comes after those that its foreign keys name."""
    ordered: list[str] = []
    with connection.cursor() as cursor:
        parents = {
            name: {other for _, other in connection.introspection.get_relations(cursor, name).values()}
            for name in names
        }
    while len(ordered) < len(names):
        ordered += [n for n in names if n not in ordered and parents[n] & set(names) <= {n, *ordered}]
    return ordered
