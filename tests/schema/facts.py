"""A schema as a set of facts, so that two schemas are compared by comparing two sets.

A fact is a tuple that begins with its kind: ("default", "agents", "status", "'offline'"). Facts come from the
two schema documents (tests/schema/documents.py) and from the databases, where PostgreSQL's words are turned
into the documents'. What Signalbox adds to the documents' tables is called `sbx_…` and left out.
"""

from __future__ import annotations

import re
from typing import Any

Fact = tuple[Any, ...]
OURS = "sbx_"
POSTGRES_TYPES = {
    "text": "TEXT",
    "bigint": "INTEGER",
    "boolean": "BOOLEAN",
    "bytea": "BLOB",
    "timestamp with time zone": "DATETIME",
}
POSTGRES_ACTIONS = {"a": "NO ACTION", "c": "CASCADE", "n": "SET NULL", "r": "RESTRICT", "d": "SET DEFAULT"}


def as_postgres(facts: set[Fact]) -> set[Fact]:
    """Return a document's facts as PostgreSQL can tell them: keys are NOT NULL, DEFAULT NULL is no default."""
    kept = {fact for fact in facts if not (fact[0] == "default" and fact[3] == "NULL")}
    return kept | {
        ("not null", table, c) for kind, table, *cols in facts if kind == "primary key" for c in cols
    }


def of_sqlite(cursor: Any, tables: set[str]) -> set[Fact]:
    """Return the facts of these tables in the SQLite database of `cursor`."""
    facts: set[Fact] = set()
    for table in tables:
        facts |= _sqlite_columns(cursor, table) | _sqlite_indexes(cursor, table)
        for row in cursor.execute(f"SELECT * FROM pragma_foreign_key_list('{table}')").fetchall():
            _, _, parent, column, parent_column, _, on_delete, _ = row
            facts.add(("foreign key", table, column, parent, parent_column, on_delete))
        written = cursor.execute(
            f"SELECT type, name, sql FROM sqlite_master WHERE tbl_name = '{table}' AND sql IS NOT NULL"
        ).fetchall()
        for kind, name, sql in written:
            if kind == "table":
                facts |= _sqlite_clauses(table, sql)
            elif kind == "trigger" and not name.startswith(OURS):
                when = re.search(r"(BEFORE|AFTER) (INSERT|UPDATE|DELETE)", sql)
                facts.add(("trigger", table, name, when and when[0]))
    return facts


def _sqlite_columns(cursor: Any, table: str) -> set[Fact]:
    facts: set[Fact] = set()
    key = {}
    for place, name, type_, not_null, default, in_key in cursor.execute(
        f"SELECT * FROM pragma_table_info('{table}')"
    ).fetchall():
        facts.add(("column", table, place, name, type_))
        if not_null:
            facts.add(("not null", table, name))
        if default is not None:
            facts.add(("default", table, name, default))
        if in_key:
            key[in_key] = name
    return facts | {("primary key", table, *(key[place] for place in sorted(key)))}


def _sqlite_indexes(cursor: Any, table: str) -> set[Fact]:
    facts: set[Fact] = set()
    rows = cursor.execute(f"SELECT name, \"unique\", origin FROM pragma_index_list('{table}')").fetchall()
    for name, unique, origin in rows:
        columns = cursor.execute(
            f"SELECT name, \"desc\" FROM pragma_index_xinfo('{name}') WHERE key ORDER BY seqno"
        ).fetchall()
        if origin == "u":
            facts.add(("unique", table, *(column for column, _ in columns)))
        elif origin == "c" and not name.startswith(OURS):
            kind = "unique index" if unique else "index"
            facts.add((kind, table, *(f"{column} DESC" if desc else column for column, desc in columns)))
    return facts


def _sqlite_clauses(table: str, sql: str) -> set[Fact]:
    """Return what SQLite tells of in its SQL only: CHECK and AUTOINCREMENT."""
    facts: set[Fact] = set()
    if re.search(r"\bAUTOINCREMENT\b", sql):
        facts.add(("autoincrement", table))
    for column, words in re.findall(r"CHECK \((\w+) IN \(([^()]*)\)\)", sql):
        facts.add(("check", table, column, *re.findall(r"'([^']*)'", words)))
    return facts


