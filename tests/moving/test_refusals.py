"""What is said where a database has moved away, where one is incomplete, and where a copy differs."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.core.management.base import CommandError
from django.db import connection

from coordinator.engine import database_move_state, is_sqlite
from coordinator.models import RevokedKey
from coordinator.operations import startup
from coordinator.operations.doctor import CheckLevel, database
from coordinator.operations.moving import target
from coordinator.operations.moving.move import DatabaseMove
from coordinator.operations.moving.progress import MoveProgress
from coordinator.operations.moving.rows import RowsDigest
from coordinator.operations.moving.tables import DERIVED, MovedTable, build_target_columns_by_table

pytestmark = pytest.mark.django_db


def leave_half_a_move() -> str:
    """Leave what a move leaves in the database of this test run; return why no server starts on it."""
    with connection.cursor() as cursor:
        if is_sqlite():
            cursor.execute(
                f"CREATE TRIGGER {database_move_state.TRIGGER}x BEFORE INSERT ON leases BEGIN SELECT 1; END"
            )
            return "was moved to PostgreSQL by an older version and refuses writes"
    target.record_incomplete_move()
    return "is incomplete: a move to it from SQLite was interrupted"


def test_no_server_starts_on_half_a_move_or_on_what_moved_away() -> None:
    startup.refuse_moved_database()
    why = leave_half_a_move()
    with pytest.raises(CommandError, match=why):
        startup.refuse_moved_database()


def test_the_doctor_tells_of_a_move_that_is_not_over() -> None:
    assert list(database.iterate_unfinished_move_checks()) == []
    why = leave_half_a_move()
    (check,) = database.iterate_unfinished_move_checks()
    assert (check.level, why in check.message) == (CheckLevel.FAIL, True)


def test_a_move_by_an_older_version_is_over_and_one_that_it_began_is_not_continued() -> None:
    if is_sqlite():
        pytest.skip("a target is PostgreSQL")
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE {database_move_state.STATE} AS SELECT 'move_1' AS move_id, '2026-01-01' AS moved_at"
        )
        assert not database_move_state.is_move_incomplete()
        cursor.execute(f"UPDATE {database_move_state.STATE} SET moved_at = NULL")
        cursor.execute(f"CREATE TABLE {target.OLDER_MOVE} (name text)")
    with pytest.raises(CommandError, match="begun by an older version"):
        target.require_empty_or_interrupted_target()


def test_a_table_that_differs_stops_the_move() -> None:
    if is_sqlite():
        pytest.skip("a target is PostgreSQL")
    RevokedKey.objects.create(key_hash="a", revoked_at=1)
    table = MovedTable("revoked_keys", tuple(build_target_columns_by_table()["revoked_keys"]), ("key_hash",))
    move = DatabaseMove.__new__(DatabaseMove)
    move.say = lambda _line: None
    read = RowsDigest()
    (row,) = target.iterate_target_rows(table)
    read.add_rows([row])
    move.verify_copied_table(table, read, MoveProgress(move.say, 1))
    for others in ([], [("a", 2)], [row, ("b", 1)]):
        read = RowsDigest()
        read.add_rows(others)
        with pytest.raises(CommandError, match="revoked_keys differs"):
            move.verify_copied_table(table, read, MoveProgress(move.say, 1))


def test_every_table_is_moved_or_worked_out_again() -> None:
    if is_sqlite():
        pytest.skip("a target is PostgreSQL")
    ours = set(connection.introspection.table_names())
    moved_tables = set(build_target_columns_by_table())
    assert ours - moved_tables - DERIVED == set()
    assert moved_tables <= ours
    assert {model._meta.db_table for model in apps.get_models()} <= moved_tables | DERIVED
