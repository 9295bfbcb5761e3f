"""Several processes move the same sessions on: on PostgreSQL they take turns, and a deadlock costs nobody an event."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from coordinator.actions.sessions.events import Outcome, record_events
from coordinator.edge.ingest.write_queue import GroupWriter
from coordinator.models import Session
from coordinator.sessions.events import NewEvent, RecordedEvent
from tests.patience import PATIENCE

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time"),
]
NAMES = [f"s{number:02}" for number in range(20)]


@pytest.fixture(autouse=True)
def sessions() -> None:
    Session.objects.bulk_create(
        Session(session_id=name, status="running", created_at=timezone.now()) for name in NAMES
    )


def lifecycle(name: str) -> list[NewEvent]:
    kinds = ("session_start", "session_stop")
    return [NewEvent(event_type=kind, session_id=name, timestamp="t") for kind in kinds]


def test_starts_and_ends_in_any_order_do_not_deadlock() -> None:
    def write(names: list[str]) -> list[Outcome]:
        try:
            items = [event for name in names for event in lifecycle(name)]
            return [outcome for _ in range(20) for outcome in record_events(items, timezone.now())]
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        for writing in [pool.submit(write, NAMES), pool.submit(write, NAMES[::-1])]:
            assert all(isinstance(outcome, RecordedEvent) for outcome in writing.result(60))


def test_a_group_that_loses_a_deadlock_is_written_all_the_same() -> None:
    writer = GroupWriter(lambda: None)
    writer.start()

    async def submit() -> list[Outcome] | bytes:
        items = lifecycle("s00") + lifecycle("s01")
        return await writer.submit_events(items, deadline=time.monotonic() + 3.8, size=100)

    with ThreadPoolExecutor(1) as pool, suppress(OperationalError), transaction.atomic():
        lock("s01")
        writing = pool.submit(asyncio.run, submit())
        wait_for_a_waiter()
        lock("s00")
    outcomes = writing.result(PATIENCE)
    writer.stop()
    assert [type(outcome) for outcome in outcomes] == [RecordedEvent] * 4


def test_a_group_locks_from_child_to_parent_as_the_end_of_a_run_does() -> None:
    Session.objects.filter(pk="s01").update(parent_session_id="s00")

    def write() -> list[Outcome]:
        try:
            return record_events(lifecycle("s00") + lifecycle("s01"), timezone.now())
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            lock("s01")
            writing = pool.submit(write)
            wait_for_a_waiter()
            lock("s00")  # the group does not hold it: this would be a deadlock
        assert [type(outcome) for outcome in writing.result(PATIENCE)] == [RecordedEvent] * 4


def lock(name: str) -> None:
    list(Session.objects.select_for_update(no_key=True).filter(pk=name))


def wait_for_a_waiter() -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()")
            if cursor.fetchone():
                return
    raise AssertionError("nobody waits for the lock")
