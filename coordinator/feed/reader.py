"""Reading what changed since an id, and waking those who wait for it: the database is the bus.

Triggers write one row of `changes` for each change, in the transaction that makes it. Each process runs one
`ChangeFeed`: a thread that notices commits (any program's), reads what is new and hands it to listeners in order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import Error as DatabaseError
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from coordinator.engine import pooling
from coordinator.engine.commits import CommitWatcher, open_commit_watcher
from coordinator.engine.values import cast_to_text_sql
from coordinator.lib import process_metrics as meters
from coordinator.lib.instants import instant_to_milliseconds

log = logging.getLogger(__name__)

BATCH = 2000  # changes read at a time
KEEP_ROWS = 500_000
KEEP_FOR = timedelta(hours=24)
PRUNE_STEP = 5_000  # rows a transaction, so that writers never wait long


class FeedChange(NamedTuple):
    """One row of `changes`. `key` is the row's id as text, `parent` what it belongs to (contract: triggers.py)."""

    id: int
    at: int
    topic: str
    key: str
    parent: str | None
    op: str


# Ids are as other programs chose them.
COLUMNS = f"id, at, topic, {cast_to_text_sql('key')}, {cast_to_text_sql('parent')}, op"
Listener = Callable[[Sequence[FeedChange]], None]
_here: list[ChangeFeed] = []  # the feed of this process, where one runs


def local_feed_position() -> int | None:
    """Return an id up to which everything is visible to a query made from now on; None where no feed runs.

    A page notes it before it reads anything, and its stream starts there: nothing falls between the two.
    """
    return _here[-1].position if _here else None


def list_changes_after(after: int, *, upto: int, limit: int = BATCH) -> list[FeedChange]:
    """Return the changes with `after < id <= upto`, oldest first, at most `limit`."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {COLUMNS} FROM changes WHERE id > %s AND id <= %s ORDER BY id LIMIT %s",  # noqa: S608
            [after, upto, limit],
        )
        return [FeedChange(*row) for row in cursor.fetchall()]


def can_replay_changes(after: int) -> bool:
    """Say whether everything after `after` is still kept; if not, a client must reload (`reset`)."""
    oldest, newest = find_change_id_range()
    return max(oldest - 1, 0) <= after <= newest


def find_newest_change_id() -> int:
    """Return the id of the newest change. Read it before the rows that it stands for."""
    return find_change_id_range()[1]


def find_change_id_range() -> tuple[int, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT (SELECT min(id) FROM changes), (SELECT max(id) FROM changes)")
        oldest, newest = cursor.fetchone()
    return oldest or 0, newest or 0


def prune_changes(now: datetime, *, keep_rows: int = KEEP_ROWS, keep_for: timedelta = KEEP_FOR) -> int:
    """Delete changes older than `keep_for` or beyond `keep_rows`, a step at a time; return how many.

    The newest row always stays: from its id a client can tell that it missed nothing.
    """
    horizon = instant_to_milliseconds(now - keep_for)
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM changes WHERE at >= %s ORDER BY id LIMIT 1", [horizon])
        young = cursor.fetchone()
    oldest, newest = find_change_id_range()
    oldest_retained = min(max(young[0] if young else newest, newest - keep_rows + 1), newest)
    deleted = 0
    while oldest < oldest_retained:
        oldest = min(oldest + PRUNE_STEP, oldest_retained)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("DELETE FROM changes WHERE id < %s", [oldest])
            deleted += cursor.rowcount
    return deleted


class ChangeFeed:
    """One per process: follows `changes` in a thread of its own and calls every listener with each batch.

    Listeners run in that thread, one after another, in the order of ids; a slow one delays the rest, so they
    hand over and return. The feed starts with what is newest: older changes are read with `list_changes_after`.
    """

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.position = 0
        self.watchers = 0
        self.stopping = False
        self.looked_at = 0.0  # on time.monotonic's clock
        self.woken = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run_feed, name="feed", daemon=True)

    def start_feed(self, *, within: float = 5.0) -> None:
        """Start following; returns when the position is known. Raises TimeoutError where it cannot be."""
        self._thread.start()
        _here.append(self)
        if not self._ready.wait(within):
            raise TimeoutError("The feed could not read the database.")

    def stop_feed(self) -> None:
        self.stopping = True
        self.woken.set()
        if self in _here:
            _here.remove(self)
        self._thread.join(2)

    def add_watcher(self) -> None:
        """Note that somebody waits: from now on the feed polls often, until `unwatch`."""
        self.watchers += 1
        if self.watchers == 1:
            self.woken.set()  # or the slow pace would go on to the end of its pause

    def remove_watcher(self) -> None:
        """Undo one `watch`."""
        self.watchers -= 1

    def wake_feed(self) -> None:
        """Poll now, if anybody waits: this process has committed something."""
        if self.watchers and not self.woken.is_set():
            self.woken.set()

    def _run_feed(self) -> None:
        pause = 0.05
        while not self.stopping:
            wrapper = pooling.open_direct_connection()
            try:
                with closing(open_commit_watcher(wrapper)) as watcher:
                    pause = 0.05
                    self._follow_changes(watcher, wrapper)
            except DatabaseError as problem:
                log.warning("The feed lost its connection and opens another: %s", str(problem).strip())
                self.woken.wait(pause)
                pause = min(pause * 2, 2.0)
            finally:
                close_wrapper_quietly(wrapper)
        connections.close_all()

    def _follow_changes(self, watcher: CommitWatcher, wrapper: BaseDatabaseWrapper) -> None:
        newest = read_newest_change_id(wrapper)
        if not self._ready.is_set() or newest < self.position:  # the latter: an older copy was put back
            self.position = newest
            self._ready.set()
        while not self.stopping:
            batch = self._read_next_changes(wrapper)
            if batch:
                self._notify_listeners(batch)
            if len(batch) < BATCH:
                watcher.wait_for_commit(self)

    def seconds_since_poll(self) -> float:
        """Return for how many seconds the thread has not polled; infinity where it has ended."""
        return time.monotonic() - self.looked_at if self._thread.is_alive() else float("inf")

    def _read_next_changes(self, wrapper: BaseDatabaseWrapper) -> list[FeedChange]:
        self.looked_at = time.monotonic()
        with wrapper.cursor() as cursor:
            cursor.execute(
                f"SELECT {COLUMNS} FROM changes WHERE id > %s ORDER BY id LIMIT %s",  # noqa: S608
                [self.position, BATCH],
            )
            return [FeedChange(*row) for row in cursor.fetchall()]

    def _notify_listeners(self, batch: Sequence[FeedChange]) -> None:
        # Another machine's clock (PostgreSQL) may be a little ahead.
        meters.FEED_LAG.observe(max(time.time() - batch[0].at / 1000, 0.0))
        for listener in list(self.listeners):
            try:
                listener(batch)
            except Exception:  # one listener's fault must not silence the others
                log.exception("A listener of the feed failed")
        self.position = batch[-1].id


def read_newest_change_id(wrapper: BaseDatabaseWrapper) -> int:
    with wrapper.cursor() as cursor:
        cursor.execute("SELECT max(id) FROM changes")
        return int(cursor.fetchone()[0] or 0)


def close_wrapper_quietly(wrapper: BaseDatabaseWrapper) -> None:
    try:
        wrapper.close()
    except DatabaseError:
        log.debug("the feed's old connection could not be closed")
