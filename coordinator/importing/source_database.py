"""Reading of a database of one of the two systems: which of our tables it has and which others, row by row.

It may be in use, of any step of its history, damaged, and hold what its own program never should have written. It
is read from a private copy (importing.sqlite_copy).
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coordinator.errors import BadRequest
from coordinator.importing import sqlite_copy
from coordinator.importing.column_conversion import RepairedText

CHUNK = 500
WORK = ".import-"  # how the folder of a copy begins
ABANDONED = 24 * 3600  # seconds after which a folder that a killed import left is taken away
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ImportableTable:
    """One table that can be imported.

    `key` names the columns that identify its rows; without one (`own_id` is then renumbered) rows are identified
    by all they hold. `parents` are columns that must name a row of another table; `loose` ones may lose it.
    """

    name: str
    key: tuple[str, ...] = ()
    own_id: str = ""
    group: str = ""  # rows without a key are compared within this column's value
    parents: Mapping[str, str] = field(default_factory=dict)
    loose: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)


# In the order in which they are brought over: what others name comes first.
TABLES = (
    ImportableTable("agents", key=("id",)),
    ImportableTable("plugin_settings", key=("plugin_id",)),
    ImportableTable("plugin_configs", key=("plugin_id", "config_key")),
    ImportableTable("plugin_data", key=("plugin_id", "key")),
    ImportableTable("agent_plugins", key=("agent_id", "plugin_id"), parents={"agent_id": "agents"}),
    ImportableTable("runtime_plugins", key=("plugin_id",)),
    ImportableTable("mcp_servers", key=("name",)),
    ImportableTable("mcp_access_control", own_id="id"),
    ImportableTable("permission_requests", key=("request_id",), own_id="id"),
    ImportableTable("revoked_keys", key=("key_hash",)),
    ImportableTable("chat_messages", key=("id",), parents={"agent_id": "agents"}),
    ImportableTable("chat_attachments", key=("id",), parents={"message_id": "chat_messages"}),
    ImportableTable("audit_logs", own_id="id"),
    ImportableTable(
        "sessions",
        key=("session_id",),
        loose={"parent_session_id": "sessions"},
        renamed={"executor_type": "executor_profile"},
    ),
    ImportableTable("runs", key=("run_id",), parents={"session_id": "sessions"}),
    ImportableTable("events", own_id="id", group="session_id", parents={"session_id": "sessions"}),
)


class SourceDatabase:
    """A source, copied to be read. Nothing is ever written to it, not even a journal next to it.

    The copy is in a folder of its own below `work`, or among the system's temporary files, until `close`.
    """

    def __init__(self, path: Path, work: Path | None = None) -> None:
        self.path = path
        self.replaced = 0  # texts that were not UTF-8
        self.folder = create_folder_and_purge_copies(work)
        try:
            self.copied = sqlite_copy.copy_sqlite_tables(path, self.folder)
            if not self.copied.keys() & {table.name for table in TABLES}:
                raise BadRequest(f"{path} has no table of ClotoCore or the Agent Coordinator.")
            self._file = sqlite3.connect(self.folder / "copy.db")
            self._file.text_factory = self.decode_text_and_count_repairs
            if "events" in self.copied and "session_id" in self.copied["events"].columns:
                place = self.copied["events"].copied_column_name("session_id")
                self._file.execute(f"CREATE INDEX by_session ON events ({place})")  # ours
        except BaseException:
            self.delete_database_copy()
            raise

    @property
    def source_table_names(self) -> set[str]:
        return set(self.copied)

    @property
    def unknown_source_tables(self) -> list[str]:
        """The tables that have no counterpart here."""
        return sorted(self.source_table_names - {table.name for table in TABLES})

    def decode_text_and_count_repairs(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.replaced += 1
            text = RepairedText(raw.decode(errors="replace"))
            text.raw = raw
            return text

    def source_columns(self, table: str) -> list[str]:
        return list(self.copied[table].columns)

    def source_row_count(self, table: str) -> int:
        """Return how many rows could be read."""
        return self.copied[table].rows

    def unreadable_row_reports(self, table: str) -> list[str]:
        """Return, a sentence each, what could not be read."""
        return self.copied[table].damage

    def iterate_row_chunks(self, table: str, group: str = "") -> Iterator[list[Row]]:
        """Yield lists of some hundred rows, in the order in which they were written within `group`."""
        copied = self.copied[table]
        names = ", ".join(f"c{number}" for number in range(len(copied.columns)))
        order = f"{copied.copied_column_name(group)}, place" if group in copied.columns else "place"
        cursor = self._file.execute(
            f"SELECT {names} FROM {sqlite_copy.quote_sql_identifier(table)} ORDER BY {order}"  # ours  # noqa: S608
        )
        while chunk := cursor.fetchmany(CHUNK):
            yield [dict(zip(copied.columns, row, strict=True)) for row in chunk]

    def find_attachment_file(self, disk_path: str) -> Path | None:
        """Return the file of an attachment, or None.

        Only files next to the database count. A folder that is a link may lead anywhere, so it does not.
        """
        home = self.path.absolute().parent.resolve()
        allowed = [folder / "attachments" for folder in (home, home.parent / "data")]
        for base in (home, home.parent):
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # NUL, too long, a circle of links
                path = (base / disk_path).resolve()
                if any(path.is_relative_to(folder) for folder in allowed) and path.is_file():
                    return path
        return None

    def delete_database_copy(self) -> None:
        """Remove the copy."""
        with contextlib.suppress(sqlite3.Error, AttributeError):
            self._file.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def create_folder_and_purge_copies(work: Path | None) -> Path:
    try:
        if work is not None:
            work.mkdir(mode=0o700, parents=True, exist_ok=True)
            delete_abandoned_database_copies(work)
        return Path(tempfile.mkdtemp(prefix=WORK, dir=work))
    except OSError as problem:
        raise BadRequest(f"The copy cannot be written to {work}: {problem.strerror}.") from None


def delete_abandoned_database_copies(work: Path) -> None:
    for folder in work.glob(f"{WORK}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > ABANDONED:
                shutil.rmtree(folder, ignore_errors=True)
