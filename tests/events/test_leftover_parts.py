"""An events table that an older version has put into parts goes on: every row is read, and empty parts go."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection

from coordinator.actions import search
from coordinator.actions.sessions.events import record_events
from coordinator.actions.upkeep import pruning
from coordinator.engine import locks, partitions
from coordinator.models import Change, Event, EventContext, Session
from coordinator.sessions.events import NewEvent
from coordinator.sessions.timeline.reading import SessionTimeline
from tests.events.parts_of_older_versions import PART, partition_tables

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite keeps its events in one table"),
]

NOW = datetime.now(UTC).replace(microsecond=0)
OLD = NOW - timedelta(days=40)


def run(statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def settle() -> None:
    """Have the feed's triggers run now, as at a commit: a table that waits for them cannot be altered."""
    run("SET CONSTRAINTS ALL IMMEDIATE")
    run("SET CONSTRAINTS ALL DEFERRED")


def go_on_at(number: int) -> None:
    """Give the next event this id."""
    run("SELECT setval(pg_get_serial_sequence('events', 'id'), %s)", number - 1)


def add_session(name: str, *, at: datetime = NOW, events: int = 2) -> list[int]:
    """Record a session that has ended, and so many messages of it; return their ids."""
    Session.objects.get_or_create(session_id=name, defaults={"status": "finished", "created_at": at})
    item = NewEvent(
        event_type="message",
        session_id=name,
        timestamp=at.isoformat(),
        role="user",
        content=[{"type": "text", "text": "a long story"}],
    )
    outcomes = record_events([item] * events, at)
    settle()
    return [outcome.event_id for outcome in outcomes]  # type: ignore[union-attr]


def part_of(event_id: int) -> str:
    return str(run("SELECT tableoid::regclass::text FROM events WHERE id = %s", event_id)[0][0])


def test_a_new_database_has_one_table() -> None:
    assert run("SELECT relkind::text FROM pg_class WHERE oid = 'events'::regclass") == [("r",)]
    assert partitions.drop_empty_partitions() == []


def test_rows_of_all_parts_are_one_session_and_what_comes_beyond_them_is_kept() -> None:
    first = add_session("ses_a")
    partition_tables()
    go_on_at(PART - 1)
    second = add_session("ses_a")
    go_on_at(5 * PART)
    third = add_session("ses_a")
    assert [part_of(number) for number in (first[0], *second, third[0])] == [
        "events_p0",
        "events_p0",
        "events_p1",
        "events_default",
    ]
    window = SessionTimeline("ses_a").read_first_events(10)
    assert [event.id for event in window.events] == [*first, *second, *third]
    told = Change.objects.filter(topic="events", key=str(third[0]))
    assert told.count() == 1, "the feed tells of an event once, whatever part it lies in"


def test_retention_deletes_in_steps_and_an_emptied_part_goes() -> None:
    old = add_session("ses_old", at=OLD)
    partition_tables()
    go_on_at(PART)
    young = add_session("ses_young")
    go_on_at(2 * PART + 1)
    last = add_session("ses_young")
    (rule,) = (rule for rule in pruning.build_retention_rules(sessions=30) if rule.name == "sessions")
    assert pruning.apply_retention_rule(rule, NOW, write=True).rows == len(old) + 1
    settle()
    search.unindex_deleted_events(NOW)
    settle()
    assert partitions.drop_empty_partitions() == ["events_p0"]
    assert run("SELECT to_regclass('event_context_p0'), to_regclass('sbx_search_p0')") == [(None, None)]
    assert list(Event.objects.order_by("pk").values_list("pk", flat=True)) == [*young, *last]
    assert EventContext.objects.count() == len(young) + len(last)
    Session.objects.filter(session_id="ses_young").delete()
    assert EventContext.objects.count() == 0


@pytest.mark.parametrize("table", partitions.TABLES)
def test_a_part_with_one_row_in_any_of_its_tables_stays(table: str) -> None:
    (event_id,) = add_session("ses_a", events=1)
    search.index_slice_and_count_events(NOW)
    run("INSERT INTO sbx_files (path) VALUES ('/a')")
    run("INSERT INTO sbx_file_touches (event_id, file_id) SELECT %s, id FROM sbx_files", event_id)
    settle()
    partition_tables()
    for other in ("event_context", "sbx_file_touches"):
        run(f"ALTER TABLE {other}_p0 DROP CONSTRAINT {other}_p0_event_id_fkey")
    for other in partitions.TABLES:
        if other != table:
            run(f"DELETE FROM {other}")
    settle()
    go_on_at(2 * PART + 1)
    assert len(run(f"SELECT 1 FROM {table}")) > 0
    assert "events_p0" not in partitions.drop_empty_partitions()
    assert not partitions.drop_partition_if_empty("_p0")
    assert len(run(f"SELECT 1 FROM {table}")) > 0


def test_a_part_for_events_to_come_stays_and_so_does_the_default() -> None:
    partition_tables()
    go_on_at(PART + 1)
    add_session("ses_a")
    assert partitions.drop_empty_partitions() == ["events_p0"]
    assert run("SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass") == [(2,)]


def test_a_part_that_others_use_stays_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    partition_tables()
    go_on_at(2 * PART + 1)

    tried: list[str] = []

    def refuse_lock(suffix: str) -> bool:
        tried.append(suffix)
        raise OperationalError("lock timeout") from psycopg.errors.LockNotAvailable()

    monkeypatch.setattr(partitions, "drop_partition_if_empty", refuse_lock)
    assert psycopg.errors.LockNotAvailable.sqlstate == locks.NO_LOCK
    assert partitions.drop_empty_partitions() == []
    assert tried == ["_p0"], "whoever uses it uses the next as well"


def test_the_limit_of_a_conversion_that_was_never_finished_goes() -> None:
    migration = importlib.import_module("coordinator.migrations.0087_no_id_limit").Migration
    for table in partitions.TABLES:
        key = "id" if table == "events" else "event_id"
        run(f"ALTER TABLE {table} ADD CONSTRAINT sbx_below CHECK ({key} < 10) NOT VALID")
    (both,) = migration.operations
    with connection.schema_editor() as editor:
        for operation in both.database_operations:
            operation.database_forwards("coordinator", editor, None, None)
    assert run("SELECT 1 FROM pg_constraint WHERE conname = 'sbx_below'") == []
