"""What a move from SQLite to PostgreSQL leaves in the two databases: triggers that refuse every write, and a note."""

from __future__ import annotations

import sqlite3
from enum import Enum, auto

from django.db import connection

from coordinator.engine import is_sqlite

NOTE = "sbx_move_note"  # SQLite's, from the beginning of a move on
STATE = "sbx_move"  # PostgreSQL's
TRIGGER = "sbx_moved_"  # what the names of SQLite's triggers begin with


class MoveStage(Enum):
    """Where a move stands, seen from one database."""

    LEAVING = auto()  # SQLite, which is the database still
    LEFT = auto()  # SQLite, which refuses writes
    ARRIVING = auto()  # PostgreSQL, which is none yet


def find_move_stage() -> MoveStage | None:
    """Return where a move out of this database, or into it, stands; None where there is none or it is over."""
    if not is_sqlite():
        return MoveStage.ARRIVING if has_move_begun_here() and not is_move_over_here() else None
    if has_moved_to_postgres():
        return MoveStage.LEFT
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM sqlite_master WHERE name = %s", [NOTE])
        return MoveStage.LEAVING if cursor.fetchone() else None


def has_moved_to_postgres() -> bool:
    """Say whether all of this database is in PostgreSQL by now; asks PostgreSQL itself nothing."""
    if not is_sqlite():
        return False
    connection.ensure_connection()
    return is_closed_by_move(connection.connection)


def is_closed_by_move(db: sqlite3.Connection) -> bool:
    """Say whether a SQLite database refuses writes because it has moved."""
    found = db.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, ?) = ? LIMIT 1",
        (len(TRIGGER), TRIGGER),
    )
    return found.fetchone() is not None


def has_move_begun_here() -> bool:
    """Say whether a move into this PostgreSQL database has begun."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [STATE])
        return bool(cursor.fetchone()[0])


def is_move_over_here() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT moved_at IS NOT NULL FROM {STATE}")
        row = cursor.fetchone()
        return bool(row and row[0])
