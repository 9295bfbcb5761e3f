"""How the writer waits for SQLite's one write lock, and what its statements share."""

from __future__ import annotations

import fcntl
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import OperationalError, connection, connections, transaction

from coordinator.engine import is_sqlite, locks
from coordinator.engine.sqlite import base, write_order
from coordinator.lib.fair_queue import CALLER, FairThreadPool
from tests.patience import PATIENCE

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not is_sqlite(), reason="PostgreSQL has a lock for each row"),
]


@pytest.fixture
def other() -> Iterator[sqlite3.Connection]:
    """Another program that writes just now; the connection of the test does not wait in SQLite's library."""
    other = sqlite3.connect(str(connection.settings_dict["NAME"]), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    locks.shorten_connection_lock_waits(None)
    yield other
    other.close()
    connection.close()
    del connection.looks_often  # type: ignore[attr-defined]


def test_a_transaction_begins_as_soon_as_another_program_has_written(
    other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def rest(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            other.execute("ROLLBACK")

    monkeypatch.setattr(write_order.time, "sleep", rest)
    with transaction.atomic():
        assert connection.in_atomic_block
    assert slept == [base.LOOK_EVERY] * 3


def test_a_lock_that_does_not_come_free_is_told_after_some_looks(
    other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(write_order.time, "sleep", slept.append)
    with pytest.raises(OperationalError) as refused, transaction.atomic():
        pass
    assert locks.is_retryable_lock_error(refused.value)
    assert len(slept) == base.LOOKS - 1
    assert not connection.in_atomic_block
    other.execute("ROLLBACK")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def database_path() -> str:
    """Return the path of the test's database."""
    return str(connection.settings_dict["NAME"])


def write_as(caller: str, order: list[str]) -> threading.Thread:
    """Begin a transaction in a thread of its own, as `caller`, and note there when it has begun."""

    def write() -> None:
        CALLER.set(caller)
        with transaction.atomic():
            order.append(caller)
        connections.close_all()

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def wait_until_person_waits() -> None:
    """Return as soon as a person's write waits for the lock."""
    deadline = time.monotonic() + PATIENCE
    with Path(database_path() + write_order.FILE_ENDING).open("a") as file:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(0.001)
    raise AssertionError("no person's write waits")


def test_a_person_writes_before_programs_that_asked_later_and_try_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_order, "PERSON_TRIES_EVERY", 0.05)
    monkeypatch.setattr(write_order, "PROGRAM_TRIES_EVERY", 0.0001)
    order: list[str] = []
    other = sqlite3.connect(database_path(), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    threads = [write_as("person:1", order)]
    wait_until_person_waits()
    threads += [write_as(caller, order) for caller in ("key:1", "key:2", "")]
    other.execute("ROLLBACK")
    for thread in threads:
        thread.join(PATIENCE)
    assert order[0] == "person:1"
    assert len(order) == 4
    other.close()


def test_a_program_writes_after_a_while_however_long_people_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(write_order.time, "sleep", slept.append)
    with Path(database_path() + write_order.FILE_ENDING).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for _ in range(2):
            with transaction.atomic():
                assert connection.in_atomic_block
            assert sum(slept) == pytest.approx(write_order.STAND_BACK_SECONDS, abs=0.01)
            slept.clear()


def test_a_connection_waits_in_the_library_again_after_its_transaction_began() -> None:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        before = cursor.fetchone()
        with transaction.atomic():
            cursor.execute("PRAGMA busy_timeout")
            assert cursor.fetchone() == before


def test_threads_that_answer_a_person_write_as_that_person() -> None:
    threads = FairThreadPool(1, "test")
    callers = [threads.submit(CALLER.get, caller).result(PATIENCE) for caller in ("person:1", "key:1", "")]
    assert callers == ["person:1", "key:1", ""]
    threads.shut_down_pool()
