"""Which of the statements that a block sends would read all of a large table, as the database plans them.

SQLite plans for tables that were never analysed as for large ones. PostgreSQL is told to scan no table where it can do
without (`enable_seqscan = off`): what it then still scans has no index that helps, however many rows there are. What
its autovacuum has learned of the tables, which are small here, is put aside meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction

from coordinator.engine import is_sqlite

# Tables that grow with what agents do.
LARGE = frozenset({
    "events", "event_context", "event_origins", "message_parts", "changes", "audit_logs", "audit_leaves", "audit_nodes",
    "permission_requests", "permission_context", "permission_votes", "notification_log", "mcp_gateway_calls",
    "chat_messages", "chat_attachments", "driven_calls", "session_notes", "idempotency_keys", "sessions",
    "session_titles", "session_owners", "runs", "run_parameters", "usage_days", "sbx_search", "sbx_search_pieces",
    "sbx_search_words", "sbx_search_terms", "sbx_file_touches", "sbx_files", "sbx_session_tools", "sbx_chat_search",
})  # fmt: skip
READS_ALL_FIRST = frozenset({"Sort", "Aggregate", "Hash", "HashAggregate", "Unique"})
READS = re.compile(r"\s*(SELECT|WITH|UPDATE|DELETE)\b", re.IGNORECASE)


@dataclass(slots=True)
class Recorder:
    """The statements that were sent, each once, with its parameters and the page or job that first sent it."""

    sender: str = ""
    statements: dict[str, tuple[Any, str]] = field(default_factory=dict)

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        shape = re.sub(r"(%s|\?)(, (%s|\?))+", "%s, …", sql)
        if not many and READS.match(sql) and shape not in self.statements:
            self.statements[shape] = (sql, params), self.sender
        return execute(sql, params, many, context)

    def scans(self) -> Iterator[tuple[str, str, str]]:
        """Yield sender, table and statement of each that reads all of a large table."""
        with without_statistics():
            for (sql, params), sender in self.statements.values():
                may_filter = sender.startswith(
                    "/"
                )  # a person narrows a list; a job has nobody who waits for it
                for table in scanned_tables(sql, params, may_filter=may_filter):
                    yield sender, table, sql


@contextmanager
def recorded() -> Iterator[Recorder]:
    """Record what this thread's connection sends within the block."""
    recorder = Recorder()
    with connection.execute_wrapper(recorder):
        yield recorder


@contextmanager
def without_statistics() -> Iterator[None]:
    """Have PostgreSQL plan within the block as for tables that were never analysed. The user must be a superuser."""
    with transaction.atomic():
        if not is_sqlite():
            with connection.cursor() as cursor:
                cursor.execute(
                    "DELETE FROM pg_statistic WHERE starelid >= 16384"
                )  # the first id that is no catalogue's
                cursor.execute(
                    "UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0 WHERE oid >= 16384"
                )
        yield
        transaction.set_rollback(True)


def scanned_tables(sql: str, params: Any, *, may_filter: bool) -> set[str]:
    """Return the large tables that the statement would read as a whole.

    A walk along an order that ends with a LIMIT is none; with conditions it is, unless it `may_filter`.
    """
    allows_limit = may_filter or not re.search(r"\bWHERE\b", sql)
    with connection.cursor() as cursor:
        if is_sqlite():
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}", params)
            return _scanned_by_sqlite([row[3] for row in cursor.fetchall()], sql, allows_limit=allows_limit)
        for setting in ("seqscan", "hashjoin", "mergejoin"):
            cursor.execute(f"SET enable_{setting} = off")
        try:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
            (plan,) = cursor.fetchone()
        finally:
            cursor.execute("RESET ALL")
    plan = json.loads(plan) if isinstance(plan, str) else plan
    return set(_scanned_by_postgresql(plan[0]["Plan"], is_limited=False, allows_limit=allows_limit))


def _scanned_by_sqlite(steps: Sequence[str], sql: str, *, allows_limit: bool) -> set[str]:
    """Return what is scanned, but for a walk along an index, or along the ids, that ends with a LIMIT."""
    names = dict(re.findall(r'"?(\w+)"? (?:AS )?"?([A-Z]\d+|[a-z]{1,2})"?(?=[ ,)]|$)', sql))
    aliases = {alias: table for table, alias in names.items()}
    is_sorted = any(re.search("TEMP B-TREE FOR (?!LAST|RIGHT)", step) for step in steps)
    is_limited = allows_limit and not is_sorted and re.search(r"\bLIMIT (\d|%s)", sql)
    scanned = set()
    for step in steps:
        scan = re.match(r"SCAN (\w+)", step)
        table = scan and aliases.get(scan[1], scan[1])
        if table in LARGE and not is_limited and "VIRTUAL TABLE INDEX" not in step:
            scanned.add(table)
    return scanned


def _scanned_by_postgresql(plan: dict[str, Any], *, is_limited: bool, allows_limit: bool) -> Iterator[str]:
    """Yield what is read as a whole: scanned without an index, or along one that nothing narrows down or limits."""
    kind = plan["Node Type"]
    is_limited = (kind == "Limit" and allows_limit) or (is_limited and kind not in READS_ALL_FIRST)
    table = re.sub(r"_p?\d+$", "", plan.get("Relation Name", ""))
    walks = "Scan" in kind and not plan.get("Index Cond") and kind != "Bitmap Heap Scan"
    if table in LARGE and walks and not is_limited:
        yield table
    for part in plan.get("Plans", ()):
        yield from _scanned_by_postgresql(part, is_limited=is_limited, allows_limit=allows_limit)
