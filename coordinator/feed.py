"""What changed since N, and waking whoever waits for it: the database is the bus (design §4).

Triggers write one row of `changes` for each change, in the transaction that makes it. Each process runs one
`Feed`: a thread that notices commits (any program's), reads what is new and hands it to listeners in order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from django.db import Error as DatabaseError
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from coordinator import meters

log = logging.getLogger(__name__)

CHANNEL = "signalbox"  # PostgreSQL's NOTIFY channel; coordinator/triggers.py speaks on it
WATCHED_EVERY = 0.01  # seconds between looks on SQLite while somebody waits
QUIET_EVERY = 0.1  # … while nobody does
LISTEN_FOR = 0.25  # seconds on PostgreSQL after which we look anyway, for writers that do not notify
BATCH = 2000  # changes read at a time
KEEP_ROWS = 500_000
KEEP_FOR = timedelta(hours=24)
PRUNE_STEP = 5_000  # rows a transaction, so that writers never wait long


class Change(NamedTuple):
    """One row of `changes`. `key` is the row's id as text, `parent` what it belongs to (contract: triggers.py)."""

    id: int
    at: int
    topic: str
    key: str
    parent: str | None
    op: str


Listener = Callable[[Sequence[Change]], None]
_here: list[Feed] = []  # the feed of this process, where one runs


def position_here() -> int | None:
    """Return an id up to which everything is visible to a query made from now on; None where no feed runs.

    A page notes it before it reads anything, and its stream starts there: nothing falls between the two.
    """
    return _here[-1].position if _here else None


