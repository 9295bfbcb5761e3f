"""What others hang on the whole events table follows it into parts, or is named before anything changes."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from coordinator.actions.upkeep import partitions as parts_of_events
from coordinator.engine import attached, partition_changes, partitions
from coordinator.feed import triggers

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite keeps its events in one table"),
]
ATTACHED = (
    ("view days (events)", "CREATE VIEW days AS SELECT id FROM events", "DROP VIEW days"),
    (
        "materialized view totals (event_context)",
        "CREATE MATERIALIZED VIEW totals AS SELECT count(*) FROM event_context",
        "DROP MATERIALIZED VIEW totals",
    ),
    (
        "trigger theirs (events)",
        "CREATE TRIGGER theirs BEFORE UPDATE ON events FOR EACH ROW"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "DROP TRIGGER theirs ON events",
    ),
    ("publication theirs (events)", "CREATE PUBLICATION theirs FOR TABLE events", "DROP PUBLICATION theirs"),
    ("policy theirs (events)", "CREATE POLICY theirs ON events USING (true)", "DROP POLICY theirs ON events"),
    (
        "foreign key notes_event_id_fkey of notes (events)",
        "CREATE TABLE notes (event_id bigint REFERENCES events (id))",
        "DROP TABLE notes",
    ),
)


def run(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def whole() -> Iterator[None]:
    """The events table in one, as an old installation has it."""
    partition_changes.merge_partitions()
    triggers.restore_triggers(connection)
    yield
    if partitions.has_partitioned_events():
        partition_changes.merge_partitions()
    partition_changes.partition_empty_tables(parts_of_events.LEAST)
    triggers.restore_triggers(connection)


@pytest.fixture
def reader() -> Iterator[str]:
    name = f'"Data Reader {uuid.uuid4().hex[:12]}"'  # roles are of all databases
    run(f"CREATE ROLE {name}")
    yield name
    run(f"DROP OWNED BY {name}")
    run(f"DROP ROLE {name}")


def test_rights_follow_into_the_parts_and_back(whole: None, reader: str) -> None:
    run(f"GRANT SELECT ON events, event_context TO {reader} WITH GRANT OPTION")
    run(f"GRANT UPDATE (reason), INSERT ON events TO {reader}")
    run("GRANT SELECT (event_id) ON sbx_search TO PUBLIC")
    run(f"GRANT USAGE ON SEQUENCE events_id_seq TO {reader}")
    names = [*partitions.TABLES, "events_id_seq"]
    with connection.cursor() as cursor:
        before = {name: attached.list_table_rights(cursor, name) for name in names}
        assert [len(before[name]) for name in names] == [3, 1, 1, 0, 1]
        call_command("partition_events")
        assert {name: attached.list_table_rights(cursor, name) for name in names} == before
        for part in ("p0", "p1", "p2", "default"):
            assert attached.list_table_rights(cursor, f"events_{part}") == before["events"]
        partition_changes.merge_partitions()
        triggers.restore_triggers(connection)
        assert {name: attached.list_table_rights(cursor, name) for name in names} == before
        run("REVOKE ALL ON sbx_search FROM PUBLIC")


@pytest.mark.parametrize(("named", "make", "drop"), ATTACHED, ids=[one[0] for one in ATTACHED])
def test_what_would_not_follow_is_named_and_nothing_is_changed(
    whole: None, named: str, make: str, drop: str
) -> None:
    run(make)
    try:
        with pytest.raises(CommandError, match=f"{re.escape(named)}.*--anyway"):
            call_command("partition_events")
        assert (partitions.has_partitioned_events(), partition_changes.find_id_limit()) == (False, None)
    finally:
        run(drop)
    call_command("partition_events")
    assert partitions.has_partitioned_events()


def test_who_knows_better_goes_on_all_the_same(whole: None) -> None:
    run("CREATE VIEW days AS SELECT id FROM events")
    call_command("partition_events", "--anyway")
    assert partitions.has_partitioned_events()
    run("DROP VIEW days")
