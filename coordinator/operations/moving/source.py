"""The SQLite database that is moved: its writes are noted, its rows read, it is locked for the pause, then closed."""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.core.management.base import CommandError

from coordinator.engine import moved
from coordinator.importing.copying import quote_sql_identifier
from coordinator.lib.chosen_database import MOVED
from coordinator.operations.moving.rows import Row, decode_sqlite_text
from coordinator.operations.moving.tables import OURS, MovedTable, list_sqlite_tables

NOTE, LOG = moved.NOTE, f"{OURS}_log"
WRITER_WAIT_SECONDS = 60  # seconds to wait for other writers
MOST_ROWS, MOST_BYTES = 5_000, 16 * 1024 * 1024  # of one stretch
AT_ONCE = 200  # keys of one query
KEYS = 4  # columns that a primary key may have
OPS = ("INSERT", "UPDATE", "DELETE")


class SqliteSource:
    """A connection to the file, which others go on writing to."""

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

    def close(self) -> None:
        self.db.close()

    # What is written meanwhile.

    def read_move_id(self) -> str | None:
        """Return the name of the move that is under way, or was made; None where there is none."""
        return self.read_move_note()[0] if self.has_schema_object(NOTE) else None

    def read_move_note(self) -> tuple[str, str]:
        found: tuple[str, str] = self.db.execute(f"SELECT move_id, noting FROM {NOTE}").fetchone()
        return found

    def start_noting_writes(self, tables: list[MovedTable], *, afresh: bool = False) -> tuple[str, str]:
        """Have every write noted; return the move's name and one for the time since which there is no gap."""
        if self.has_noting_triggers(tables) and not afresh:
            return self.read_move_note()
        move_id = self.read_move_id() or f"move_{uuid.uuid4().hex}"
        with self.write_transaction():
            self.drop_triggers_by_prefix(OURS + "_")
            self.db.execute(f"DROP TABLE IF EXISTS {LOG}")
            self.db.execute(f"DROP TABLE IF EXISTS {NOTE}")
            keys = ", ".join(f"k{number}" for number in range(KEYS))
            self.db.execute(f"CREATE TABLE {LOG} (id INTEGER PRIMARY KEY, name TEXT NOT NULL, {keys})")
            self.db.execute(f"CREATE TABLE {NOTE} (move_id TEXT NOT NULL, noting TEXT NOT NULL)")
            self.db.execute(f"INSERT INTO {NOTE} VALUES (?, ?)", (move_id, uuid.uuid4().hex))
            for name, sql in build_noting_triggers(tables).items():
                self.db.execute(f"CREATE TRIGGER {name} {sql}")
        return self.read_move_note()

    def has_noting_triggers(self, tables: list[MovedTable]) -> bool:
        standing = dict(
            self.db.execute(
                f"SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE '{OURS}\\_%' ESCAPE '\\'"
            )
        )
        wanted = {name: f"CREATE TRIGGER {name} {sql}" for name, sql in build_noting_triggers(tables).items()}
        return self.has_schema_object(NOTE) and wanted.items() <= standing.items()

    def require_noted_writes(self, tables: list[MovedTable]) -> None:
        """Raise CommandError where writes were not noted: the tables were changed meanwhile."""
        if not self.has_noting_triggers(tables):
            raise CommandError(
                "The tables of SQLite were changed meanwhile (a migration?), so not every write was noted. Nothing "
                "was switched. Run this again; it copies everything again."
            )

    def last_noted_write(self) -> int:
        """Return the number of the last write that was noted."""
        return int(self.db.execute(f"SELECT coalesce(max(id), 0) FROM {LOG}").fetchone()[0])

    def load_written_keys(self, after: int, upto: int) -> dict[str, list[Row]]:
        """Return the keys of the rows that were written since, by table."""
        keys = ", ".join(f"k{number}" for number in range(KEYS))
        found: dict[str, list[Row]] = defaultdict(list)
        rows = self.db.execute(
            f"SELECT DISTINCT name, {keys} FROM {LOG} WHERE id > ? AND id <= ?", (after, upto)
        )
        for name, *key in rows:
            found[name].append(tuple(key))
        return found

    # Reading.

    def count_source_rows(self, table: MovedTable) -> int:
        return int(self.db.execute(f"SELECT count(*) FROM {quote_sql_identifier(table.name)}").fetchone()[0])

    def has_other_unique_keys(self, table: MovedTable) -> bool:
        """Say whether rows of the table must differ in more than their primary keys."""
        found = self.db.execute(
            "SELECT 1 FROM pragma_index_list(?) WHERE \"unique\" AND origin <> 'pk'", (table.name,)
        )
        return found.fetchone() is not None

    def read_next_rows(self, table: MovedTable, after: Row | None) -> list[Row]:
        """Return the next rows in the order of their keys, some thousands, or fewer large ones."""
        where = ""
        if after is not None:
            where = f"WHERE ({table.quoted_key_columns}) > ({', '.join('?' * len(after))})"
        cursor = self.db.execute(
            f"SELECT {table.quoted_columns} FROM {quote_sql_identifier(table.name)} {where} ORDER BY"
            f" {table.quoted_key_columns} LIMIT {MOST_ROWS}",
            after or (),
        )
        rows, size = [], 0
        for row in cursor:
            rows.append(row)
            size += sum(len(one) for one in row if isinstance(one, str | bytes))
            if size > MOST_BYTES:
                break
        cursor.close()
        return rows

    def iterate_source_rows(self, table: MovedTable, beside: int | None = None) -> Iterator[Row]:
        """Yield all rows; without the one whose key is the number `beside`."""
        where = "" if beside is None else f" WHERE {table.quoted_key_columns} <> {beside}"
        yield from self.db.execute(
            f"SELECT {table.quoted_columns} FROM {quote_sql_identifier(table.name)}{where}"
        )

    def iterate_source_rows_by_key(self, table: MovedTable, keys: list[Row]) -> Iterator[Row]:
        """Yield those rows of the keys that are there."""
        one = " AND ".join(f"{quote_sql_identifier(name)} = ?" for name in table.key)
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            flat = [value for key in some for value in key[: len(table.key)]]
            yield from self.db.execute(
                f"SELECT {table.quoted_columns} FROM {quote_sql_identifier(table.name)} WHERE"
                f" {' OR '.join([f'({one})'] * len(some))}",
                flat,
            )

    def load_source_keys(self, table: MovedTable) -> set[Row]:
        return set(
            self.db.execute(f"SELECT {table.quoted_key_columns} FROM {quote_sql_identifier(table.name)}")
        )

    def load_id_counters(self) -> dict[str, int]:
        """Return the last id that was given in each table that counts."""
        return dict(self.db.execute("SELECT name, seq FROM sqlite_sequence"))

    def find_orphan_rows(self, tables: list[MovedTable]) -> list[str]:
        """Name rows that refer to rows which do not exist, some of them."""
        known = {table.name for table in tables}
        found = []
        for name, rowid, parent, _ in self.db.execute("PRAGMA foreign_key_check"):
            if name in known:
                found.append(f"{name} (row {rowid}): the row it refers to in {parent} does not exist")
            if len(found) == 20:
                break
        return found

    def load_source_migrations(self) -> set[tuple[str, str]]:
        if not self.has_schema_object("django_migrations"):
            return set()
        return set(self.db.execute("SELECT app, name FROM django_migrations"))

    @contextlib.contextmanager
    def read_one_snapshot(self) -> Iterator[None]:
        """Read one moment of the database within the block; others go on writing."""
        self.db.execute("BEGIN")
        self.db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # from here on
        try:
            yield
        finally:
            self.db.execute("ROLLBACK")

    # The pause and what comes after it.

    @contextlib.contextmanager
    def hold_write_lock(self) -> Iterator[None]:
        """Let nobody write within the block; what we write is undone unless `commit` was called."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")

    def commit(self) -> None:
        self.db.execute("COMMIT")

    def refuse_all_writes(self) -> None:
        """Refuse every write from now on, in the words of engine.moved; part of a transaction."""
        self.drop_triggers_by_prefix(OURS + "_")
        for table in sorted(list_sqlite_tables(self.db)):
            for op in OPS:
                self.db.execute(
                    f"CREATE TRIGGER {quote_sql_identifier(f'{moved.TRIGGER}{table}_{op.lower()}')} BEFORE"
                    f" {op} ON {quote_sql_identifier(table)} BEGIN SELECT RAISE(ABORT, '{MOVED}'); END"
                )

    def is_refusing_writes(self) -> bool:
        return moved.is_closed_by_move(self.db)

    def accept_writes_and_forget(self) -> None:
        """Take writes again, and forget the move."""
        with self.write_transaction():
            self.drop_triggers_by_prefix(OURS)
            self.db.execute(f"DROP TABLE IF EXISTS {LOG}")
            self.db.execute(f"DROP TABLE IF EXISTS {NOTE}")

    def resume_noted_writes(self, tables: list[MovedTable]) -> None:
        """Undo `shut` and go on noting: nothing can have been written in between."""
        with self.write_transaction():
            self.drop_triggers_by_prefix(OURS)
            for name, sql in build_noting_triggers(tables).items():
                self.db.execute(f"CREATE TRIGGER {name} {sql}")

    @contextlib.contextmanager
    def write_transaction(self) -> Iterator[None]:
        with self.hold_write_lock():
            yield
            self.commit()

    def drop_triggers_by_prefix(self, prefix: str) -> None:
        names = self.db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in names:
            if name.startswith(prefix):
                self.db.execute(f"DROP TRIGGER {quote_sql_identifier(name)}")

    def has_schema_object(self, table: str) -> bool:
        found: Any = self.db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        return found is not None


def build_noting_triggers(tables: list[MovedTable]) -> dict[str, str]:
    """Return the triggers that note a row's key when it is written, both keys where it changes."""
    found = {}
    for table in tables:
        columns = ", ".join(["name", *(f"k{number}" for number in range(len(table.key)))])
        note = f"INSERT INTO {LOG} ({columns})"
        for op in OPS:
            row = "OLD" if op == "DELETE" else "NEW"
            body = f"{note} VALUES ('{table.name}', {key_column_list(row, table)});"
            if op == "UPDATE":
                body += (
                    f" {note} SELECT '{table.name}', {key_column_list('OLD', table)} WHERE"
                    f" {key_changed_condition(table)};"
                )
            found[f"{OURS}_{table.name}_{op.lower()}"] = (
                f"AFTER {op} ON {quote_sql_identifier(table.name)} BEGIN {body} END"
            )
    return found


def key_column_list(row: str, table: MovedTable) -> str:
    return ", ".join(f"{row}.{quote_sql_identifier(name)}" for name in table.key)


def key_changed_condition(table: MovedTable) -> str:
    return " OR ".join(
        f"OLD.{quote_sql_identifier(name)} IS NOT NEW.{quote_sql_identifier(name)}" for name in table.key
    )
