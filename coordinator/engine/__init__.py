"""Differences between SQLite and PostgreSQL: the one package that checks which of the two it is.

One module a subject, both engines side by side. Functions are named for what they do, so that callers need not
know the engine. Statements run in the caller's transaction, on the default connection.
"""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

SQLITE = "coordinator.engine.sqlite"


def is_sqlite(on: BaseDatabaseWrapper | None = None) -> bool:
    """Say whether the database, where none is named that of the settings, is SQLite; else it is PostgreSQL."""
    if on is not None:
        return on.vendor == "sqlite"
    # Each write asks ten times. Its thread's connection, which would say the same, is found much later.
    return bool(connections.settings[DEFAULT_DB_ALIAS]["ENGINE"] == SQLITE)


def engine_name() -> str:
    """Return `sqlite` or `postgresql`."""
    return "sqlite" if is_sqlite() else "postgresql"
