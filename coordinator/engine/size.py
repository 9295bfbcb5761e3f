"""The size of the database."""

from __future__ import annotations

from pathlib import Path

from django.db import connection

from coordinator.engine import is_sqlite


def sqlite_files() -> tuple[Path, Path]:
    """Return SQLite's file and the log next to it, whether or not they are there."""
    name = str(connection.settings_dict["NAME"])
    return Path(name), Path(f"{name}-wal")


def database_size_bytes() -> int:
    """Return how large the database is: the file and its log, or what PostgreSQL says."""
    if is_sqlite():
        return sum(path.stat().st_size for path in sqlite_files() if path.exists())
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        return int(cursor.fetchone()[0])
