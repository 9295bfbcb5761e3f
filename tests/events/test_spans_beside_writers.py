"""Spans of sessions are noted on PostgreSQL while a writer notes the same ones in another order."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event as Signal

import pytest
from django.db import connection, transaction
from django.utils import timezone

from coordinator.actions.sessions.events import record_events
from coordinator.actions.upkeep import partitions as parts_of_events
from coordinator.models import Session
from coordinator.sessions.events import NewEvent
from tests.patience import PATIENCE

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite keeps its events in one table"),
]
WAITING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%sbx_session_spans%'"
)
NOTE = "INSERT INTO sbx_session_spans (session_id, first_id, before_id) VALUES (%s, 1, 1)"


def run(statement: str, *parameters: object) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []


def note_last_first(noted: Signal) -> None:
    """Note ses_b's span, wait until somebody waits for it, then note ses_a's as well."""
    try:
        with transaction.atomic():
            run(NOTE, "ses_b")
            noted.set()
            deadline = time.monotonic() + PATIENCE
            while run(WAITING) == [(0,)] and time.monotonic() < deadline:
                time.sleep(0.02)
                # Else a transaction sees who waited when it first looked.
                run("SELECT pg_stat_clear_snapshot()")
            run(NOTE + " ON CONFLICT DO NOTHING", "ses_a")
    finally:
        connection.close()


def test_neither_is_ended_as_a_deadlock() -> None:
    now = timezone.now()
    for session_id in ("ses_a", "ses_b"):
        Session.objects.create(session_id=session_id, status="running", created_at=now)
        record_events([NewEvent(event_type="x", session_id=session_id, timestamp=now.isoformat())], now)
    run("DELETE FROM sbx_session_spans")
    noted = Signal()
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(note_last_first, noted)
        assert noted.wait(PATIENCE)
        parts_of_events.backfill_session_spans(lambda _: None)
        writer.result(PATIENCE)
    missing = run(
        "SELECT c.session_id FROM event_context c LEFT JOIN sbx_session_spans s ON s.session_id = c.session_id"
        " AND c.event_id >= s.first_id AND c.event_id < s.before_id WHERE s.session_id IS NULL"
    )
    assert missing == []