def changes_after(after: int, *, upto: int, limit: int = BATCH) -> list[Change]:
    """Return the changes with `after < id <= upto`, oldest first, at most `limit`."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, at, topic, key, parent, op FROM changes WHERE id > %s AND id <= %s ORDER BY id LIMIT %s",
            [after, upto, limit],
        )
        return [Change(*row) for row in cursor.fetchall()]


def can_replay(after: int) -> bool:
    """Say whether everything after `after` is still kept; if not, a client must load afresh (`reset`)."""
    oldest, newest = _ends()
    return max(oldest - 1, 0) <= after <= newest


def _ends() -> tuple[int, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT (SELECT min(id) FROM changes), (SELECT max(id) FROM changes)")
        oldest, newest = cursor.fetchone()
    return oldest or 0, newest or 0


def prune(now: datetime, *, keep_rows: int = KEEP_ROWS, keep_for: timedelta = KEEP_FOR) -> int:
    """Delete changes older than `keep_for` or beyond `keep_rows`, a step at a time; return how many.

    The newest row always stays: from its id a client can tell that it missed nothing.
    """
    horizon = int((now - keep_for).timestamp() * 1000)
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM changes WHERE at >= %s ORDER BY id LIMIT 1", [horizon])
        young = cursor.fetchone()
    oldest, newest = _ends()
    first_kept = min(max(young[0] if young else newest, newest - keep_rows + 1), newest)
    deleted = 0
    while oldest < first_kept:
        oldest = min(oldest + PRUNE_STEP, first_kept)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("DELETE FROM changes WHERE id < %s", [oldest])
            deleted += cursor.rowcount
    return deleted


class Ear(Protocol):
    """How one engine lets us notice that somebody committed."""

    def listen(self, feed: Feed) -> None:
        """Return once something may have been committed, the feed was woken, or it is time to look anyway."""


class SqliteEar:
    """Watches `PRAGMA data_version`: it moves when any other connection, of any program, has committed."""

    def __init__(self, wrapper: BaseDatabaseWrapper) -> None:
        self.wrapper = wrapper
        self.raw = wrapper.connection  # a poll costs 8 µs here, 30 µs through Django's cursor
        with wrapper.wrap_database_errors:
            self.raw.execute("PRAGMA query_only = 1")
        self.version = self._look()

    def _look(self) -> int:
        with self.wrapper.wrap_database_errors:
            return int(self.raw.execute("PRAGMA data_version").fetchone()[0])

    def listen(self, feed: Feed) -> None:
        """See Ear. A commit of this process wakes the feed at once, others within 10 ms (100 ms unwatched)."""
        while not feed.stopping:
            woken = feed.woken.wait(WATCHED_EVERY if feed.watchers else QUIET_EVERY)
            feed.woken.clear()
            feed.looked_at = time.monotonic()
            version = self._look()
            if woken or version != self.version:
                self.version = version
                return


class PostgresEar:
    """LISTENs on a session of its own."""

    def __init__(self, wrapper: BaseDatabaseWrapper) -> None:
        self.wrapper = wrapper
        with wrapper.cursor() as cursor:
            cursor.execute("SET application_name = 'signalbox-feed'")
            cursor.execute(f"LISTEN {CHANNEL}")

    def listen(self, feed: Feed) -> None:
        """See Ear."""
        with self.wrapper.wrap_database_errors:
            for _notice in self.wrapper.connection.notifies(timeout=LISTEN_FOR, stop_after=1):
                pass


class Feed:
    """One a process: follows `changes` in a thread of its own and calls every listener with each batch.

    Listeners run in that thread, one after another, in the order of ids; a slow one delays the rest, so they
    hand over and return. The feed starts with what is newest: older changes are read with `changes_after`.
    """

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.position = 0
        self.watchers = 0
        self.stopping = False
        self.looked_at = 0.0  # on time.monotonic's clock
        self.woken = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self, *, within: float = 5.0) -> None:
        """Start following; returns when the position is known. Raises TimeoutError where it cannot be."""
        self._thread.start()
        _here.append(self)
        if not self._ready.wait(within):
            raise TimeoutError("The feed could not read the database.")

    def stop(self) -> None:
        """End the thread."""
        self.stopping = True
        self.woken.set()
        if self in _here:
            _here.remove(self)
        self._thread.join(2)

    def watch(self) -> None:
        """Say that somebody waits from now on: the feed looks often, at once, until `unwatch`."""
        self.watchers += 1
        if self.watchers == 1:
            self.woken.set()  # or the slow pace would go on to the end of its pause

    def unwatch(self) -> None:
        """Say that one who waited does not wait any more."""
        self.watchers -= 1

    def wake(self) -> None:
        """Say that this process has committed something: look now, if anybody waits for it."""
        if self.watchers and not self.woken.is_set():
            self.woken.set()

    def _run(self) -> None:
        pause = 0.05
        while not self.stopping:
            wrapper = connections.create_connection("default")
            try:
                ear = open_ear(wrapper)
                pause = 0.05
                self._follow(ear, wrapper)
            except DatabaseError as problem:
                log.warning("The feed lost its connection and opens another: %s", str(problem).strip())
                self.woken.wait(pause)
                pause = min(pause * 2, 2.0)
            finally:
                _close_quietly(wrapper)
        connections.close_all()

    def _follow(self, ear: Ear, wrapper: BaseDatabaseWrapper) -> None:
        newest = _newest(wrapper)
        if not self._ready.is_set() or newest < self.position:  # the latter: an older copy was put back
            self.position = newest
            self._ready.set()
        while not self.stopping:
            batch = self._read(wrapper)
            if batch:
                self._tell(batch)
            if len(batch) < BATCH:
                ear.listen(self)

    def silent_for(self) -> float:
        """Return for how many seconds the thread has not looked; infinity where it is gone."""
        return time.monotonic() - self.looked_at if self._thread.is_alive() else float("inf")

    def _read(self, wrapper: BaseDatabaseWrapper) -> list[Change]:
        self.looked_at = time.monotonic()
        with wrapper.cursor() as cursor:
            cursor.execute(
                "SELECT id, at, topic, key, parent, op FROM changes WHERE id > %s ORDER BY id LIMIT %s",
                [self.position, BATCH],
            )
            return [Change(*row) for row in cursor.fetchall()]

    def _tell(self, batch: Sequence[Change]) -> None:
        # Another machine's clock (PostgreSQL) may be a little ahead.
        meters.FEED_LAG.observe(max(time.time() - batch[0].at / 1000, 0.0))
        for listener in list(self.listeners):
            try:
                listener(batch)
            except Exception:  # one listener's fault must not silence the others
                log.exception("A listener of the feed failed")
        self.position = batch[-1].id


def open_ear(wrapper: BaseDatabaseWrapper) -> Ear:
    """Connect and start to notice commits."""
    wrapper.ensure_connection()
    if wrapper.vendor == "sqlite":
        return SqliteEar(wrapper)
    return PostgresEar(wrapper)


def _newest(wrapper: BaseDatabaseWrapper) -> int:
    with wrapper.cursor() as cursor:
        cursor.execute("SELECT max(id) FROM changes")
        return int(cursor.fetchone()[0] or 0)


def _close_quietly(wrapper: BaseDatabaseWrapper) -> None:
    try:
        wrapper.close()
    except DatabaseError:
        log.debug("the feed's old connection could not be closed")