def of_postgres(cursor: Any, tables: set[str]) -> set[Fact]:
    """Return the facts of these tables in the PostgreSQL database of `cursor`, in the documents' words."""
    names = sorted(tables)
    return (
        _postgres_columns(cursor, names)
        | _postgres_constraints(cursor, names)
        | _postgres_indexes(cursor, names)
        | _postgres_triggers(cursor, names)
    )


def _postgres_columns(cursor: Any, names: list[str]) -> set[Fact]:
    cursor.execute(
        """
        SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity,
            row_number() OVER (PARTITION BY table_name ORDER BY ordinal_position) - 1
        FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = ANY(%s)
        """,
        [names],
    )
    facts: set[Fact] = set()
    for table, name, type_, nullable, default, identity, place in cursor.fetchall():
        facts.add(("column", table, place, name, POSTGRES_TYPES.get(type_, type_)))
        if nullable == "NO":
            facts.add(("not null", table, name))
        if default is not None:
            literal = default.removesuffix("::text")
            facts.add(("default", table, name, {"true": "1", "false": "0"}.get(literal, literal)))
        if identity == "YES":
            facts.add(("autoincrement", table))
    return facts


def _postgres_constraints(cursor: Any, names: list[str]) -> set[Fact]:
    cursor.execute(
        """
        SELECT r.relname, c.contype::text, c.confdeltype::text, f.relname, pg_get_constraintdef(c.oid),
            ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY AS k (number, place)
                JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number ORDER BY k.place),
            ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY AS k (number, place)
                JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.number ORDER BY k.place)
        FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid LEFT JOIN pg_class f ON f.oid = c.confrelid
        WHERE r.relnamespace = current_schema()::regnamespace AND r.relname = ANY(%s) AND c.contype <> 't'
        """,
        [names],
    )
    facts: set[Fact] = set()
    for table, kind, on_delete, parent, definition, columns, parent_columns in cursor.fetchall():
        if kind == "p":
            facts.add(("primary key", table, *columns))
        elif kind == "u":
            facts.add(("unique", table, *columns))
        elif kind == "f":
            facts.add(("foreign key", table, *columns, parent, *parent_columns, POSTGRES_ACTIONS[on_delete]))
        else:
            facts.add(("check", table, *columns, *re.findall(r"'([^']*)'::text", definition)))
    return facts


def _postgres_indexes(cursor: Any, names: list[str]) -> set[Fact]:
    # Bit 1 of an index column's option says that it is descending.
    cursor.execute(
        """
        SELECT r.relname, x.indisunique, ARRAY(
            SELECT pg_get_indexdef(x.indexrelid, k.place::int, true)
                || CASE WHEN x.indoption[k.place - 1] & 1 = 1 THEN ' DESC' ELSE '' END
            FROM generate_series(1, x.indnkeyatts) AS k (place) ORDER BY k.place)
        FROM pg_index x JOIN pg_class r ON r.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
        WHERE r.relnamespace = current_schema()::regnamespace AND r.relname = ANY(%s)
            AND i.relname NOT LIKE %s AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.oid)
        """,
        [names, f"{OURS}%"],
    )
    return {
        ("unique index" if unique else "index", table, *(column.replace('"', "") for column in columns))
        for table, unique, columns in cursor.fetchall()
    }


def _postgres_triggers(cursor: Any, names: list[str]) -> set[Fact]:
    cursor.execute(
        """
        SELECT event_object_table, trigger_name, action_timing || ' ' || event_manipulation
        FROM information_schema.triggers
        WHERE trigger_schema = current_schema() AND event_object_table = ANY(%s) AND trigger_name NOT LIKE %s
        """,
        [names, f"{OURS}%"],
    )
    return {("trigger", *row) for row in cursor.fetchall()}
