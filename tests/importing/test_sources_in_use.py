"""A source is read while its own program writes: nobody waits for us, and nothing is left beside it."""

from __future__ import annotations

import multiprocessing
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from coordinator.errors import BadRequest
from coordinator.importing import sqlite_copy
from coordinator.importing.source_database import SourceDatabase
from coordinator.models import Agent, Event
from tests.importing.sources import AGENT, EVENT, SESSION, add, brought, database

pytestmark = pytest.mark.django_db


def names_beside(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


def many_events(path: Path, number: int) -> None:
    file = database(path)
    add(file, "sessions", SESSION)
    file.executemany(
        "INSERT INTO events (session_id, event_type, timestamp, content) VALUES ('ses_1', 'message', ?, ?)",
        ((f"2026-02-23T12:00:00.{n:06}Z", "x" * 300) for n in range(number)),
    )
    file.commit()
    file.close()


def write_on(path: str, mode: str, stop: Any, begun: Any, stalls: Any) -> None:
    """Write an event after the other until told to stop; say how long the longest took and how many there were."""
    file = sqlite3.connect(path, timeout=30, isolation_level=None)
    file.execute(f"PRAGMA journal_mode = {mode}")
    longest, number = 0.0, 0
    while not stop.is_set():
        at = time.perf_counter()
        file.execute(
            "INSERT INTO events (session_id, event_type, timestamp) VALUES ('ses_1', 'later', '2026-02-24T00:00:00Z')"
        )
        longest, number = max(longest, time.perf_counter() - at), number + 1
        begun.set()
    file.close()
    stalls.put((longest, number))


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_writer_goes_on_while_its_database_is_copied(path: Path, mode: str) -> None:
    many_events(path, 60_000)
    own = multiprocessing.get_context("fork")
    stop, begun, stalls = own.Event(), own.Event(), own.Queue()
    writer = own.Process(target=write_on, args=(str(path), mode, stop, begun, stalls), daemon=True)
    writer.start()
    try:
        assert begun.wait(60)
        source = SourceDatabase(path)
        copied = source.source_row_count("events")
        source.delete_database_copy()
    finally:
        stop.set()
    longest, number = stalls.get(timeout=60)
    writer.join(60)
    assert copied >= 60_000
    assert number > 0
    assert longest < 2  # the copy takes many times as long as one of its reads; a busy machine some of that
    if mode == "delete":
        assert names_beside(path) == ["cloto.db"]


def test_one_read_of_a_source_is_short(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many rows are read at once as take a fiftieth of a second, whatever a row is long."""
    assert sqlite_copy.SHORT <= 0.02
    assert [
        sqlite_copy.adapt_copy_chunk_size(size, seconds)
        for size, seconds in ((100, 1.0), (100, 0.001), (1, 1.0))
    ] == [
        50,
        200,
        1,
    ]
    assert sqlite_copy.adapt_copy_chunk_size(20_000, 0.0) == sqlite_copy.MOST_ROWS


def test_events_that_come_after_the_copy_began_wait_for_the_next_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_events(path, 1_000)
    plain = sqlite_copy.SqliteTableCopier.copy_source_table

    def written_meanwhile(copy: Any, table: sqlite_copy.CopiedTable, end: int) -> None:
        if table.name == "agents":
            with sqlite3.connect(path) as file:
                file.execute(
                    "INSERT INTO sessions (session_id, status, created_at) VALUES ('later', 'x', 'x')"
                )
                file.execute(
                    "INSERT INTO events (session_id, event_type, timestamp) VALUES ('later', 'x', 'x')"
                )
            file.close()
        plain(copy, table, end)

    monkeypatch.setattr(sqlite_copy.SqliteTableCopier, "copy_source_table", written_meanwhile)
    done = {one.table: one for one in brought(path).outcomes}
    assert (done["sessions"].added, done["events"].added) == (1, 1_000)
    assert not done["events"].left_out
    monkeypatch.undo()
    done = {one.table: one for one in brought(path).outcomes}
    assert (done["sessions"].added, done["events"].added) == (1, 1)


def as_wal(path: Path) -> sqlite3.Connection:
    """A source whose last rows are in the -wal file alone; it stays open."""
    file = database(path)
    file.execute("PRAGMA journal_mode = wal")
    file.execute("PRAGMA wal_autocheckpoint = 0")
    add(file, "agents", AGENT)
    return file


@pytest.mark.parametrize("beside", [("-wal",), ("-wal", "-shm"), ()])
def test_a_wal_that_a_crash_or_a_read_only_disk_left_is_read(
    path: Path, tmp_path: Path, beside: tuple[str, ...]
) -> None:
    made = tmp_path / "made" / "x.db"
    file = as_wal(made)
    path.parent.mkdir(parents=True)
    for ending in ("", *beside):
        shutil.copyfile(f"{made}{ending}", f"{path}{ending}")
    file.close()
    there = names_beside(path)
    brought(path)
    assert names_beside(path) == there
    assert Agent.objects.filter(pk="agent.watch").exists() is ("-wal" in beside)


def test_a_wal_database_in_use_is_read_and_left_alone(path: Path) -> None:
    file = as_wal(path)
    there = names_beside(path)
    before = path.read_bytes()
    brought(path)
    assert names_beside(path) == there
    assert path.read_bytes() == before
    assert Agent.objects.filter(pk="agent.watch").exists()
    add(file, "agents", {**AGENT, "id": "agent.later"})
    assert {one.table: one.added for one in brought(path).outcomes}["agents"] == 1


def test_a_transaction_that_a_crash_left_half_done_is_undone_in_the_copy(path: Path, tmp_path: Path) -> None:
    made = tmp_path / "made" / "x.db"
    file = database(made)
    add(file, "agents", AGENT)
    file.execute("PRAGMA cache_size = 1")  # so that the file is written to before the commit
    file.execute("BEGIN IMMEDIATE")
    file.executemany(
        "INSERT INTO plugin_data (plugin_id, key, value) VALUES ('p', ?, ?)",
        ((n, "x" * 2000) for n in range(200)),
    )
    path.parent.mkdir(parents=True)
    for ending in ("", "-journal"):
        shutil.copyfile(f"{made}{ending}", f"{path}{ending}")
    file.rollback()
    file.close()
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    done = {one.table: one for one in brought(path).outcomes}
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
    assert (done["agents"].added, done["plugin_data"].rows) == (1, 0)


def test_a_source_that_somebody_keeps_locked_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_copy, "WRITER_WAIT_SECONDS", 0)
    file = database(path)
    file.execute("BEGIN EXCLUSIVE")
    with pytest.raises(BadRequest, match="database is locked"):
        SourceDatabase(path)
    file.rollback()


def test_the_copy_is_private_and_goes_with_the_import(path: Path, tmp_path: Path) -> None:
    many_events(path, 10)
    source = SourceDatabase(path, tmp_path / "work")
    assert source.folder.parent == tmp_path / "work"
    assert source.folder.stat().st_mode & 0o077 == 0
    source.delete_database_copy()
    assert not list((tmp_path / "work").iterdir())


def test_events_stand_in_the_order_in_which_they_were_written(path: Path) -> None:
    file = database(path)
    add(file, "sessions", SESSION, {**SESSION, "session_id": "ses_0"})
    for number in range(20):
        add(file, "events", {**EVENT, "session_id": f"ses_{number % 2}", "reason": f"{number:02}"})
    brought(path)
    for session in ("ses_0", "ses_1"):
        told = list(Event.objects.filter(session_id=session).order_by("id").values_list("reason", flat=True))
        assert told == sorted(told)  # type: ignore[type-var]
