"""How long a transaction of the writer waits for a lock of PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from coordinator.engine import is_sqlite, locks

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(is_sqlite(), reason="SQLite's one writer is tried again by the writer itself"),
]


def limit_within(seconds: float) -> Any:
    """Return the limit in milliseconds that is in force in a transaction bound to so many seconds."""
    with transaction.atomic(), connection.cursor() as cursor:
        locks.limit_lock_wait(seconds)
        cursor.execute("SELECT setting::int FROM pg_settings WHERE name = 'lock_timeout'")
        return cursor.fetchone()[0]


def test_a_transaction_waits_as_long_as_its_caller_but_no_longer_than_each_connection() -> None:
    assert [limit_within(seconds) for seconds in (30.0, 3.0, 2.5, 0.0)] == [3000, 3000, 2500, 1]


def test_a_connection_without_that_limit_is_bound_by_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "options", "-c search_path=other")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = 0")
    assert limit_within(30.0) == 30_000
