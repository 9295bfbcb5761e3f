"""Noticing that somebody committed, any program: each engine's own way, for the feed's thread."""

from __future__ import annotations

import contextlib
import time
from typing import Protocol

from django.db.backends.base.base import BaseDatabaseWrapper

from coordinator.engine import is_sqlite
from coordinator.lib.wake_events import FileWriteWatcher, PollableEvent

CHANNEL = "signalbox"  # PostgreSQL's NOTIFY channel; the triggers of engine.change_triggers speak on it
FEED_SESSION = "signalbox-feed"  # as which PostgreSQL lists the sessions that listen
WATCHED_EVERY = 0.01  # seconds between looks on SQLite while somebody waits and others commit, or may
QUIET_EVERY = 0.1  # … while nobody waits, or would be told
SOON = 0.001  # … at first, once something was written
LISTEN_FOR = 0.25  # seconds on PostgreSQL after which we look anyway, for writers that do not notify


class CommitFollower(Protocol):
    """What a watcher needs of the feed that it wakes; see feed.reader.Feed."""

    watchers: int
    stopping: bool
    looked_at: float
    woken: PollableEvent


class CommitWatcher(Protocol):
    """How one engine lets us notice that somebody committed."""

    def wait_for_commit(self, feed: CommitFollower) -> None:
        """Return once something may have been committed, the feed was woken, or it is time to look anyway."""

    def close(self) -> None:
        """Give back what it holds besides its connection."""


class SqliteCommitWatcher:
    """Watches `PRAGMA data_version`: it moves when any other connection, of any program, has committed.

    Linux tells when something was written to the database's log, which happens a moment before. So we need not look
    every few milliseconds; where nobody tells, we do.
    """

    def __init__(self, wrapper: BaseDatabaseWrapper) -> None:
        self.wrapper = wrapper
        self.raw = wrapper.connection  # a poll costs 8 µs here, 30 µs through Django's cursor
        with wrapper.wrap_database_errors:
            self.raw.execute("PRAGMA query_only = 1")
        self.writes: FileWriteWatcher | None = None
        with contextlib.suppress(OSError):
            self.writes = FileWriteWatcher(f"{wrapper.settings_dict['NAME']}-wal")
        self.written_at = 0.0  # by others, for all we know; on time.monotonic's clock
        self.returned_at = 0.0
        self.version = self.read_data_version()

    def close(self) -> None:
        """See CommitWatcher."""
        if self.writes is not None:
            self.writes.close()
            self.writes = None

    def read_data_version(self) -> int:
        with self.wrapper.wrap_database_errors:
            return int(self.raw.execute("PRAGMA data_version").fetchone()[0])

    def wait_for_commit(self, feed: CommitFollower) -> None:
        """Return on a commit, of any program: at once, but for others' no more often than every 10 ms.

        Where nobody tells us, others' are seen within 10 ms; within 100 ms while nobody watches.
        """
        while not feed.stopping:
            woken, was_told = self.wait_until_check(feed)
            feed.woken.clear()
            feed.looked_at = time.monotonic()
            version = self.read_data_version()
            if not woken and not was_told and version != self.version:
                self.stop_unreliable_watch()
            if woken or version != self.version:
                self.version, self.returned_at = version, feed.looked_at
                if self.writes is not None:
                    self.writes.pause_watching()  # whoever writes all the time need not tell each time
                return

    def wait_until_check(self, feed: CommitFollower) -> tuple[bool, bool]:
        """Wait until it is time to look; say whether the feed was woken, and whether a commit may have been told of."""
        if not feed.watchers:
            return feed.woken.wait(QUIET_EVERY), True
        now = time.monotonic()
        rest = self.returned_at + WATCHED_EVERY - now
        if self.writes is None or rest > 0:
            return feed.woken.wait(WATCHED_EVERY if self.writes is None else rest), True
        if self.writes.is_paused:
            self.resume_write_watch(self.writes)
            self.written_at = now  # something may have been, and its commit is not there yet
            return feed.woken.is_set(), True
        # What was written is committed in a moment: look soon, and then less and less often.
        pause = min(max(now - self.written_at, SOON), QUIET_EVERY)
        woken = feed.woken.wait(pause, self.writes)
        if is_told := self.writes.consume_write_events():
            self.written_at = time.monotonic()
        return woken, is_told or pause < QUIET_EVERY

    def resume_write_watch(self, writes: FileWriteWatcher) -> None:
        try:
            writes.resume_watching()
        except OSError:
            self.close()

    def stop_unreliable_watch(self) -> None:
        """Rely on nobody any more where a commit was not told of: on some file systems nothing is."""
        if self.writes is not None and not self.writes.consume_write_events():
            self.close()


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
