"""How the writer waits for SQLite's one write lock, and what its statements share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection, transaction

from coordinator.engine import is_sqlite, locks, round_trips
from coordinator.engine.sqlite import base

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not is_sqlite(), reason="PostgreSQL has a lock for each row"),
]


@pytest.fixture
def other() -> Iterator[sqlite3.Connection]:
    """Another program that writes just now; the connection of the test does not wait in SQLite's library."""
    other = sqlite3.connect(str(connection.settings_dict["NAME"]), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    locks.fail_fast_on_locks(None)
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

    monkeypatch.setattr(base.time, "sleep", rest)
    with transaction.atomic():
        assert connection.in_atomic_block
    assert slept == [base.LOOK_EVERY] * 3


def test_a_lock_that_does_not_come_free_is_told_after_some_looks(
    other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(base.time, "sleep", slept.append)
    with pytest.raises(OperationalError) as refused, transaction.atomic():
        pass
    assert locks.may_come_free(refused.value)
    assert len(slept) == base.LOOKS - 1
    assert not connection.in_atomic_block
    other.execute("ROLLBACK")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def test_a_kept_cursor_serves_one_statement_after_another_and_each_new_connection() -> None:
    for _ in range(2):
        with round_trips.planning_cursor() as first:
            first.execute("SELECT %s", [1])
            assert first.fetchall() == [(1,)]
        with round_trips.planning_cursor() as second:
            second.execute("SELECT %s", [2])
            assert second.fetchall() == [(2,)]
        assert second is first
        connection.close()
