"""Doing everything that a run would do, and undoing it, without keeping others from writing meanwhile."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection, transaction

from coordinator.engine import is_sqlite
from coordinator.errors import ServiceBusy

ROOM = 1.2  # times the database, for what the run adds


@contextmanager
def roll_back_writes_of_block(folder: Path) -> Iterator[None]:
    """Undo all that the block writes.

    On PostgreSQL it is one transaction, which others do not notice. SQLite has one writer, so there the block
    writes into a copy of the database in `folder`. Within a transaction it is a part of that. Raises ServiceBusy where
    there is no room for the copy.
    """
    if is_sqlite() and not connection.in_atomic_block:
        with use_database_copy_during_block(folder):
            yield
        return
    with transaction.atomic():
        yield
        if not is_sqlite():
            connection.check_constraints()  # what would have been looked at when it is committed
        transaction.set_rollback(True)


@contextmanager
def use_database_copy_during_block(folder: Path) -> Iterator[None]:
    own = connection.settings_dict
    needed, free = int(Path(own["NAME"]).stat().st_size * ROOM), shutil.disk_usage(folder).free
    if needed > free:
        raise ServiceBusy(
            f"A dry run needs {needed // 2**20 + 1:,} MiB in {folder} for a copy of the database;"
            f" {free // 2**20:,} MiB are free."
        )
    target = folder / "rehearsal.sqlite3"
    connection.ensure_connection()
    with sqlite3.connect(target) as copy:
        connection.connection.backup(copy)
    copy.close()
    connection.close()
    connection.settings_dict = {**own, "NAME": str(target)}
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict = own
        target.unlink(missing_ok=True)
