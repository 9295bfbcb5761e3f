"""What stands in a freshly migrated database, so that a test that commits can leave it as it was.

Django's own way, flush, neither empties unmanaged tables (`audit_logs`) nor brings back what migrations
seeded. So the rows of every table are remembered once, and after each transactional test all tables are
emptied, the remembered rows put back, and the feed's triggers and the role groups with them. Sequences go on.
"""

from __future__ import annotations

from typing import Any

from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from coordinator.engine import locks
from coordinator.feed import triggers

Rows = list[tuple[Any, ...]]
KEPT = {"django_migrations"}
# What a server at work goes on with: its feed, and of which hours it has counted the calls.
OF_THE_SERVER = {"changes", "counted_hours"}
# What it does again and again, where nothing went wrong. A row that is put back would be done at once.
PERIODIC_JOBS = "subject = '' AND attempts = 0"
TRIES = 3


class Standing:
    """The rows of a migrated database, table by table. `on` is a connection to it, Django's own if none is given."""

    def __init__(self, on: BaseDatabaseWrapper | None = None) -> None:
        self.on: Any = on or connection
        self.tables = tables(self.on)
        self.parents = {table: parents_of(self.on, table) for table in self.tables}
        self.rows = {table: rows for table in self.tables if (rows := rows_of(self.on, table))}

    def restore(self, *, keep_changes: bool = False) -> None:
        """Make the database hold these rows and no others; put triggers back.

        `keep_changes` leaves the feed and its triggers as they are, and OF_THE_SERVER: for a server that goes on with
        the database. Its housekeeping may be at these tables: where the two deadlock, PostgreSQL ends one, and we
        begin anew.
        """
        for left in reversed(range(TRIES)):
            try:
                self._restore(keep_changes=keep_changes)
                return
            except OperationalError as problem:
                if not left or not locks.is_retryable_lock_error(problem):
                    raise

    def _restore(self, *, keep_changes: bool) -> None:
        if not keep_changes:
            triggers.synchronize_feed_triggers(self.on)
        left_alone = OF_THE_SERVER if keep_changes else set()
        if keep_changes and self._are_jobs_periodic():
            left_alone = left_alone | {"jobs"}
        names = [table for table in self.tables if table not in left_alone]
        stray = [table for table in filled(self.on, names) if table not in self.rows]
        altered = [t for t, rows in self.rows.items() if t not in left_alone and rows_of(self.on, t) != rows]
        if not stray and not altered:
            return
        emptied = names if altered and not keep_changes else [*stray, *altered]
        with self.on.constraint_checks_disabled(), Committed(self.on), self.on.cursor() as cursor:
            self._fill(cursor, emptied, by_row=keep_changes)
            if not keep_changes:
                cursor.execute("DELETE FROM changes")

    def _are_jobs_periodic(self) -> bool:
        with self.on.cursor() as cursor:
            cursor.execute(
                f"SELECT count(*), coalesce(sum(CASE WHEN {PERIODIC_JOBS} THEN 1 ELSE 0 END), 0) FROM jobs"
            )
            jobs, periodic = cursor.fetchone()
        return bool(jobs == periodic >= len(self.rows.get("jobs", [])))

    def _fill(self, cursor: Any, emptied: list[str], *, by_row: bool) -> None:
        if not by_row and is_superuser(self.on, cursor):
            # Without triggers and foreign keys. TRUNCATE would make a new file for each table and index.
            cursor.execute("SET LOCAL session_replication_role = replica")
            cursor.execute("; ".join(f"DELETE FROM {name}" for name in emptied))
        else:
            emptied = self._empty(cursor, emptied)
        for table in parents_first(self.parents, [t for t in self.rows if t in emptied]):
            marks = ", ".join(["%s"] * len(self.rows[table][0]))
            cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", self.rows[table])
        if self.on.vendor == "postgresql":
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # the feed's triggers write now, not at commit

    def _empty(self, cursor: Any, names: list[str]) -> list[str]:
        """Delete every row of the tables and of those that name them, leaving their sequences; return which."""
        names = with_children(self.parents, names)
        for name in reversed(parents_first(self.parents, names)):
            # The search indexes keep no text of their own, so FTS5 cannot delete from them row by row.
            whole = f"INSERT INTO {name} ({name}) VALUES ('delete-all')"
            is_index = name in ("sbx_search", "sbx_search_pieces") and self.on.vendor == "sqlite"
            cursor.execute(whole if is_index else f"DELETE FROM {name}")
        return names


class Committed:
    """A transaction on a connection that Django need not know by an alias."""

    def __init__(self, on: BaseDatabaseWrapper) -> None:
        self.on = on

    def __enter__(self) -> None:
        self.on.set_autocommit(False)

    def __exit__(self, problem: type[BaseException] | None, *_: object) -> None:
        (self.on.rollback if problem else self.on.commit)()
        self.on.set_autocommit(True)


def is_superuser(on: Any, cursor: Any) -> bool:
    """Say whether this is PostgreSQL, for somebody who may switch its triggers off."""
    if on.vendor != "postgresql":
        return False
    cursor.execute("SELECT current_setting('is_superuser')")
    return bool(cursor.fetchone()[0] == "on")


def tables(on: Any) -> list[str]:
    """Return every table whose rows are a test's business. A search index's own inner tables are not."""
    with on.cursor() as cursor:
        names = set(on.introspection.table_names(cursor)) - KEPT
        if on.vendor == "sqlite":
            cursor.execute("SELECT name FROM pragma_table_list WHERE type = 'shadow'")
            names -= {name for (name,) in cursor.fetchall()}
    return sorted(names)


def filled(on: Any, names: list[str]) -> list[str]:
    """Return those tables that have rows, in one query."""
    with on.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f"SELECT '{n}' WHERE EXISTS (SELECT 1 FROM {n})" for n in names))
        return [name for (name,) in cursor.fetchall()]


def rows_of(on: Any, table: str) -> Rows:
    """Return all rows of a table, in an order that does not depend on where they lie."""
    with on.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        return sorted(cursor.fetchall(), key=repr)


def with_children(parents: dict[str, set[str]], names: list[str]) -> list[str]:
    """Return the tables and all whose foreign keys lead to them: emptying one takes the others' rows along."""
    found = set(names)
    while more := {name for name, named in parents.items() if named & found} - found:
        found |= more
    return sorted(found)


def parents_of(on: Any, name: str) -> set[str]:
    with on.cursor() as cursor:
        return {other for _, other in on.introspection.get_relations(cursor, name).values()}


def parents_first(parents: dict[str, set[str]], names: list[str]) -> list[str]:
    """Return the tables so that each comes after those that its foreign keys name."""
    ordered: list[str] = []
    while len(ordered) < len(names):
        ordered += [n for n in names if n not in ordered and parents[n] & set(names) <= {n, *ordered}]
    return ordered
