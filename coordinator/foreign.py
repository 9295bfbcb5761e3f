"""An existing database of one of the two systems, opened to be read: which of our tables it has, row by row.

It may be in use, of any step of its history, and hold what its own program never should have written.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from coordinator.errors import BadRequest

CHUNK = 500
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """One table that can be brought over.

    `key` names the columns that tell its rows apart; without one (`own_id` is then numbered anew) rows are told
    apart by all they hold. `parents` are columns that must name a row of another table; `loose` ones may lose it.
    """

    name: str
    key: tuple[str, ...] = ()
    own_id: str = ""
    group: str = ""  # rows without a key are compared within this column's value
    parents: Mapping[str, str] = field(default_factory=dict)
    loose: Mapping[str, str] = field(default_factory=dict)
    booleans: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)


# In the order in which they are brought over: what others name comes first.
TABLES = (
    Table("agents", key=("id",), booleans=frozenset({"enabled"})),
    Table("plugin_settings", key=("plugin_id",), booleans=frozenset({"is_active"})),
    Table("plugin_configs", key=("plugin_id", "config_key")),
    Table("plugin_data", key=("plugin_id", "key")),
    Table("agent_plugins", key=("agent_id", "plugin_id"), parents={"agent_id": "agents"}),
    Table("runtime_plugins", key=("plugin_id",), booleans=frozenset({"is_active"})),
    Table("mcp_servers", key=("name",), booleans=frozenset({"is_active"})),
    Table("mcp_access_control", own_id="id"),
    Table("permission_requests", key=("request_id",), own_id="id"),
    Table("revoked_keys", key=("key_hash",)),
    Table("chat_messages", key=("id",), parents={"agent_id": "agents"}),
    Table("chat_attachments", key=("id",), parents={"message_id": "chat_messages"}),
    Table("audit_logs", own_id="id"),
    Table(
        "sessions",
        key=("session_id",),
        loose={"parent_session_id": "sessions"},
        renamed={"executor_type": "executor_profile"},
    ),
    Table("runs", key=("run_id",), parents={"session_id": "sessions"}),
    Table("events", own_id="id", group="session_id", parents={"session_id": "sessions"}),
)


class Foreign:
    """A source, open to be read. Nothing is ever written to it, not even a journal beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.replaced = 0  # texts that were not UTF-8
        if not path.is_file():
            raise BadRequest(f"There is no file {path}.")
        try:
            self._file = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=10)
            self._file.text_factory = self._text
            self._file.execute("PRAGMA query_only = on")
            self._file.execute("BEGIN")  # one moment of it, however long we read and whoever writes meanwhile
            found = self._file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        except sqlite3.Error as problem:
            raise BadRequest(f"{path} cannot be read as an SQLite database: {problem}.") from None
        self.tables = {name for (name,) in found}
        if not self.tables & {table.name for table in TABLES}:
            raise BadRequest(f"{path} holds none of the tables of ClotoCore or the Agent Coordinator.")

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.replaced += 1
            return raw.decode(errors="replace")

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns."""
        return [row[1] for row in self._file.execute(f'PRAGMA table_info("{table}")')]

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        number: int = self._file.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]  # noqa: S608 # ours
        return number

    def rows(self, table: Table, columns: list[str]) -> Iterator[list[Row]]:
        """Yield a table's rows in the order they were written, some hundred at a time."""
        names = ", ".join(f'"{column}"' for column in columns)
        order = f'"{table.group}", rowid' if table.group else "rowid"
        cursor = self._file.execute(f'SELECT {names} FROM "{table.name}" ORDER BY {order}')  # noqa: S608 # ours
        ours = [table.renamed.get(column, column) for column in columns]
        while chunk := cursor.fetchmany(CHUNK):
            yield [dict(zip(ours, row, strict=True)) for row in chunk]

    def file_of(self, disk_path: str) -> Path | None:
        """Return the file of an attachment, or None. Only what lies beside the database is ever looked at."""
        home = self.path.absolute().parent
        allowed = [(folder / "attachments").resolve() for folder in (home, home.parent / "data")]
        for base in (home, home.parent):
            path = (base / disk_path).resolve()
            if any(path.is_relative_to(folder) for folder in allowed) and path.is_file():
                return path
        return None

    def close(self) -> None:
        """Let go of the file."""
        with contextlib.suppress(sqlite3.Error):
            self._file.close()
