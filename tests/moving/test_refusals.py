"""What is told where a database has moved away, and where one is only just moving in."""

from __future__ import annotations

import pytest
from django.core.management.base import CommandError
from django.db import OperationalError, connection, transaction

from coordinator.engine import is_sqlite, moved
from coordinator.lib.chosen_database import MOVED
from coordinator.models import RevokedKey
from coordinator.operations import startup
from coordinator.operations.doctor import CheckLevel, database
from coordinator.operations.moving import target

pytestmark = pytest.mark.django_db


def test_no_server_starts_on_half_a_move_or_on_what_moved_away() -> None:
    startup.refuse_moved_database()
    with connection.cursor() as cursor:
        if is_sqlite():
            cursor.execute(f"CREATE TRIGGER {moved.TRIGGER}x BEFORE INSERT ON leases BEGIN SELECT 1; END")
            why = "has moved to PostgreSQL and refuses writes"
        else:
            cursor.execute(f"CREATE TABLE {moved.STATE} AS SELECT NULL AS moved_at")
            why = "is not finished. Run `manage.py move_to` again"
    with pytest.raises(CommandError, match=why):
        startup.refuse_moved_database()


def test_a_refused_write_is_the_databases_fault_not_the_rows() -> None:
    if not is_sqlite():
        pytest.skip("SQLite's triggers")
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TRIGGER {moved.TRIGGER}x BEFORE INSERT ON revoked_keys"
            f" BEGIN SELECT RAISE(ABORT, '{MOVED}'); END"
        )
    with pytest.raises(OperationalError, match="has moved"), transaction.atomic():
        RevokedKey.objects.create(key_hash="a", revoked_at=1)


def test_nothing_is_moved_over_something() -> None:
    if is_sqlite():
        pytest.skip("a target is PostgreSQL")
    assert "needs an empty database" in str(target.explain_unusable_target("move_1"))
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE {moved.STATE} AS SELECT 'move_2' AS move_id, 'a.sqlite3' AS source, NULL AS noting,"
            " 1 AS noted, true AS copied, NULL AS moved_at, NULL::bigint AS audit_id"
        )
    assert target.explain_unusable_target("move_2") is None
    assert "Another database (a.sqlite3) began to move to it" in str(target.explain_unusable_target("move_1"))


def test_the_doctor_tells_of_a_move_that_is_not_over() -> None:
    assert list(database.check_unfinished_move()) == []
    with connection.cursor() as cursor:
        if is_sqlite():
            cursor.execute(f"CREATE TABLE {moved.NOTE} (move_id)")
        else:
            cursor.execute(f"CREATE TABLE {moved.STATE} AS SELECT NULL AS moved_at")
    (check,) = database.check_unfinished_move()
    assert check.level == (CheckLevel.WARN if is_sqlite() else CheckLevel.FAIL)
    assert "again to continue" in str(check.remedy)
