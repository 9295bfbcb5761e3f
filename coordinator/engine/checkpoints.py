"""SQLite's checkpoints: what its log holds is copied into the database, so that the log can begin anew.

SQLite leaves that to whoever commits once the log is long, who then waits for the disk twice: for ten milliseconds,
every sixty small transactions. Most of it can be done while others read and write, so a thread does it, and whoever
commits finds little left. That is still needed, but much less often (`wal_autocheckpoint` in the settings): while the
thread copies, others write more, so it alone would never see the log begin anew.
"""

from __future__ import annotations

import logging
import threading

from django.db import DatabaseError, connection, connections

from coordinator.engine import is_sqlite

log = logging.getLogger(__name__)

PAGES = 2_000  # written to the log, about, after which a checkpoint is due
# About what a transaction of events adds to the log: so many pages, and one more for each event.
PAGES_A_GROUP = 14
CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"  # it waits for nobody


class Checkpointer:
    """The thread that makes checkpoints. On PostgreSQL, which makes its own, it is never started."""

    def __init__(self) -> None:
        self._pages = 0
        self._stopping = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self.run_checkpoints, name="checkpoints", daemon=True)

    def start(self) -> None:
        if is_sqlite():
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._due.set()
        if self._thread.ident is not None:
            self._thread.join(1)

    def count_written_events(self, events: int) -> None:
        """Count a transaction with so many events. Called by the one thread that writes them."""
        self._pages += PAGES_A_GROUP + events
        if self._pages >= PAGES:
            self._pages = 0
            self._due.set()

    def run_checkpoints(self) -> None:
        while self._due.wait() and not self._stopping:
            self._due.clear()
            try:
                with connection.cursor() as cursor:
                    cursor.execute(CHECKPOINT)
            except DatabaseError as problem:
                log.warning("SQLite's log cannot be copied into the database: %s", str(problem).strip())
        connections.close_all()
