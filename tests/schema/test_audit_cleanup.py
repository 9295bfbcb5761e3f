"""The audit trail deletes what is over 90 days old, by instants, on every INSERT of any program."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.db import connection

from coordinator.models import AuditLog

pytestmark = pytest.mark.django_db
DAYS = timedelta(days=90)
MARGIN = timedelta(minutes=10)
EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))


def texts(instant: datetime) -> list[str]:
    """Return the forms in which programs write this instant."""
    return [
        instant.isoformat(timespec="microseconds"),
        instant.strftime("%Y-%m-%dT%H:%M:%SZ"),
        instant.strftime("%Y-%m-%d %H:%M:%S"),
        instant.astimezone(EAST).isoformat(),
        instant.astimezone(WEST).isoformat(),
        instant.astimezone(EAST).strftime("%Y-%m-%d %H:%M:%S%z"),
    ]


def write_past_the_trigger(written: list[str]) -> None:
    """Insert rows that are already old, as if the trigger had not been there when they were written."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # A table with deferred triggers to run cannot be altered; these run at once.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("ALTER TABLE audit_logs DISABLE TRIGGER audit_log_cleanup")
            insert(written)
            cursor.execute("ALTER TABLE audit_logs ENABLE TRIGGER audit_log_cleanup")
        else:
            cursor.execute("SELECT sql FROM sqlite_master WHERE name = 'audit_log_cleanup'")
            (trigger,) = cursor.fetchone()
            cursor.execute("DROP TRIGGER audit_log_cleanup")
            insert(written)
            cursor.execute(trigger)


def insert(written: list[str]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO audit_logs (timestamp, event_type, result) VALUES (%s, 'X', 'success')",
            [(text,) for text in written],
        )


def kept() -> set[str]:
    return set(AuditLog.objects.values_list("timestamp__text", flat=True))


def test_every_form_of_an_old_instant_goes() -> None:
    now = datetime.now(UTC)
    write_past_the_trigger(texts(now - DAYS - MARGIN))
    insert(["today"])
    assert kept() == {"today"}


def test_every_form_of_a_younger_instant_stays() -> None:
    young = texts(datetime.now(UTC) - DAYS + MARGIN)
    insert(young)
    insert(young[:1])
    assert kept() == set(young)


def test_what_cannot_be_read_stays_and_fails_nothing() -> None:
    odd = [
        "",
        "banana",
        "2020-02-30T00:00:00Z",
        "0000-00-00 00:00:00",
        "2020-13-45",
        "1999-01-01T00:00:00+99:99",
    ]
    insert(odd)
    insert(["today"])
    assert kept() == {*odd, "today"}


def test_a_row_that_is_old_when_it_comes_goes_at_once() -> None:
    insert(["2001-01-01T00:00:00Z"])
    assert not kept()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL plans by what is in the table")
def test_no_insert_reads_the_whole_table() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT sql FROM sqlite_master WHERE name = 'audit_log_cleanup'")
        (trigger,) = cursor.fetchone()
        deletions = [part.strip() for part in trigger.partition("BEGIN")[2].split(";")[:2]]
        plans = []
        for sql in deletions:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}".replace("%", "%%"), [])
            plans += [row[3] for row in cursor.fetchall()]
    assert plans == [
        "SEARCH audit_logs USING INDEX idx_audit_logs_timestamp (timestamp<?)",
        "SEARCH audit_logs USING INDEX sbx_audit_logs_ahead (timestamp<?)",
    ]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite's plan is tested above")
def test_no_insert_reads_the_whole_table_on_postgres() -> None:
    now = datetime.now(UTC)
    insert([(now - timedelta(minutes=n)).isoformat() for n in range(5000)])
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(
            "REINDEX TABLE audit_logs"
        )  # earlier tests leave pages, and the smaller index is taken
        cursor.execute("ANALYZE audit_logs")
        cursor.execute(
            "EXPLAIN SELECT id FROM audit_logs WHERE timestamp < %s AND timestamp LIKE '%%+%%' "
            "AND timestamp NOT LIKE '%%+00:00' AND sbx_instant_us(timestamp) < 0",
            [(now - DAYS).isoformat()],
        )
        ahead = "\n".join(line for (line,) in cursor.fetchall())
        cursor.execute(
            "EXPLAIN SELECT id FROM audit_logs WHERE timestamp < %s AND sbx_instant_us(timestamp) < 0",
            [(now - DAYS).isoformat()],
        )
        before = "\n".join(line for (line,) in cursor.fetchall())
    assert "sbx_audit_logs_ahead" in ahead
    assert "idx_audit_logs_timestamp" in before
