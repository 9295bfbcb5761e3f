"""What SQLite and PostgreSQL do differently: the one room that asks which of the two it is.

One module a subject, both engines side by side. Functions are named for what they do, so that callers need not
know the engine. Statements run in the caller's transaction, on the default connection.
"""

from __future__ import annotations

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper


def is_sqlite(on: BaseDatabaseWrapper = connection) -> bool:
    """Say whether the database is SQLite; else it is PostgreSQL."""
    return on.vendor == "sqlite"


def engine_name() -> str:
    """Return `sqlite` or `postgresql`."""
    return connection.vendor
