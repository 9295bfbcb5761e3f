"""SQLite's log is copied into the database by a thread of its own, and keeps its bound without it."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from coordinator.engine import checkpoints, is_sqlite
from coordinator.engine.checkpoints import PAGES, Checkpointer
from tests.patience import until

on_sqlite = pytest.mark.skipif(not is_sqlite(), reason="PostgreSQL makes its own checkpoints")
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def checkpointer() -> Iterator[Checkpointer]:
    made = Checkpointer()
    made.start()
    yield made
    made.stop()


def copied_at() -> int:
    """Return when the database's own file was written to last: only a checkpoint does that."""
    return Path(connection.settings_dict["NAME"]).stat().st_mtime_ns


def write() -> None:
    """Add a million bytes."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO changes (at, topic, key, op) VALUES (1, 'sessions', %s, 'insert')",
            [("x" * 1_000,)] * 1_000,
        )


@on_sqlite
def test_what_was_written_is_copied_once_it_is_much(checkpointer: Checkpointer) -> None:
    before = copied_at()
    write()
    assert copied_at() == before
    checkpointer.count_written_events(PAGES)
    until(lambda: copied_at() > before, "it is in the log alone")


@on_sqlite
def test_many_small_transactions_are_much_and_few_are_not(checkpointer: Checkpointer) -> None:
    before = copied_at()
    write()
    few = PAGES // 20
    for _ in range(few):
        checkpointer.count_written_events(1)
    assert copied_at() == before
    for _ in range(few):
        checkpointer.count_written_events(1)
    until(lambda: copied_at() > before, "it is in the log alone")


@on_sqlite
def test_it_is_copied_while_another_program_writes(checkpointer: Checkpointer) -> None:
    before = copied_at()
    write()
    with contextlib.closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        checkpointer.count_written_events(PAGES)
        until(lambda: copied_at() > before, "it waits for the other program")


@on_sqlite
def test_it_goes_on_after_an_error(
    checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = copied_at()
    write()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(checkpoints, "CHECKPOINT", "no statement")
        checkpointer.count_written_events(PAGES)
        until(lambda: "cannot be copied" in caplog.text, "the error is not in the log")
    checkpointer.count_written_events(PAGES)
    until(lambda: copied_at() > before, "the thread is gone")


@on_sqlite
def test_without_it_whoever_commits_copies_a_log_of_32_megabytes() -> None:
    """The log's file never grows beyond that by much; programs that are run by hand have no such thread."""
    log = Path(f"{connection.settings_dict['NAME']}-wal")
    before = copied_at()
    for _ in range(33):
        write()
    assert copied_at() > before
    assert log.stat().st_size < 40_000_000


def test_on_postgresql_it_is_no_thread_and_it_ends_at_once(checkpointer: Checkpointer) -> None:
    named = [one for one in threading.enumerate() if one.name == "checkpoints"]
    assert bool(named) == is_sqlite()
    checkpointer.count_written_events(PAGES)
    checkpointer.stop()
    assert not any(one.is_alive() for one in named)
