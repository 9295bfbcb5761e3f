"""The tables that are moved, and the contents of their columns."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.core.management.base import CommandError
from django.db import connection
from django.db.models import Field

from coordinator.importing.column_conversion import ModelColumn
from coordinator.importing.sqlite_copy import quote_sql_identifier

# Worked out of other rows by the server itself, or of this database alone.
DERIVED = frozenset(
    {
        "changes",
        "django_migrations",
        "leases",  # of older versions; nothing reads it
        "sbx_chat_search",
        "sbx_event_marks",
        "sbx_figures_progress",
        "sbx_file_touches",
        "sbx_files",
        "sbx_search",
        "sbx_search_progress",
        "sbx_search_spans",
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
    "varchar": "text",
    "bigint": "integer",
    "integer": "integer",
    "smallint": "integer",
    "boolean": "boolean",
    "bytea": "bytes",
    "double precision": "number",
    "timestamp with time zone": "moment",
    "timestamptz": "moment",
}
BITS = {"integer": 31, "smallint": 15}


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column: what it holds, and how much fits in."""

    column: ModelColumn
    length: int | None = None  # characters
    largest: int | None = None


@dataclass(frozen=True, slots=True)
class MovedTable:
    """A table with its columns and its primary key."""

    name: str
    target_columns: tuple[TargetColumn, ...]
    key: tuple[str, ...]

    @property
    def column_names(self) -> list[str]:
        return [place.column.name for place in self.target_columns]

    @property
    def quoted_columns(self) -> str:
        return ", ".join(map(quote_sql_identifier, self.column_names))

    def extract_row_key(self, row: tuple[object, ...]) -> tuple[object, ...]:
        """Return a row's primary key."""
        return tuple(row[self.column_names.index(name)] for name in self.key)


def require_matching_tables_to_move(source: sqlite3.Connection) -> list[MovedTable]:
    """Return the tables that both databases have. Raises CommandError where their columns differ."""
    source_tables = list_sqlite_tables(source)
    tables = []
    for name, target_places in build_target_columns_by_table().items():
        if name not in source_tables:
            raise CommandError(
                f"SQLite has no table {name}. Start the server on it once, and run this again."
            )
        source_columns = source.execute("SELECT name, pk FROM pragma_table_info(?)", (name,)).fetchall()
        target_columns = {place.column.name for place in target_places}
        if different := target_columns ^ {column for column, _ in source_columns}:
            raise CommandError(
                f"The columns of {name} differ between the two databases: {', '.join(sorted(different))}. "
                "Only what Signalbox itself made can be moved."
            )
        key = tuple(column for column, pk in sorted(source_columns, key=lambda one: one[1]) if pk)
        tables.append(MovedTable(name, tuple(target_places), key))
    return tables


def list_sqlite_tables(source: sqlite3.Connection) -> set[str]:
    """Return SQLite's tables: not its own, no search index, nothing of a move."""
    rows = source.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\\_%'"
        f" ESCAPE '\\' AND name NOT LIKE '{OURS}%'"
    )
    return {name for (name,) in rows}


def row_counts_by_unknown_table(source: sqlite3.Connection, known_tables: list[MovedTable]) -> dict[str, int]:
    """Return the tables that other programs made, with their numbers of rows: those are not moved."""
    names = (
        list_sqlite_tables(source) - {table.name for table in known_tables} - DERIVED - {"sbx_search_words"}
    )
    return {
        name: source.execute(f"SELECT count(*) FROM {quote_sql_identifier(name)}").fetchone()[0]
        for name in sorted(names)
    }


def build_target_columns_by_table() -> dict[str, list[TargetColumn]]:
    """Return the columns of the tables that are moved, by table, as the models say what PostgreSQL has."""
    models = apps.get_models(include_auto_created=True)
    return {
        model._meta.db_table: [
            build_target_column(field) for field in model._meta.concrete_fields if field.column
        ]
        for model in sorted(models, key=lambda model: model._meta.db_table)
        if model._meta.db_table not in DERIVED
    }


def build_target_column(field: Field[Any, Any]) -> TargetColumn:
    kind, _, length = str(field.db_type(connection)).partition("(")
    column = ModelColumn(str(field.column), KINDS[kind], field.null, None, instant=False, units=0)
    largest = 2 ** BITS[kind] - 1 if kind in BITS else None
    return TargetColumn(column, int(length.rstrip(")")) if length else None, largest)
