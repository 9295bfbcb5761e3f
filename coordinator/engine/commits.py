"""Noticing that somebody committed, any program: each engine's own way, for the feed's thread."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from django.db.backends.base.base import BaseDatabaseWrapper

from coordinator.engine import is_sqlite

CHANNEL = "signalbox"  # PostgreSQL's NOTIFY channel; the triggers of engine.change_triggers speak on it
FEED_SESSION = "signalbox-feed"  # as which PostgreSQL lists the sessions that listen
WATCHED_EVERY = 0.01  # seconds between looks on SQLite while somebody waits
QUIET_EVERY = 0.1  # … while nobody does
LISTEN_FOR = 0.25  # seconds on PostgreSQL after which we look anyway, for writers that do not notify


class Follower(Protocol):
    """What a watcher needs of the feed that it wakes; see feed.reader.Feed."""

    watchers: int
    stopping: bool
    looked_at: float
    woken: threading.Event


class CommitWatcher(Protocol):
    """How one engine lets us notice that somebody committed."""

    def listen(self, feed: Follower) -> None:
        """Return once something may have been committed, the feed was woken, or it is time to look anyway."""


class SqliteCommitWatcher:
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

    def listen(self, feed: Follower) -> None:
        """Return on a commit: of this process at once, of others within 10 ms (100 ms while nobody watches)."""
        while not feed.stopping:
            woken = feed.woken.wait(WATCHED_EVERY if feed.watchers else QUIET_EVERY)
            feed.woken.clear()
            feed.looked_at = time.monotonic()
            version = self._look()
            if woken or version != self.version:
                self.version = version
                return


class PostgresCommitWatcher:
    """LISTENs on a session of its own."""

    def __init__(self, wrapper: BaseDatabaseWrapper) -> None:
        self.wrapper = wrapper
        with wrapper.cursor() as cursor:
            cursor.execute(f"SET application_name = '{FEED_SESSION}'")
            cursor.execute(f"LISTEN {CHANNEL}")

    def listen(self, feed: Follower) -> None:
        """See CommitWatcher."""
        with self.wrapper.wrap_database_errors:
            for _notice in self.wrapper.connection.notifies(timeout=LISTEN_FOR, stop_after=1):
                pass


def open_commit_watcher(wrapper: BaseDatabaseWrapper) -> CommitWatcher:
    """Connect and start to notice commits."""
    wrapper.ensure_connection()
    if is_sqlite(wrapper):
        return SqliteCommitWatcher(wrapper)
    return PostgresCommitWatcher(wrapper)
