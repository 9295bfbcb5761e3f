"""The SQLite database that is moved: locked against writers, read, and never changed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from django.core.management.base import CommandError

from coordinator.importing.sqlite_copy import quote_sql_identifier
from coordinator.operations.moving.rows import Row, decode_sqlite_text
from coordinator.operations.moving.tables import MovedTable

WRITER_WAIT_SECONDS = 5  # for a program that is just writing
MOST_NAMED_ORPHANS = 20


class SqliteSource:
    """A connection to the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise CommandError(f"There is no database {path}.")
        try:
            self.db = sqlite3.connect(
                f"file:{quote(str(path))}?mode=rw",
                uri=True,
                timeout=WRITER_WAIT_SECONDS,
                isolation_level=None,
            )
            self.db.text_factory = decode_sqlite_text
            self.db.execute("SELECT 1 FROM sqlite_master LIMIT 1")
        except sqlite3.Error as problem:
            raise CommandError(f"{path} cannot be read as an SQLite database: {problem}.") from None

    @contextlib.contextmanager
    def hold_write_lock(self) -> Iterator[None]:
        """Let nobody write within the block. Raises CommandError where another program does."""
        try:
            self.db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as problem:
            raise CommandError(
                f"Another program is writing to {self.path} ({problem}). Stop it, and run this again."
            ) from None
        try:
            yield
        finally:
            self.db.execute("ROLLBACK")

    @contextlib.contextmanager
    def read_snapshot_transaction(self) -> Iterator[None]:
        """Read one moment of the database within the block; others go on writing."""
        self.db.execute("BEGIN")
        self.db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # from here on
        try:
            yield
        finally:
            self.db.execute("ROLLBACK")

    def count_source_rows(self, table: MovedTable) -> int:
        return int(self.db.execute(f"SELECT count(*) FROM {quote_sql_identifier(table.name)}").fetchone()[0])

    def iterate_source_rows(self, table: MovedTable) -> Iterator[Row]:
        """Yield all rows, reading one at a time."""
        yield from self.db.execute(f"SELECT {table.quoted_columns} FROM {quote_sql_identifier(table.name)}")

    def load_last_ids_by_table(self) -> dict[str, int]:
        """Return the last id that was given in each table that counts."""
        return dict(self.db.execute("SELECT name, seq FROM sqlite_sequence"))

    def describe_orphan_rows(self, tables: list[MovedTable]) -> list[str]:
        """Name rows that refer to rows which do not exist, some of them."""
        names = {table.name for table in tables}
        orphans = []
        for name, rowid, parent, _ in self.db.execute("PRAGMA foreign_key_check"):
            if name in names:
                orphans.append(f"{name} (row {rowid}): the row it refers to in {parent} does not exist")
            if len(orphans) == MOST_NAMED_ORPHANS:
                break
        return orphans

    def load_source_migrations(self) -> set[tuple[str, str]]:
        """Return (app, name) of every migration that the database has had; none where it has no tables of ours."""
        if not self.db.execute("SELECT 1 FROM sqlite_master WHERE name = 'django_migrations'").fetchone():
            return set()
        return set(self.db.execute("SELECT app, name FROM django_migrations"))
