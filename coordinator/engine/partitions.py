"""Partitions of the events table that older versions made on PostgreSQL: one table to all readers, dropped once empty.

Older versions put `events` and what belongs to events (TABLES) into parts by ranges of ids. Nothing makes parts any
more. Existing ones go on: ids beyond the last part are in the default part, which takes what no other does, and
retention deletes rows wherever they are.
"""

from __future__ import annotations

import logging

from django.db import OperationalError, connection, transaction

from coordinator.engine import is_sqlite, locks

log = logging.getLogger(__name__)

TABLES = ("events", "event_context", "sbx_search", "sbx_file_touches")
LOCK_WAIT_SECONDS = 0.3  # others' statements queue behind such a lock; less than until a deadlock is seen
PASSED_PARTS = r"""
SELECT substring(part.relname FROM '_p\d+$') FROM pg_inherits i JOIN pg_class part ON part.oid = i.inhrelid
WHERE i.inhparent = to_regclass('events')
    AND substring(pg_get_expr(part.relpartbound, part.oid) FROM 'TO \(''(\d+)''\)')::bigint
        <= pg_sequence_last_value(pg_get_serial_sequence('events', 'id')::regclass)
    AND to_regclass('event_context' || substring(part.relname FROM '_p\d+$')) IS NOT NULL
    AND to_regclass('sbx_search' || substring(part.relname FROM '_p\d+$')) IS NOT NULL
    AND to_regclass('sbx_file_touches' || substring(part.relname FROM '_p\d+$')) IS NOT NULL
ORDER BY part.relname
"""


def drop_empty_partitions() -> list[str]:
    """Drop the parts that hold no row and get no new one; return the names of those of `events`.

    A part that others use longer than a moment stays until the next time.
    """
    if is_sqlite():
        return []
    with connection.cursor() as cursor:
        cursor.execute(PASSED_PARTS)
        suffixes = [row[0] for row in cursor.fetchall()]
    dropped = []
    for suffix in suffixes:
        try:
            if is_partition_empty(suffix) and drop_partition_if_empty(suffix):
                dropped.append(f"events{suffix}")
        except OperationalError as problem:
            if not locks.is_retryable_lock_error(problem):
                raise
            log.info("The part events%s is empty and in use. It stays for now.", suffix)
            break  # a transaction that uses it uses the next as well: each try has everybody else wait
    return dropped


def is_partition_empty(suffix: str) -> bool:
    """Say whether a part and what belongs to its events hold no row."""
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f"(SELECT 1 FROM {table}{suffix} LIMIT 1)" for table in TABLES))
        return cursor.fetchone() is None


def drop_partition_if_empty(suffix: str) -> bool:
    """Drop a part and what belongs to its events, unless a row has come; return whether that was done.

    The tables are locked in the order in which others come by: who indexes events reads them and their sessions, who
    writes events holds sessions first. Raises OperationalError where a lock is not to be had.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        locks.limit_lock_wait(LOCK_WAIT_SECONDS)
        cursor.execute("LOCK TABLE ONLY sbx_search, ONLY sbx_file_touches IN ACCESS EXCLUSIVE MODE")
        cursor.execute("LOCK TABLE sbx_files, sessions IN SHARE ROW EXCLUSIVE MODE")
        cursor.execute("LOCK TABLE ONLY events IN ACCESS EXCLUSIVE MODE")
        cursor.execute("LOCK TABLE ONLY event_context IN ACCESS EXCLUSIVE MODE")
        if not is_partition_empty(suffix):
            return False
        for table in reversed(TABLES):
            cursor.execute(f"ALTER TABLE {table} DETACH PARTITION {table}{suffix}")
        cursor.execute(f"DROP TABLE {', '.join(table + suffix for table in TABLES)}")
    return True
