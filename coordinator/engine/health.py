"""The database's health as it reports it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connection

from coordinator.engine import is_sqlite
from coordinator.engine.commits import FEED_SESSION


def select_scalar(statement: str, *parameters: str) -> Any:
    """Return the one value that a statement finds."""
    with connection.cursor() as cursor:
        cursor.execute(statement, list(parameters) or None)
        return cursor.fetchone()[0]


def database_version() -> str:
    """Return the engine and its version, for a person."""
    number = select_scalar("SELECT sqlite_version()" if is_sqlite() else "SHOW server_version")
    return f"{connection.display_name} {number}"


def has_trigger(name: str) -> bool:
    """Say whether a trigger of this name exists."""
    where = "sqlite_master WHERE type = 'trigger' AND name" if is_sqlite() else "pg_trigger WHERE tgname"
    return bool(select_scalar(f"SELECT count(*) FROM {where} = %s", name))


def database_server_time() -> datetime | None:
    """Return PostgreSQL's time, which may be another machine's; None for SQLite, whose time is ours."""
    return None if is_sqlite() else select_scalar("SELECT clock_timestamp()")


def has_more_rows_than(table: str, most: int) -> bool:
    """Say whether a table has more than so many rows; reads no more of them than that."""
    with connection.cursor() as cursor:
        if table not in connection.introspection.table_names(cursor):
            return False
        cursor.execute(f"SELECT count(*) > {most} FROM (SELECT 1 FROM {table} LIMIT {most + 1}) t")
        return bool(cursor.fetchone()[0])


def count_server_processes() -> int:
    """Count the worker processes of any server that follow this database's feed; 0 on SQLite, where none is seen."""
    if is_sqlite():
        return 0
    return int(
        select_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s",
            FEED_SESSION,
        )
    )
