"""Statements that PostgreSQL plans once a connection (engine.round_trips)."""

from __future__ import annotations

import pytest
from django.db import DataError, IntegrityError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from coordinator.engine import is_sqlite, round_trips

QUESTION = "SELECT %s::int + 1"
only_postgresql = pytest.mark.skipif(is_sqlite(), reason="SQLite's driver keeps its own")

pytestmark = pytest.mark.django_db


def ask(number: object) -> int:
    with round_trips.planning_cursor() as cursor:
        cursor.execute(QUESTION, [number])
        return int(cursor.fetchone()[0])


def plans() -> int:
    """Return how many plans of QUESTION the server keeps for this connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT $1::int + 1'")
        return int(cursor.fetchone()[0])


@only_postgresql
def test_a_statement_that_comes_again_is_planned_once() -> None:
    assert [ask("1"), ask("2"), plans()] == [2, 3, 1]


@only_postgresql
def test_a_log_of_statements_names_those_whose_plan_is_kept() -> None:
    with CaptureQueriesContext(connection) as log:
        ask("1")
        ask("2")
    logged = [one["sql"] for one in log.captured_queries]
    assert [sql for sql in logged if sql.startswith("SELECT %s")] == [QUESTION, QUESTION]


@only_postgresql
def test_nothing_is_kept_where_a_pooler_hands_out_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.ensure_connection()
    monkeypatch.setattr(connection, "_is_session", None)
    monkeypatch.setattr("psycopg.ConnectionInfo.backend_pid", -1)  # as a pooler makes it up
    assert [ask("1"), ask("2"), plans()] == [2, 3, 0]


@only_postgresql
def test_an_error_is_django_s_and_the_next_statement_works() -> None:
    with pytest.raises(DataError), transaction.atomic():
        ask("none")
    assert ask("3") == 4


def test_a_cursor_of_kept_plans_knows_a_broken_transaction() -> None:
    with transaction.atomic():
        with pytest.raises(IntegrityError), transaction.atomic(), round_trips.planning_cursor() as cursor:
            cursor.execute("INSERT INTO sessions (session_id) VALUES (NULL)")
        connection.set_rollback(True)
        with pytest.raises(TransactionManagementError), round_trips.planning_cursor() as cursor:
            cursor.execute("SELECT 1")
