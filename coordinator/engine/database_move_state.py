"""The state that a move from SQLite to PostgreSQL leaves in the two databases."""

from __future__ import annotations

from django.db import connection

from coordinator.engine import is_sqlite

# PostgreSQL's: a table that is there while a move into the database is incomplete. Moves by older versions left it
# behind with `moved_at` filled.
STATE = "sbx_move"
# SQLite's: what the names of triggers begin with that refuse every write after a move by an older version.
TRIGGER = "sbx_moved_"


def is_move_incomplete() -> bool:
    """Say whether a move into this PostgreSQL database has begun and is not finished."""
    if is_sqlite():
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [STATE])
        if not cursor.fetchone()[0]:
            return False
        cursor.execute(f"SELECT NOT EXISTS (SELECT 1 FROM {STATE} WHERE moved_at IS NOT NULL)")
        return bool(cursor.fetchone()[0])


def is_closed_by_move() -> bool:
    """Say whether this SQLite database refuses writes, because an older version has moved it to PostgreSQL."""
    if not is_sqlite():
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, %s) = %s LIMIT 1",
            [len(TRIGGER), TRIGGER],
        )
        return cursor.fetchone() is not None
