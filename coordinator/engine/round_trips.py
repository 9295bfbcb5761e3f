"""Statements that are executed so often that each round trip to the database counts, and each plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import InterfaceError, OperationalError, connection
from django.db.backends.utils import CursorWrapper

from coordinator.engine import is_sqlite


def skip_health_check() -> None:
    """Have Django not ask PostgreSQL `SELECT 1` before the next piece of work, lest it meet a connection that was cut.

    Whoever calls this does the work once more, on a new connection, where that comes to light.
    """
    if not is_sqlite():
        connection.health_check_done = True  # type: ignore[attr-defined] # Django's own, which its stubs leave out


def planning_cursor() -> CursorWrapper:
    """Return a cursor for a statement that is executed again and again, whose text is always the same.

    PostgreSQL plans it once a connection, as soon as that looks no dearer: for small statements planning takes longer
    than all else. (Told to do so always, it would keep what our triggers' statements were when a table was empty.)
    SQLite's driver does so by itself; there one cursor is kept for all of them. So read what a statement finds before
    the next one.
    """
    cursor: CursorWrapper = connection.planning_cursor()  # type: ignore[attr-defined] # our engines'
    return cursor


def select_single_row(question: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Return the one row that a SELECT finds, in one round trip. Raises DatabaseError."""
    if is_sqlite() or connection.in_atomic_block:
        return select_row_once(question, parameters)
    skip_health_check()
    try:
        return select_row_once(question, parameters)
    except (InterfaceError, OperationalError):
        connection.close()
        return select_row_once(question, parameters)


def select_row_once(question: str, parameters: Sequence[Any]) -> tuple[Any, ...]:
    with planning_cursor() as cursor:
        cursor.execute(question, parameters)
        row: tuple[Any, ...] = cursor.fetchone()
        return row
