"""Servers that start together on one PostgreSQL migrate it one after the other, however long that takes."""

from __future__ import annotations

import threading

import psycopg
import pytest
from django.db import connection

from coordinator.engine import locks
from tests.served import postgres_url, with_database

HAS_ASKED_FOR_LONGER = """
SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_try_advisory_lock%' AND pid <> pg_backend_pid()
    AND datname = current_database() AND now() - backend_start > interval '300 ms'
"""


@pytest.mark.skipif(postgres_url() is None, reason="SQLite's lock is a file's")
@pytest.mark.django_db(transaction=True)
def test_who_waits_for_anothers_migration_waits_longer_than_for_a_row() -> None:
    timeouts: list[str] = []

    def migrate() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '100ms'")
                with locks.hold_migration_lock():
                    cursor.execute("SHOW lock_timeout")
                    timeouts.append(cursor.fetchone()[0])
        finally:
            connection.close()

    url = with_database(str(postgres_url()), connection.settings_dict["NAME"])
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [locks.MIGRATION_LOCK])
        waiting = threading.Thread(target=migrate)
        waiting.start()
        while waiting.is_alive() and other.execute(HAS_ASKED_FOR_LONGER).fetchone() == (0,):
            pass
        other.execute("SELECT pg_advisory_unlock(%s)", [locks.MIGRATION_LOCK])
        waiting.join(60)
    assert timeouts == ["100ms"]
