"""PostgreSQL behind a pooler such as pgbouncer in transaction mode: what may go through it, and what must not.

In transaction mode a connection is another server session with each transaction. Queries of ours need none of
their own: they prepare nothing there (`postgresql.base`), keep no cursor open and take their locks for a
transaction. LISTEN, the right to migrate and a command's long wait for locks need one. So DATABASE_URL leads
to PostgreSQL itself, and a server's workers, once all is prepared, ask through SIGNALBOX_POOL_URL
(`route_connections_through_pool`); only the feed stays with what DATABASE_URL says
(`open_direct_connection`).
"""

from __future__ import annotations

from typing import Any

from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import load_backend

from coordinator.engine import is_sqlite

WANTED = {"lock_timeout": "3s", "idle_in_transaction_session_timeout": "1min", "jit": "off"}
SET_UP = (
    "SET lock_timeout = 3000; SET idle_in_transaction_session_timeout = 60000; SET jit = off;"
    " SET random_page_cost = 1.1"
)
_direct: dict[str, Any] = {}


def route_connections_through_pool(pool: dict[str, Any]) -> None:
    """Have every connection that this process opens from now on go through the pooler."""
    connections.close_all()
    _direct.update(connections.settings["default"])
    connections.settings["default"] = {**_direct, **pool}
    del connections["default"]  # this thread's, which knows where it led


def open_direct_connection() -> BaseDatabaseWrapper:
    """Return a new wrapper whose connection is a session of its own."""
    return make_database_wrapper(_direct) if _direct else connections.create_connection("default")


def make_database_wrapper(values: dict[str, Any]) -> BaseDatabaseWrapper:
    """Return a wrapper for other settings than the process's own."""
    wrapper: BaseDatabaseWrapper = load_backend(values["ENGINE"]).DatabaseWrapper(values, "default")
    return wrapper


def is_pooled_by_transaction() -> bool:
    """Say whether a pooler in transaction mode is in between: two idle connections are one session there."""
    if is_sqlite():
        return False
    other = connections.create_connection("default")
    try:
        return backend_process_id(connection) == backend_process_id(other)
    finally:
        other.close()


def list_unapplied_timeout_settings(on: BaseDatabaseWrapper = connection) -> list[str]:
    """Return which of the limits that each connection asks for are not in force: a pooler drops them."""
    with on.cursor() as cursor:
        cursor.execute(
            "SELECT name || ' is ' || setting FROM pg_settings WHERE"
            + " OR ".join(f" name = '{name}' AND current_setting(name) <> %s" for name in WANTED),
            list(WANTED.values()),
        )
        return [row[0] for row in cursor.fetchall()]


def backend_process_id(on: BaseDatabaseWrapper) -> int:
    with on.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])
