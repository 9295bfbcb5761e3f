"""Noticing that somebody committed, any program: each engine's own way, for the feed's thread."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from django.db.backends.base.base import BaseDatabaseWrapper

from coordinator.engine import is_sqlite

CHANNEL = "signalbox"  # PostgreSQL's NOTIFY channel; the triggers of engine.change_triggers speak on it
FEED_SESSION = "signalbox-feed"  # as which PostgreSQL lists the sessions that listen
WATCHED_POLL_SECONDS = 0.02  # between polls of SQLite while somebody waits: no person notices
QUIET_POLL_SECONDS = 0.1  # … while nobody waits
LISTEN_FOR = 0.25  # seconds on PostgreSQL after which we look anyway, for writers that do not notify


class CommitFollower(Protocol):
    """What a watcher needs of the feed that it wakes; see feed.reader.ChangeFeed."""

    watchers: int
    stopping: bool
    looked_at: float
    woken: threading.Event


class CommitWatcher(Protocol):
    """How one engine lets us notice that somebody committed."""

    def wait_for_commit(self, feed: CommitFollower) -> None:
        """Return once something may have been committed, the feed was woken, or it is time to look anyway."""

    def close(self) -> None:
        """Release what it holds besides its connection."""


class SqliteCommitWatcher:
    """Polls `PRAGMA data_version`: it moves when any other connection, of any program, has committed.

    A poll takes some 0.1 ms of processor time with its wait: 0.5 % of a core for a worker in which somebody waits, a
    tenth of a percent where nobody does. What this process commits wakes the feed at once (`wake_feed`).
    """

    def __init__(self, wrapper: BaseDatabaseWrapper) -> None:
        self.wrapper = wrapper
        self.raw = wrapper.connection  # a poll costs 8 µs here, 30 µs through Django's cursor
        with wrapper.wrap_database_errors:
            self.raw.execute("PRAGMA query_only = 1")
        self.version = self.read_data_version()

    def close(self) -> None:
        """See CommitWatcher."""

    def read_data_version(self) -> int:
        with self.wrapper.wrap_database_errors:
            return int(self.raw.execute("PRAGMA data_version").fetchone()[0])

    def wait_for_commit(self, feed: CommitFollower) -> None:
        """Return on a commit, of any program: others' are seen within 20 ms; within 100 ms while nobody watches."""
        while not feed.stopping:
            woken = feed.woken.wait(WATCHED_POLL_SECONDS if feed.watchers else QUIET_POLL_SECONDS)
            feed.woken.clear()
            feed.looked_at = time.monotonic()
            version = self.read_data_version()
            if woken or version != self.version:
                self.version = version
                return


class PostgresCommitWatcher:
    """LISTENs on a session of its own."""

    def __init__(self, wrapper: BaseDatabaseWrapper) -> None:
        self.wrapper = wrapper
        with wrapper.cursor() as cursor:
            cursor.execute(f"SET application_name = '{FEED_SESSION}'")
            # Its one query's plan is kept. One that was made while there were few changes would read all of them.
            cursor.execute("SET enable_seqscan = off")
            cursor.execute(f"LISTEN {CHANNEL}")

    def wait_for_commit(self, feed: CommitFollower) -> None:
        """See CommitWatcher."""
        with self.wrapper.wrap_database_errors:
            for _notice in self.wrapper.connection.notifies(timeout=LISTEN_FOR, stop_after=1):
                pass

    def close(self) -> None:
        """See CommitWatcher."""


def open_commit_watcher(wrapper: BaseDatabaseWrapper) -> CommitWatcher:
    """Connect and start to notice commits."""
    wrapper.ensure_connection()
    if is_sqlite(wrapper):
        return SqliteCommitWatcher(wrapper)
    return PostgresCommitWatcher(wrapper)
