"""Rows that are written by one statement: what is written, and that doors meet Django's errors alone."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection, transaction

from coordinator.engine import bulk, is_sqlite

pytestmark = pytest.mark.django_db


def test_a_statement_for_many_rows_that_fails_raises_djangos_error() -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        bulk.insert_rows_with_preassigned_ids("event_context", "event_id", ["no_such_column"], [1], [["x"]])


@pytest.mark.parametrize("table", ["events", "event_context"])
def test_a_column_that_may_be_empty_has_no_default_so_that_it_may_be_left_out(table: str) -> None:
    with connection.cursor() as cursor:
        columns = connection.introspection.get_table_description(cursor, table)
    assert [one.name for one in columns if one.null_ok and one.default not in (None, "NULL")] == []


@pytest.mark.skipif(not is_sqlite(), reason="PostgreSQL refuses an integer that it has no form for")
@pytest.mark.parametrize("others", [[], [["x", 5]]], ids=["one row", "two rows"])
def test_an_integer_that_sqlite_has_no_form_for_is_kept_as_a_float(others: list[list[object]]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE few (id integer, words text, number integer)")
        rows = [["x", 10**30], *others]
        bulk.insert_rows_with_preassigned_ids("few", "id", ["words", "number"], list(range(len(rows))), rows)
        cursor.execute("SELECT words, number FROM few WHERE id = 0")
        assert cursor.fetchall() == [("x", 1e30)]
        cursor.execute("DROP TABLE few")


@pytest.mark.parametrize("count", [0, 1, 5])
def test_given_rows_are_read_as_they_are_however_many(count: int) -> None:
    rows = [[f"it's %s and ? {number}", number, None] for number in range(count)]
    given, parameters = bulk.rows_select_sql_and_parameters(rows, "text", "bigint", "text")
    with connection.cursor() as cursor:
        cursor.execute(given, parameters)
        assert [list(row) for row in cursor.fetchall()] == rows


def test_a_row_that_is_empty_but_for_its_id_is_inserted_too() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE few (id integer, words text, number integer)")
        bulk.insert_rows_with_preassigned_ids(
            "few", "id", ["words", "number"], [7, 8], [[None, None], [None, 5]]
        )
        bulk.insert_rows_with_preassigned_ids("few", "id", ["words", "number"], [9], [[None, None]])
        cursor.execute("SELECT * FROM few ORDER BY id")
        assert cursor.fetchall() == [(7, None, None), (8, None, 5), (9, None, None)]
        cursor.execute("DROP TABLE few")
