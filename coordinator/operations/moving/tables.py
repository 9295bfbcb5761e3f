"""Which tables are moved, and what their columns hold."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from django.core.management.base import CommandError
from django.db import connection

from coordinator.importing.copying import quote_sql_identifier
from coordinator.importing.values import ModelColumn

# Worked out of other rows by the server itself, or of this database alone.
DERIVED = frozenset(
    {
        "changes",
        "django_migrations",
        "sbx_chat_search",
        "sbx_event_marks",
        "sbx_file_touches",
        "sbx_files",
        "sbx_search",
        "sbx_search_progress",
        "sbx_search_stale",
        "sbx_search_terms",
        "sbx_session_spans",
        "sbx_session_tools",
        "sbx_title_progress",
    }
)
OURS = "sbx_move"  # what the names of a move's own tables and triggers begin with
# Their rows are hashed into a log that strangers can verify: they arrive byte for byte, or not at all.
EXACT = frozenset({"audit_logs", "audit_leaves", "audit_nodes", "audit_checkpoints", "audit_keys"})
KINDS = {
    "text": "text",
    "bigint": "integer",
    "integer": "integer",
    "smallint": "integer",
    "boolean": "boolean",
    "bytea": "bytes",
    "double precision": "number",
    "timestamp with time zone": "moment",
}
BITS = {"integer": 31, "smallint": 15}


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column: what it holds, its type in PostgreSQL, and how much fits in."""

    column: ModelColumn
    type: str
    length: int | None = None  # characters
    largest: int | None = None


@dataclass(frozen=True, slots=True)
class MovedTable:
    """A table with its columns and its primary key; `parents` are the tables that its foreign keys lead to."""

    name: str
    places: tuple[TargetColumn, ...]
    key: tuple[str, ...]
    parents: frozenset[str]

    @property
    def column_names(self) -> list[str]:
        return [place.column.name for place in self.places]

    @property
    def quoted_columns(self) -> str:
        return ", ".join(map(quote_sql_identifier, self.column_names))

    @property
    def quoted_key_columns(self) -> str:
        return ", ".join(map(quote_sql_identifier, self.key))

    @property
    def key_positions(self) -> list[int]:
        return [self.column_names.index(name) for name in self.key]

    @property
    def key_types(self) -> list[str]:
        return [self.places[place].type for place in self.key_positions]

    def extract_row_key(self, row: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(row[place] for place in self.key_positions)


def find_tables_to_move(source: sqlite3.Connection) -> list[MovedTable]:
    """Return the tables that both databases have, parents first. Raises CommandError where their columns differ."""
    there = list_sqlite_tables(source)
    found = {}
    for name, places in load_target_columns().items():
        if name not in there:
            raise CommandError(
                f"SQLite has no table {name}. Start the server on it once, and run this again."
            )
        theirs = source.execute("SELECT name, pk FROM pragma_table_info(?)", (name,)).fetchall()
        mine = {place.column.name for place in places}
        if different := mine ^ {column for column, _ in theirs}:
            raise CommandError(
                f"The columns of {name} differ between the two databases: {', '.join(sorted(different))}. "
                "Only what Signalbox itself made can be moved."
            )
        key = tuple(column for column, pk in sorted(theirs, key=lambda one: one[1]) if pk)
        parents = source.execute('SELECT DISTINCT "table" FROM pragma_foreign_key_list(?)', (name,))
        found[name] = MovedTable(name, tuple(places), key, frozenset(one for (one,) in parents) - {name})
    return order_parents_first(found)


def list_sqlite_tables(source: sqlite3.Connection) -> set[str]:
    """Return SQLite's tables: not its own, no search index, nothing of a move."""
    rows = source.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\\_%'"
        f" ESCAPE '\\' AND name NOT LIKE '{OURS}%'"
    )
    return {name for (name,) in rows}


def count_unknown_table_rows(source: sqlite3.Connection, known: list[MovedTable]) -> dict[str, int]:
    """Return the tables that other programs made, with their numbers of rows: those are not moved."""
    names = list_sqlite_tables(source) - {table.name for table in known} - DERIVED - {"sbx_search_words"}
    return {
        name: source.execute(f"SELECT count(*) FROM {quote_sql_identifier(name)}").fetchone()[0]
        for name in sorted(names)
    }


def load_target_columns() -> dict[str, list[TargetColumn]]:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT c.relname, a.attname, format_type(a.atttypid, NULL),
                CASE WHEN a.atttypmod > 4 THEN a.atttypmod - 4 END, NOT a.attnotnull
            FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
                AND a.attnum > 0 AND NOT a.attisdropped
            ORDER BY c.relname, a.attnum
            """
        )
        rows = cursor.fetchall()
    found: dict[str, list[TargetColumn]] = {}
    for table, name, kind, length, null in rows:
        if table not in DERIVED and not table.startswith(OURS):
            found.setdefault(table, []).append(build_target_column(name, kind, length, null=null))
    return found


def build_target_column(name: str, kind: str, length: int | None, *, null: bool) -> TargetColumn:
    is_short = kind == "character varying"
    held = "text" if is_short else KINDS[kind]
    largest = 2 ** BITS[kind] - 1 if kind in BITS else None
    column = ModelColumn(name, held, null, None, instant=False, units=0)
    return TargetColumn(column, "text" if is_short else kind, length if is_short else None, largest)


def order_parents_first(tables: dict[str, MovedTable]) -> list[MovedTable]:
    ordered: dict[str, MovedTable] = {}
    while left := [table for table in tables.values() if table.name not in ordered]:
        free = [table for table in left if table.parents & tables.keys() <= ordered.keys()]
        ordered |= {table.name: table for table in free or left}
    return list(ordered.values())
