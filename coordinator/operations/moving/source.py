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
from coordinator.importing.copying import quoted
from coordinator.lib.chosen_database import MOVED
from coordinator.operations.moving.rows import Row, read_text
from coordinator.operations.moving.tables import OURS, Table, tables_of

NOTE, LOG = moved.NOTE, f"{OURS}_log"
WRITER_WAIT_SECONDS = 60  # seconds to wait for other writers
MOST_ROWS, MOST_BYTES = 5_000, 16 * 1024 * 1024  # of one stretch
AT_ONCE = 200  # keys of one query
KEYS = 4  # columns that a primary key may have
OPS = ("INSERT", "UPDATE", "DELETE")


class Source:
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
            self.db.text_factory = read_text
            self.db.execute("SELECT 1 FROM sqlite_master LIMIT 1")
        except sqlite3.Error as problem:
            raise CommandError(f"{path} cannot be read as an SQLite database: {problem}.") from None

    def close(self) -> None:
        self.db.close()

    # What is written meanwhile.

    def move_id(self) -> str | None:
        """Return the name of the move that is under way, or was made; None where there is none."""
        return self._note()[0] if self._has(NOTE) else None

    def _note(self) -> tuple[str, str]:
        found: tuple[str, str] = self.db.execute(f"SELECT move_id, noting FROM {NOTE}").fetchone()
        return found

    def note_from_now_on(self, tables: list[Table], *, afresh: bool = False) -> tuple[str, str]:
        """Have every write noted; return the move's name and one for the time since which there is no gap."""
        if self._notes(tables) and not afresh:
            return self._note()
        move_id = self.move_id() or f"move_{uuid.uuid4().hex}"
        with self._writing():
            self._drop_triggers(OURS + "_")
            self.db.execute(f"DROP TABLE IF EXISTS {LOG}")
            self.db.execute(f"DROP TABLE IF EXISTS {NOTE}")
            keys = ", ".join(f"k{number}" for number in range(KEYS))
            self.db.execute(f"CREATE TABLE {LOG} (id INTEGER PRIMARY KEY, name TEXT NOT NULL, {keys})")
            self.db.execute(f"CREATE TABLE {NOTE} (move_id TEXT NOT NULL, noting TEXT NOT NULL)")
            self.db.execute(f"INSERT INTO {NOTE} VALUES (?, ?)", (move_id, uuid.uuid4().hex))
            for name, sql in _noting(tables).items():
                self.db.execute(f"CREATE TRIGGER {name} {sql}")
        return self._note()

    def _notes(self, tables: list[Table]) -> bool:
        standing = dict(
            self.db.execute(
                f"SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE '{OURS}\\_%' ESCAPE '\\'"
            )
        )
        wanted = {name: f"CREATE TRIGGER {name} {sql}" for name, sql in _noting(tables).items()}
        return self._has(NOTE) and wanted.items() <= standing.items()

    def require_noting(self, tables: list[Table]) -> None:
        """Raise CommandError where writes were not noted: the tables were changed meanwhile."""
        if not self._notes(tables):
            raise CommandError(
                "The tables of SQLite were changed meanwhile (a migration?), so not every write was noted. Nothing "
                "was switched. Run this again; it copies everything again."
            )

    def last_noted(self) -> int:
        """Return the number of the last write that was noted."""
        return int(self.db.execute(f"SELECT coalesce(max(id), 0) FROM {LOG}").fetchone()[0])

    def noted(self, after: int, upto: int) -> dict[str, list[Row]]:
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

    def count(self, table: Table) -> int:
        return int(self.db.execute(f"SELECT count(*) FROM {quoted(table.name)}").fetchone()[0])

    def has_other_keys(self, table: Table) -> bool:
        """Say whether rows of the table must differ in more than their primary keys."""
        found = self.db.execute(
            "SELECT 1 FROM pragma_index_list(?) WHERE \"unique\" AND origin <> 'pk'", (table.name,)
        )
        return found.fetchone() is not None

    def stretch(self, table: Table, after: Row | None) -> list[Row]:
        """Return the next rows in the order of their keys, some thousands, or fewer large ones."""
        where = ""
        if after is not None:
            where = f"WHERE ({table.keys}) > ({', '.join('?' * len(after))})"
        cursor = self.db.execute(
            f"SELECT {table.names} FROM {quoted(table.name)} {where} ORDER BY {table.keys} LIMIT {MOST_ROWS}",
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

    def rows(self, table: Table, beside: int | None = None) -> Iterator[Row]:
        """Yield all rows; without the one whose key is the number `beside`."""
        where = "" if beside is None else f" WHERE {table.keys} <> {beside}"
        yield from self.db.execute(f"SELECT {table.names} FROM {quoted(table.name)}{where}")

    def rows_of(self, table: Table, keys: list[Row]) -> Iterator[Row]:
        """Yield those rows of the keys that are there."""
        one = " AND ".join(f"{quoted(name)} = ?" for name in table.key)
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            flat = [value for key in some for value in key[: len(table.key)]]
            yield from self.db.execute(
                f"SELECT {table.names} FROM {quoted(table.name)} WHERE {' OR '.join([f'({one})'] * len(some))}",
                flat,
            )

    def all_keys(self, table: Table) -> set[Row]:
        return set(self.db.execute(f"SELECT {table.keys} FROM {quoted(table.name)}"))

    def counters(self) -> dict[str, int]:
        """Return the last id that was given in each table that counts."""
        return dict(self.db.execute("SELECT name, seq FROM sqlite_sequence"))

    def orphans(self, tables: list[Table]) -> list[str]:
        """Name rows that refer to rows which do not exist, some of them."""
        known = {table.name for table in tables}
        found = []
        for name, rowid, parent, _ in self.db.execute("PRAGMA foreign_key_check"):
            if name in known:
                found.append(f"{name} (row {rowid}): the row it refers to in {parent} does not exist")
            if len(found) == 20:
                break
        return found

    def migrations(self) -> set[tuple[str, str]]:
        if not self._has("django_migrations"):
            return set()
        return set(self.db.execute("SELECT app, name FROM django_migrations"))

    @contextlib.contextmanager
    def moment(self) -> Iterator[None]:
        """Read one moment of the database within the block; others go on writing."""
        self.db.execute("BEGIN")
        self.db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # from here on
        try:
            yield
        finally:
            self.db.execute("ROLLBACK")

    # The pause and what comes after it.

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let nobody write within the block; what we write is undone unless `commit` was called."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")

    def commit(self) -> None:
        self.db.execute("COMMIT")

    def shut(self) -> None:
        """Refuse every write from now on, in the words of engine.moved; part of a transaction."""
        self._drop_triggers(OURS + "_")
        for table in sorted(tables_of(self.db)):
            for op in OPS:
                self.db.execute(
                    f"CREATE TRIGGER {quoted(f'{moved.TRIGGER}{table}_{op.lower()}')} BEFORE {op} ON {quoted(table)}"
                    f" BEGIN SELECT RAISE(ABORT, '{MOVED}'); END"
                )

    def is_shut(self) -> bool:
        return moved.is_shut(self.db)

    def open_again(self) -> None:
        """Take writes again, and forget the move."""
        with self._writing():
            self._drop_triggers(OURS)
            self.db.execute(f"DROP TABLE IF EXISTS {LOG}")
            self.db.execute(f"DROP TABLE IF EXISTS {NOTE}")

    def take_writes_again(self, tables: list[Table]) -> None:
        """Undo `shut` and go on noting: nothing can have been written in between."""
        with self._writing():
            self._drop_triggers(OURS)
            for name, sql in _noting(tables).items():
                self.db.execute(f"CREATE TRIGGER {name} {sql}")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self.held():
            yield
            self.commit()

    def _drop_triggers(self, prefix: str) -> None:
        names = self.db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in names:
            if name.startswith(prefix):
                self.db.execute(f"DROP TRIGGER {quoted(name)}")

    def _has(self, table: str) -> bool:
        found: Any = self.db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        return found is not None


def _noting(tables: list[Table]) -> dict[str, str]:
    """Return the triggers that note a row's key when it is written, both keys where it changes."""
    found = {}
    for table in tables:
        columns = ", ".join(["name", *(f"k{number}" for number in range(len(table.key)))])
        note = f"INSERT INTO {LOG} ({columns})"
        for op in OPS:
            row = "OLD" if op == "DELETE" else "NEW"
            body = f"{note} VALUES ('{table.name}', {_key(row, table)});"
            if op == "UPDATE":
                body += f" {note} SELECT '{table.name}', {_key('OLD', table)} WHERE {_differs(table)};"
            found[f"{OURS}_{table.name}_{op.lower()}"] = (
                f"AFTER {op} ON {quoted(table.name)} BEGIN {body} END"
            )
    return found


def _key(row: str, table: Table) -> str:
    return ", ".join(f"{row}.{quoted(name)}" for name in table.key)


def _differs(table: Table) -> str:
    return " OR ".join(f"OLD.{quoted(name)} IS NOT NEW.{quoted(name)}" for name in table.key)
