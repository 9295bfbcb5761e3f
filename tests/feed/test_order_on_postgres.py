"""The claims of coordinator/feed/triggers.py on PostgreSQL: ids follow commits, and writers never deadlock over it."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connection

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time"),
]

WRITERS = 6
ROUNDS = 40
ROWS = 8


def connect() -> psycopg.Connection[tuple[object, ...]]:
    values = connection.get_connection_params()
    return psycopg.connect(
        dbname=values["dbname"], user=values.get("user"), password=values.get("password"),
        host=values.get("host"), port=values.get("port"),
    )  # fmt: skip


def seed() -> None:
    with connection.cursor() as cursor:
        for number in range(ROWS):
            cursor.execute(
                "INSERT INTO sessions (session_id, status, created_at) VALUES (%s, 'running', '2026-01-01T00:00:00Z')",
                [f"s{number}"],
            )


def test_a_reader_who_asks_for_everything_after_n_never_misses_a_row() -> None:
    seed()
    done = threading.Event()
    seen: list[int] = []

    def write(seed_: int) -> None:
        chance = random.Random(seed_)
        with connect() as conn:
            for _ in range(ROUNDS):
                for _ in range(chance.randint(1, 4)):
                    conn.execute(
                        "INSERT INTO events (session_id, event_type, timestamp) VALUES (%s, 'x', 'x')",
                        [f"s{chance.randrange(ROWS)}"],
                    )
                if chance.random() < 0.2:
                    conn.rollback()  # leaves a gap in the sequence, which must not be taken for a late row
                conn.commit()

    def read() -> None:
        with connect() as conn:
            conn.autocommit = True
            last = 0
            while True:
                finished = done.is_set()
                rows = conn.execute("SELECT id FROM changes WHERE id > %s ORDER BY id", [last]).fetchall()
                seen.extend(int(str(row[0])) for row in rows)
                last = seen[-1] if seen else 0
                if finished and not rows:
                    return

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        reading = pool.submit(read)
        for writing in [pool.submit(write, number) for number in range(WRITERS)]:
            writing.result(60)
        done.set()
        reading.result(60)
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM changes ORDER BY id")
        stored = [row[0] for row in cursor.fetchall()]
    assert len(stored) > ROUNDS
    assert [one for one in seen if one >= stored[0]] == stored


def test_writers_that_lock_rows_in_any_order_deadlock_only_over_rows_of_their_own() -> None:
    """Each transaction takes its row locks in one order, so that the feed's lock alone could close a circle."""
    seed()

    def write(seed_: int) -> None:
        chance = random.Random(seed_)
        with connect() as conn:
            for _ in range(ROUNDS):
                for number in sorted(chance.sample(range(ROWS), 3)):
                    conn.execute(
                        "UPDATE sessions SET status = %s WHERE session_id = %s",
                        [str(chance.random()), f"s{number}"],
                    )
                    conn.execute(
                        "INSERT INTO events (session_id, event_type, timestamp) VALUES (%s, 'x', 'x')",
                        [f"s{number}"],
                    )
                conn.commit()

    with ThreadPoolExecutor(WRITERS) as pool:
        for writing in [pool.submit(write, number) for number in range(WRITERS)]:
            writing.result(120)
