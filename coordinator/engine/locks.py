"""Locks and waiting for them. SQLite has one writer at a time, so most of this is PostgreSQL's."""

from __future__ import annotations

import contextlib
import fcntl
import random
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from coordinator.engine import is_sqlite

# PostgreSQL's words for a deadlock and for a lock that was not had within `bound_lock_waits`: the transaction is undone
# as a whole, and a caller with time left tries again.
DEADLOCK, NO_LOCK = "40P01", "55P03"
EACH_CONNECTION_WAITS = 3.0  # seconds for a lock of PostgreSQL, as the settings ask for when it is opened
MIGRATION_LOCK_PAUSE_SECONDS = 0.2  # a migration takes longer than that
TRIES = 40  # who indexes events holds their locks for longer than one moment
TRY_PAUSE_SECONDS = 0.25  # those who queued behind us have their turn
# Any number that nobody else uses for an advisory lock on this database.
MIGRATION_LOCK = 0x51_6E_A1_B0

# Sessions locked from child to parent, as actions.runs does; a parent's circle, written by others, ends somewhere.
LOCK_TO_MOVE = """
WITH RECURSIVE line (session_id, above, depth) AS (
    SELECT session_id, parent_session_id, 0 FROM sessions WHERE session_id = ANY(%s)
    UNION ALL
    SELECT line.session_id, s.parent_session_id, line.depth + 1
    FROM line JOIN sessions s ON s.session_id = line.above WHERE line.depth < 50
), ranked AS (SELECT session_id, max(depth) AS depth FROM line GROUP BY session_id)
SELECT s.session_id FROM ranked JOIN sessions s USING (session_id)
ORDER BY ranked.depth DESC, s.session_id FOR NO KEY UPDATE OF s
"""


def lock_existing_sessions(session_ids: list[str]) -> set[str]:
    """Return those of the sessions that exist, held against deletion until the transaction ends."""
    with connection.cursor() as cursor:
        if is_sqlite():
            cursor.execute(
                "SELECT session_id FROM sessions WHERE session_id IN (SELECT value FROM json_each(%s))",
                [msgspec.json.encode(session_ids).decode()],
            )
        else:
            cursor.execute(
                "SELECT session_id FROM sessions WHERE session_id = ANY(%s) ORDER BY session_id FOR KEY SHARE",
                [session_ids],
            )
        return {row[0] for row in cursor.fetchall()}


def lock_sessions_in_order(session_ids: Collection[str]) -> None:
    """Lock, in one order for all writers, the sessions whose status may change: each in its event's turn would
    be another order in every process, and PostgreSQL ends such a deadlock by refusing a whole group."""
    if len(session_ids) > 1 and not is_sqlite():
        with connection.cursor() as cursor:
            cursor.execute(LOCK_TO_MOVE, [list(session_ids)])


def lock_table_against_writes(table: str) -> None:
    """Wait for those who write to `table`, and keep others from it until the transaction ends."""
    if not is_sqlite():
        with connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")


def set_sqlite_busy_timeout(milliseconds: int) -> None:
    """Have this connection wait so long for SQLite's one writer; PostgreSQL's writers wait for rows alone."""
    if is_sqlite():
        connection.ensure_connection()
        connection.connection.execute(f"PRAGMA busy_timeout = {milliseconds}")


def set_new_connections_lock_timeout(milliseconds: int) -> None:
    """Have every connection that this process opens from now on wait so long for a lock, on both engines.

    For commands that people run by hand: a server that writes without a pause goes first.
    """

    def set_lock_timeout(connection: BaseDatabaseWrapper, **_: object) -> None:
        with connection.cursor() as cursor:
            name = "PRAGMA busy_timeout" if is_sqlite() else "SET lock_timeout"
            cursor.execute(f"{name} = {milliseconds}")

    connection_created.connect(set_lock_timeout, weak=False, dispatch_uid="let_connections_wait")


@contextlib.contextmanager
def shorten_busy_timeout_during_block(milliseconds: int) -> Iterator[None]:
    """Wait only so long for SQLite's one writer within the block: for writes that may as well be left out."""
    if not is_sqlite():
        yield
        return
    connection.ensure_connection()
    raw = connection.connection
    (before,) = raw.execute("PRAGMA busy_timeout").fetchone()
    set_sqlite_busy_timeout(milliseconds)
    try:
        yield
    finally:
        raw.execute(f"PRAGMA busy_timeout = {before}")


def shorten_connection_lock_waits(prepared: object) -> object:
    """On SQLite, do not sleep for the write lock inside the library, whose sleeps are long: look for it often, for
    some milliseconds, then fail. The caller retries, and watches the time.

    Return the raw connection that is set up so; `prepared` is the one that was.
    """
    if is_sqlite():
        connection.ensure_connection()
        if connection.connection is not prepared:
            set_sqlite_busy_timeout(0)
            connection.looks_often = True  # type: ignore[attr-defined] # engine.sqlite
    return connection.connection


def limit_lock_wait(seconds: float) -> None:
    """On PostgreSQL, wait for a lock, at commit too, no longer than this until the transaction ends.

    Where each connection waits shorter by itself, that is kept: it spares a round trip, and the caller tries again.
    """
    if is_sqlite() or (seconds >= EACH_CONNECTION_WAITS and has_default_lock_timeout()):
        return
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = {max(int(seconds * 1000), 1)}")


def has_default_lock_timeout() -> bool:
    """Say whether the connection has that limit: behind a pooler it has none, DATABASE_URL may ask for another."""
    options = connection.settings_dict["OPTIONS"].get("options", "")
    return f"lock_timeout={int(EACH_CONNECTION_WAITS * 1000)}" in options.split()


def is_retryable_lock_error(problem: OperationalError) -> bool:
    """Say whether the next try may go through: a lock was taken, or PostgreSQL ended a deadlock with us."""
    if is_sqlite():
        return "locked" in str(problem) or "busy" in str(problem)
    return getattr(problem.__cause__, "sqlstate", None) in {DEADLOCK, NO_LOCK}


def run_with_lock_retries(work: Callable[[], object], tries: int = TRIES) -> None:
    """Do what needs locks that everybody needs: a moment's wait each time, with pauses in which others go on.

    Raises the last OperationalError where they are not to be had.
    """
    for remaining_tries in reversed(range(tries)):
        try:
            work()
        except OperationalError as problem:
            if not remaining_tries or not is_retryable_lock_error(problem) or connection.in_atomic_block:
                raise
            time.sleep(TRY_PAUSE_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 # only so as not to keep step with a job
        else:
            return


def is_commit_uncertain(problem: OperationalError) -> bool:
    """Say whether the database may have committed without our knowing. SQLite says what it did."""
    if is_sqlite():
        return False
    state = getattr(problem.__cause__, "sqlstate", None)
    return state is None or state.startswith(("08", "57P"))


@contextlib.contextmanager
def hold_migration_lock() -> Iterator[None]:
    """Hold the one right to migrate this database, waiting for its current holder."""
    if is_sqlite():
        lock = Path(f"{connection.settings_dict['NAME']}.migrating")
        with lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        return
    with connection.cursor() as cursor:
        # Asked for again and again: a statement that waits for the lock holds a snapshot meanwhile, and an index that
        # the migrating process builds concurrently would wait for that one to end.
        while True:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [MIGRATION_LOCK])
            if cursor.fetchone()[0]:
                break
            time.sleep(MIGRATION_LOCK_PAUSE_SECONDS)
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])
