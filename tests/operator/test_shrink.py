"""SQLite's file shrinks beside those who read and write it, or nothing changes."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.errors import Conflict
from coordinator.operations import shrinking

Usage = namedtuple("Usage", "total used free")
ROWS = 4_000


class OpenFile:
    """Stands for Django's connection, with a file of its own, which the tests' transaction does not hold."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.settings_dict = {"NAME": str(path)}

    def ensure_connection(self) -> None:
        pass

    def cursor(self) -> CursorOfFile:
        return CursorOfFile(self.connection)


class CursorOfFile:
    def __init__(self, raw: sqlite3.Connection) -> None:
        self.cursor = raw.cursor()

    def __enter__(self) -> sqlite3.Cursor:
        return self.cursor

    def __exit__(self, *_: object) -> None:
        self.cursor.close()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in WAL of which four fifths are free."""
    path = tmp_path / "signalbox.db"
    file = OpenFile(path)
    file.connection.execute("PRAGMA journal_mode = wal")
    file.connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)")
    file.connection.execute("BEGIN")
    file.connection.executemany("INSERT INTO t (body) VALUES (?)", [("x" * 4_000,)] * ROWS)
    file.connection.execute("COMMIT")
    file.connection.execute("DELETE FROM t WHERE id % 5")
    monkeypatch.setattr(shrinking, "connection", file)
    monkeypatch.setattr(shrinking, "OperationalError", sqlite3.OperationalError)
    monkeypatch.setattr(shrinking, "is_sqlite", lambda: True)
    monkeypatch.setattr(shrinking, "sqlite_files", lambda: (path, Path(f"{path}-wal")))
    monkeypatch.setattr("os.environ", dict(__import__("os").environ))
    return path


def count_rows(path: Path) -> int:
    with sqlite3.connect(path) as other:
        return int(other.execute("SELECT count(*) FROM t").fetchone()[0])


def test_the_file_shrinks_while_others_write_and_no_write_is_lost(path: Path) -> None:
    stop, written = threading.Event(), list[float]()

    def write_again_and_again() -> None:
        other = sqlite3.connect(path, isolation_level=None, timeout=20)
        while not stop.is_set():
            began = time.monotonic()
            other.execute("INSERT INTO t (body) VALUES ('new')")
            written.append(time.monotonic() - began)
        other.close()

    writer = threading.Thread(target=write_again_and_again)
    writer.start()
    try:
        outcome = shrinking.shrink_sqlite_file(60)
    finally:
        stop.set()
        writer.join()
    assert outcome.after < outcome.before / 2
    assert count_rows(path) == ROWS // 5 + len(written)


def test_what_takes_too_long_is_undone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = shrinking.measure_sqlite_file_space()
    with pytest.raises(Conflict, match="Nothing was changed"):
        shrinking.shrink_sqlite_file(room.wait_seconds / 2)
    raw = cast(Any, shrinking).connection.connection
    # The timer's interrupt, with the first step of the work.
    interrupting = SimpleNamespace(start=lambda: raw.set_progress_handler(lambda: 1, 1), cancel=lambda: None)
    monkeypatch.setattr(threading, "Timer", lambda *_: interrupting)
    with pytest.raises(Conflict, match="nothing was changed: interrupted"):
        shrinking.shrink_sqlite_file(60)
    raw.set_progress_handler(None, 1)
    assert shrinking.measure_sqlite_file_space() == room
    assert count_rows(path) == ROWS // 5


def test_without_room_on_the_disk_nothing_changes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 10, 0))
    with pytest.raises(Conflict, match="free in"):
        shrinking.shrink_sqlite_file(60)
    assert path.read_bytes() == before


def test_postgresql_is_left_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "is_sqlite", lambda: False)
    with pytest.raises(Conflict, match="Only a SQLite file"):
        shrinking.shrink_sqlite_file(60)
