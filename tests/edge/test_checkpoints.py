"""SQLite's log is copied into the database once it is long, and does not grow beyond that."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connection

from coordinator.engine import is_sqlite

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not is_sqlite(), reason="PostgreSQL makes its own checkpoints"),
]


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


def test_whoever_commits_copies_a_log_of_32_megabytes() -> None:
    log = Path(f"{connection.settings_dict['NAME']}-wal")
    before = copied_at()
    for _ in range(33):
        write()
    assert copied_at() > before
    assert log.stat().st_size < 40_000_000
