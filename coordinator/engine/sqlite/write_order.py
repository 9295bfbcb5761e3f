"""The order in which SQLite's writers get its one write lock: people first.

SQLite hands its lock to the first to ask after it came free. A worker's group writer asks again within a millisecond,
so that under a flood of events a person's decision, which SQLite has sleep for up to 100 ms between two tries, might
not get it in three seconds.

A file next to the database says that a person's write waits: its connection holds an exclusive `flock` on it until it
has the write lock. All other writers look at the file before each try for the write lock, by a shared `flock` that they
let go at once, and wait while it is locked, `STAND_BACK_SECONDS` at most before each transaction: people who
write without end do not stop programs. The system frees the file's lock where a process dies, and it holds between all
processes of this machine that share the database. Without the file (a database in memory, a folder that cannot be
written to) all writers are treated alike.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from coordinator.lib.fair_queue import is_caller_signed_in_person

FILE_ENDING = ".people-wait"
STAND_BACK_SECONDS = 0.5
PERSON_TRIES_EVERY = 0.0005  # seconds
PROGRAM_TRIES_EVERY = 0.002  # seconds; as many threads may try at once as answer pages and hooks


class WriteOrder:
    """One connection's part in the order. Used by the connection's thread alone."""

    def __init__(self, database: str) -> None:
        self._path = f"{database}{FILE_ENDING}" if Path(database).is_absolute() else None
        self._file: int | None = None
        self._stand_back_seconds_left = STAND_BACK_SECONDS

    def begin_write(
        self, begin: Callable[[], object], *, seconds: float, try_every: float | None = None
    ) -> None:
        """Call `begin` until it has the write lock, for about so many seconds.

        Raises what `begin` raises: at once where that is not for the lock, and where the lock did not come free.
        """
        if is_caller_signed_in_person():
            self.begin_write_for_person(begin, int(seconds / PERSON_TRIES_EVERY))
        else:
            self.begin_write_for_program(begin, seconds, try_every or PROGRAM_TRIES_EVERY)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def begin_write_for_person(self, begin: Callable[[], object], tries: int) -> None:
        is_announced = False
        try:
            for _ in range(tries - 1):
                if try_begin_write_transaction(begin):
                    return
                is_announced = is_announced or self._try_lock_order_file(fcntl.LOCK_EX)
                time.sleep(PERSON_TRIES_EVERY)
            begin()
        finally:
            if is_announced:
                self._unlock_order_file()

    def begin_write_for_program(self, begin: Callable[[], object], seconds: float, try_every: float) -> None:
        for _ in range(round(seconds / try_every) - 1):
            self.wait_for_writes_of_people(try_every)
            if try_begin_write_transaction(begin):
                break
            time.sleep(try_every)
        else:
            self.wait_for_writes_of_people(try_every)
            begin()
        self._stand_back_seconds_left = STAND_BACK_SECONDS

    def wait_for_writes_of_people(self, check_every: float) -> None:
        while self._stand_back_seconds_left > 0 and self.is_person_waiting():
            time.sleep(check_every)
            self._stand_back_seconds_left -= check_every

    def is_person_waiting(self) -> bool:
        if self._try_lock_order_file(fcntl.LOCK_SH):
            self._unlock_order_file()
            return False
        return self._file is not None

    def _try_lock_order_file(self, kind: int) -> bool:
        """Lock the file if it is free; say whether this connection has locked it."""
        if self._file is None and self._path is not None:
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except OSError:
                self._path = None
        if self._file is None:
            return False
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _unlock_order_file(self) -> None:
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def try_begin_write_transaction(begin: Callable[[], object]) -> bool:
    """Call `begin`; say whether it has the write lock. Raises what it raises for anything else than the lock."""
    try:
        begin()
    except sqlite3.OperationalError as problem:
        if problem.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True
