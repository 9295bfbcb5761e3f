"""A private copy of another program's SQLite database, made while that program goes on writing.

Every table is copied row by row in many short reads, so that a writer of the source never waits longer than one
of them (`SHORT`); SQLite's own backup would restart with each of its commits. Rows that are written after the
copy has begun are left for the next time. No file is made next to the source: where SQLite would need a `-wal` or
`-shm` file that is not there, or the folder cannot be written to, the files themselves are copied first.

What is damaged is skipped, and reported.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from coordinator.errors import BadRequest

SHORT = 0.02  # seconds that one read is to last
MOST_ROWS = 20_000  # of one read
WRITER_WAIT_SECONDS = 30  # seconds to wait for a writer of the source
BETWEEN_TRIES = 0.0005  # seconds
MOST_GAPS = 2_000  # damaged places of one table; what follows them is given up
FIRST, FURTHEST = -(2**63), 2**63 - 1  # the numbers that a row can have
FEW_ROWS = 200  # of the first read, before it is known how long they take
DAMAGED = object()
NO_COLLATION = re.compile(r"no such collation sequence: (.+)")
ROWIDS = ("rowid", "_rowid_", "oid")
MAGIC = b"SQLite format 3\x00"
TRIES = 5
# The copy need not outlive us; the source's expressions run no more than they must.
SETTINGS = ("journal_mode = memory", "synchronous = off", "trusted_schema = off", "cell_size_check = on")


@dataclass(slots=True)
class CopiedTable:
    """A table in the copy: its columns are `c0`, `c1` … there, its rows in the order of `place`."""

    name: str
    columns: list[str]
    rows: int = 0
    damage: list[str] = field(default_factory=list)  # what could not be read, in words

    def copied_column_name(self, column: str) -> str:
        return f"c{self.columns.index(column)}"


def copy_sqlite_tables(source: Path, folder: Path) -> dict[str, CopiedTable]:
    """Copy every table of `source` into `folder`/copy.db and return them by name.

    Raises BadRequest, in one line, for a file that is not an SQLite database, or cannot be read at all.
    """
    require_sqlite_file(source)
    try:
        return copy_tables_with_retries(source, folder)
    except sqlite3.Error as problem:
        raise BadRequest(f"{source} cannot be read as an SQLite database: {problem}.") from None
    except OSError as problem:
        raise BadRequest(f"{source} cannot be copied: {problem.strerror or problem}.") from None


def prepare_readable_database(source: Path, folder: Path) -> Path:
    """Return where the database can be read without making a file next to it: where it is, else a copy in `folder`.

    Raises BadRequest as `copy_sqlite_tables` does.
    """
    require_sqlite_file(source)
    try:
        return source if can_read_sqlite_without_copy(source) else copy_database_files(source, folder)
    except OSError as problem:
        raise BadRequest(f"{source} cannot be copied: {problem.strerror or problem}.") from None


def copy_tables_with_retries(source: Path, folder: Path) -> dict[str, CopiedTable]:
    if not can_read_sqlite_without_copy(source):
        return SqliteTableCopier(
            copy_database_files(source, folder), folder, writable=True
        ).copy_source_tables_by_name()
    for _ in range(TRIES):
        try:
            return SqliteTableCopier(source, folder, writable=False).copy_source_tables_by_name()
        except sqlite3.OperationalError as problem:
            if problem.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
            time.sleep(SHORT)  # a journal that a writer had just left is gone by now, or a crash left it
    return SqliteTableCopier(
        copy_database_files(source, folder), folder, writable=True
    ).copy_source_tables_by_name()


def require_sqlite_file(source: Path) -> None:
    if not source.is_file():
        raise BadRequest(f"There is no file {source}.")
    try:
        with source.open("rb") as file:
            head = file.read(100)
    except OSError as problem:
        raise BadRequest(f"{source} cannot be read: {problem.strerror}.") from None
    if not head.startswith(MAGIC):
        raise BadRequest(
            f"{source} cannot be read as an SQLite database: it is empty, encrypted or another file."
        )


def sibling_database_path(source: Path, ending: str) -> Path:
    return source.with_name(source.name + ending)


def can_read_sqlite_without_copy(source: Path) -> bool:
    """Say whether SQLite can read the file without making another next to it: WAL needs two, and both to be there."""
    with source.open("rb") as file:
        versions = file.read(20)[18:20]
    if 2 not in versions:
        return True
    try:
        with (
            sibling_database_path(source, "-wal").open("rb"),
            sibling_database_path(source, "-shm").open("r+b"),
        ):
            return True
    except OSError:
        return False


def copy_database_files(source: Path, folder: Path) -> Path:
    """Copy the files as they are, with what a crash or a read-only disk left next to them; return the copy.

    Raises BadRequest where somebody writes to them all the time.
    """
    for _ in range(TRIES):
        before = database_file_sizes_and_times(source)
        target = folder / "files.db"
        for ending in ("", "-wal", "-journal"):
            sibling_database_path(target, ending).unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(sibling_database_path(source, ending), sibling_database_path(target, ending))
        if database_file_sizes_and_times(source) == before:
            return target
        time.sleep(SHORT)
    raise BadRequest(f"{source} changes while it is copied. Try again when its program writes less.")


def database_file_sizes_and_times(source: Path) -> list[tuple[int, int] | None]:
    file_stats: list[tuple[int, int] | None] = []
    for ending in ("", "-wal", "-journal"):
        try:
            about = sibling_database_path(source, ending).stat()
        except FileNotFoundError:
            file_stats.append(None)
        else:
            file_stats.append((about.st_size, about.st_mtime_ns))
    return file_stats


def quote_sql_identifier(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


class SqliteTableCopier:
    def __init__(self, source: Path, folder: Path, *, writable: bool) -> None:
        self.path, self.folder, self.writable = source, folder, writable

    def copy_source_tables_by_name(self) -> dict[str, CopiedTable]:
        target = self.folder / "copy.db"
        target.unlink(missing_ok=True)
        self.db = sqlite3.connect(target, timeout=0, isolation_level=None, uri=True)
        try:
            for setting in (
                "journal_mode = memory",
                "synchronous = off",
                "trusted_schema = off",
                "cell_size_check = on",
            ):
                self.db.execute(f"PRAGMA {setting}")
            mode = "rw" if self.writable else "ro"
            self.execute_with_retries(
                "ATTACH ? AS src", (f"file:{quote(str(self.path.absolute()))}?mode={mode}",)
            )
            names = self.list_source_tables()
            wal = self.execute_with_retries("PRAGMA src.journal_mode").fetchone()[0] == "wal"
            if wal:
                self.db.execute("BEGIN")  # readers and writers of a WAL do not meet: one moment of it all
            copied_tables = {name: CopiedTable(name, self.list_source_columns(name)) for name in names}
            ends = {name: self.max_rowid_or_upper_bound(name) for name in names}
            for name, table in copied_tables.items():
                self.copy_source_table(table, ends[name])
            if wal:
                self.db.execute("COMMIT")
            return copied_tables
        finally:
            self.db.close()
            for ending in ("", "-wal", "-shm", "-journal"):
                sibling_database_path(self.folder / "files.db", ending).unlink(missing_ok=True)

    def execute_with_retries(self, sql: str, parameters: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Run a statement; wait for the source's writer in steps so short that one who writes all the time is met."""
        until = time.monotonic() + WRITER_WAIT_SECONDS
        while True:
            try:
                return self.db.execute(sql, parameters)
            except sqlite3.OperationalError as problem:
                if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            time.sleep(BETWEEN_TRIES)

    def list_source_tables(self) -> list[str]:
        """Return the tables' names: not SQLite's own, nor those of a search index, which is made of others."""
        rows = self.execute_with_retries(
            "SELECT name, sql FROM src.sqlite_master WHERE type = 'table'"
        ).fetchall()
        indexes = [name for name, sql in rows if (sql or "").upper().startswith("CREATE VIRTUAL")]
        return [
            name
            for name, _ in rows
            if not name.startswith("sqlite_")
            and not any(name == one or name.startswith(f"{one}_") for one in indexes)
        ]

    def list_source_columns(self, name: str) -> list[str]:
        rows = self.execute_with_retries(
            "SELECT name, hidden FROM pragma_table_xinfo(?, 'src')", (name,)
        ).fetchall()
        return [column for column, hidden in rows if not hidden]  # what is generated is not data

    def find_rowid_name(self, table: CopiedTable) -> str | None:
        """Return the name of the table's rowid; None if it has none."""
        columns = {column.lower() for column in table.columns}
        for name in ROWIDS:
            if name not in columns:
                try:
                    self.execute_with_retries(
                        f"SELECT {name} FROM src.{quote_sql_identifier(table.name)} LIMIT 0"  # noqa: S608
                    )  # ours
                except sqlite3.OperationalError:
                    return None
                return name
        return None

    def max_rowid_or_upper_bound(self, name: str) -> int:
        """Return the last row number there is now: what comes later belongs to a later moment."""
        rowid = self.find_rowid_name(CopiedTable(name, self.list_source_columns(name)))
        if rowid is None:
            return FURTHEST
        try:
            last_row = self.execute_with_retries(
                f"SELECT max({rowid}) FROM src.{quote_sql_identifier(name)}"  # noqa: S608
            ).fetchone()[0]
        except sqlite3.DatabaseError:  # damaged just there
            return FURTHEST
        return FURTHEST if last_row is None else int(last_row)

    def copy_source_table(self, table: CopiedTable, end: int) -> None:
        placeholders = "".join(f", c{number}" for number in range(len(table.columns)))
        self.db.execute(
            f"CREATE TABLE main.{quote_sql_identifier(table.name)} (place INTEGER PRIMARY KEY{placeholders})"
        )
        rowid = self.find_rowid_name(table)
        if rowid is None:
            self.copy_rows_by_primary_key(table)
        else:
            self.copy_rows_by_rowid(table, rowid, end)
        table.rows = self.db.execute(
            f"SELECT count(*) FROM main.{quote_sql_identifier(table.name)}"  # noqa: S608
        ).fetchone()[0]

    def copy_rows_by_rowid(self, table: CopiedTable, rowid: str, end: int) -> None:
        names = ", ".join([rowid, *map(quote_sql_identifier, table.columns)])
        rows = (
            f"SELECT {names} FROM src.{quote_sql_identifier(table.name)}"  # ours  # noqa: S608
            f" WHERE {rowid} >= ? AND {rowid} <= {end} ORDER BY {rowid} LIMIT ?"
        )
        insert = f"INSERT INTO main.{quote_sql_identifier(table.name)} {rows}"
        last = f"SELECT max(place) FROM main.{quote_sql_identifier(table.name)}"  # ours  # noqa: S608
        size, start = FEW_ROWS, FIRST
        while start <= end:
            started_at = time.monotonic()
            try:
                number = self.execute_with_retries(insert, (start, size)).rowcount
            except sqlite3.DatabaseError as problem:
                if not is_sqlite_damage_error(problem):
                    raise
                if size > 1:
                    size = max(size // 8, 1)
                    continue
                onward = self.record_damage_and_find_next_rowid(table, rows, start, end)
                if onward is None:
                    return
                start, size = onward, FEW_ROWS
                continue
            if number < size:
                return
            start = self.db.execute(last).fetchone()[0] + 1
            size = adapt_copy_chunk_size(size, time.monotonic() - started_at)

    def record_damage_and_find_next_rowid(
        self, table: CopiedTable, rows: str, start: int, end: int
    ) -> int | None:
        """Note what cannot be read from `start` on; return the number of the next row that can, None for none."""
        if len(table.damage) >= MOST_GAPS:
            table.damage.append(f"everything from row {start} on: there are too many damaged places")
            return None
        base = max(start, -1)  # few rows have negative numbers
        low, high = start, base + 1
        while (row := self.probe_next_rowid_or_damage(rows, high)) is DAMAGED:
            low, high = high, base + 2 * (high - base)
            if high > end:
                row = None
                break
        while row is not None and low + 1 < high:
            middle = (low + high) // 2
            nearer = self.probe_next_rowid_or_damage(rows, middle)
            if nearer is DAMAGED:
                low = middle
            else:
                high, row = middle, nearer
        if row is None:
            table.damage.append("all rows" if start == FIRST else f"all rows from {start} on")
            return None
        table.damage.append(f"rows before {row}" if start == FIRST else f"rows {start} to {int(row) - 1}")
        return int(row)

    def probe_next_rowid_or_damage(self, rows: str, start: int) -> Any:
        """Return the number of the first row from `start` on, None if there is none, or DAMAGED."""
        try:
            row = self.execute_with_retries(rows, (start, 1)).fetchone()
        except sqlite3.DatabaseError as problem:
            if not is_sqlite_damage_error(problem):
                raise
            return DAMAGED
        return None if row is None else row[0]

    def copy_rows_by_primary_key(self, table: CopiedTable) -> None:
        """Copy a table in the order of its key; in one read if it has none, or only its own program knows its order."""
        fetched_rows = self.execute_with_retries(
            "SELECT name FROM pragma_table_xinfo(?, 'src') WHERE pk ORDER BY pk", (table.name,)
        ).fetchall()
        key = ", ".join(quote_sql_identifier(name) for (name,) in fetched_rows)
        last = ", ".join(table.copied_column_name(name) for (name,) in fetched_rows)
        names, target = (
            ", ".join(map(quote_sql_identifier, table.columns)),
            f"main.{quote_sql_identifier(table.name)}",
        )
        into = f"INSERT INTO {target} ({', '.join(f'c{n}' for n in range(len(table.columns)))})"
        behind = f"WHERE ({key}) > (SELECT {last} FROM {target} ORDER BY place DESC LIMIT 1)"  # ours  # noqa: S608
        all_rows = f"{into} SELECT {names} FROM src.{quote_sql_identifier(table.name)}"  # ours  # noqa: S608
        if not key:  # each name of its row numbers is that of a column
            self.execute_with_retries(all_rows)
            return
        where, size = "", FEW_ROWS
        while True:
            started_at = time.monotonic()
            try:
                number = self.execute_with_retries(
                    f"{all_rows} {where} ORDER BY {key} LIMIT ?",
                    (size,),
                ).rowcount
            except sqlite3.DatabaseError as problem:
                if unknown := NO_COLLATION.search(str(problem)):
                    # Any order will do where all rows are read in the order in which they are stored.
                    self.db.create_collation(unknown[1], lambda one, other: (one > other) - (one < other))
                    self.execute_with_retries(all_rows)
                    return
                if not is_sqlite_damage_error(problem):
                    raise
                if size == 1:
                    table.damage.append("all rows" if not where else "all rows behind the last that came")
                    return
                size = max(size // 8, 1)
                continue
            if number < size:
                return
            where, size = behind, adapt_copy_chunk_size(size, time.monotonic() - started_at)


def adapt_copy_chunk_size(size: int, seconds: float) -> int:
    if seconds > SHORT:
        return max(size // 2, 1)
    return min(size * 2, MOST_ROWS) if seconds < SHORT / 2 else size


def is_sqlite_damage_error(problem: sqlite3.DatabaseError) -> bool:
    return problem.sqlite_errorcode & 0xFF in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_IOERR,
    )
