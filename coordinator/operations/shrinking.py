"""Return of the space of deleted rows in SQLite's file to the disk, while the server runs.

`VACUUM` is the only way that cannot lose a write: the file keeps its name, and SQLite itself copies what is in use
into its log, in one transaction. (To swap the file for a copy would lose what another program writes meanwhile, and
`incremental_vacuum` needs a file that was made for it.) Readers go on. Writers wait for as long as it takes, which
hooks do not survive for long: so the wait is estimated before, and ended by an interrupt, which undoes everything.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from dataclasses import dataclass

from django.db import OperationalError, connection

from coordinator.engine import is_sqlite
from coordinator.engine.size import sqlite_files
from coordinator.errors import Conflict
from coordinator.lib import sizes

LONGEST_WAIT_SECONDS = 5.0  # of writers; the shortest deadline of an agent's hook is 10 s
BYTES_PER_SECOND = 60_000_000  # how much is copied, on a slow disk
SPARE_BYTES = 64 << 20  # of the disk that stay free
MUCH_FREE_BYTES, MUCH_FREE_SHARE = 256 << 20, 0.25  # what doctor names
LOCK_WAIT_SECONDS = 30
RETRY_PAUSE_SECONDS = 0.05
CHECKPOINT_TRIES = 20


@dataclass(frozen=True, slots=True)
class SqliteFileSpace:
    """What is used and what is free in SQLite's file, in bytes."""

    used: int
    free: int

    @property
    def has_much_free_space(self) -> bool:
        return self.free > MUCH_FREE_BYTES and self.free > MUCH_FREE_SHARE * (self.used + self.free)

    @property
    def wait_seconds(self) -> float:
        """About how long writers wait while the file shrinks."""
        return self.used / BYTES_PER_SECOND


@dataclass(frozen=True, slots=True)
class ShrinkOutcome:
    """How large the file was and is, and how long writers waited at most."""

    before: int
    after: int
    seconds: float


def measure_sqlite_file_space() -> SqliteFileSpace:
    """Return how much of SQLite's file is used and free."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT page_count, freelist_count, page_size"
            " FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()"
        )
        pages, free, size = cursor.fetchone()
    return SqliteFileSpace((pages - free) * size, free * size)


def require_sqlite() -> None:
    """Raise Conflict where the database is no SQLite file."""
    if not is_sqlite():
        raise Conflict("Only a SQLite file is shrunk. PostgreSQL gives room back by itself (autovacuum).")


def require_space_and_short_wait(file_room: SqliteFileSpace, longest_wait: float) -> None:
    """Raise Conflict, with what to do, where the file cannot be shrunk now."""
    folder = sqlite_files()[0].parent
    needed = 2 * file_room.used + SPARE_BYTES  # a copy, and the log through which it becomes the file
    available = shutil.disk_usage(folder).free
    if available < needed:
        raise Conflict(
            f"Shrinking needs {sizes.format_byte_count(needed)} free in {folder}, and there are"
            f" {sizes.format_byte_count(available)}. Nothing was changed."
        )
    if file_room.wait_seconds > longest_wait:
        raise Conflict(
            f"Writers, and so agents' hooks, would wait for about {file_room.wait_seconds:.0f} s. Nothing was changed."
            f" Repeat it at a quiet time with --longest-wait {2 * file_room.wait_seconds:.0f}, "
            "or with the server stopped."
        )


def shrink_sqlite_file(longest_wait: float = LONGEST_WAIT_SECONDS) -> ShrinkOutcome:
    """Shrink the file, unless writers would wait for longer than so many seconds. Raises Conflict."""
    require_sqlite()
    require_space_and_short_wait(measure_sqlite_file_space(), longest_wait)
    path = sqlite_files()[0]
    before = path.stat().st_size
    os.environ["SQLITE_TMPDIR"] = str(path.parent)  # /tmp may be memory, or full
    connection.ensure_connection()
    raw = connection.connection
    raw.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_SECONDS * 1000}")
    seconds = vacuum_and_measure_wait_seconds(raw, longest_wait)
    checkpoint_and_truncate_wal()
    return ShrinkOutcome(before, path.stat().st_size, seconds)


def vacuum_and_measure_wait_seconds(raw: sqlite3.Connection, longest_wait: float) -> float:
    """Shrink the file once no other program writes; return how long writers waited. Raises Conflict."""
    give_up_at = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        interrupting = threading.Timer(longest_wait, raw.interrupt)
        started_at = time.monotonic()
        interrupting.start()
        try:
            with connection.cursor() as cursor:
                cursor.execute("VACUUM")
            return time.monotonic() - started_at
        except OperationalError as problem:
            # Somebody wrote between the look at the file and the lock: nothing was done yet.
            if "locked" not in str(problem) or time.monotonic() > give_up_at:
                raise Conflict(f"The file was not shrunk, and nothing was changed: {problem}.") from None
        finally:
            interrupting.cancel()
        time.sleep(RETRY_PAUSE_SECONDS)


def checkpoint_and_truncate_wal() -> None:
    """Have the copy become the file, as soon as nobody reads what was before it."""
    for _ in range(CHECKPOINT_TRIES):
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            is_busy, *_pages = cursor.fetchone()
        if not is_busy:
            return
        time.sleep(RETRY_PAUSE_SECONDS)
