"""The database is what the two schema documents say: every column, constraint, default, index and trigger."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator

import pytest
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader

from coordinator.models import Session
from tests.schema import documents
from tests.schema.facts import Fact, as_postgres, of_postgres, of_sqlite

CLOTOCORE, COORDINATOR = documents.clotocore_facts(), documents.coordinator_facts()
# Tables that the history names and the documents do not describe (written as SQL here).
BESIDE = """
CREATE TABLE runtime_plugins (
    plugin_id TEXT PRIMARY KEY,
    script_name TEXT NOT NULL,
    description TEXT,
    code_content TEXT NOT NULL,
    permissions TEXT DEFAULT '[]',
    created_at INTEGER NOT NULL,
    created_by TEXT,
    generation_number INTEGER,
    is_active BOOLEAN NOT NULL DEFAULT 1
);
CREATE TABLE revoked_keys (
    key_hash TEXT PRIMARY KEY,
    revoked_at INTEGER NOT NULL
);
CREATE TABLE agent_plugins (
    agent_id TEXT NOT NULL REFERENCES agents(id) ON DELETE CASCADE,
    plugin_id TEXT NOT NULL,
    pos_x INTEGER NOT NULL DEFAULT 0,
    pos_y INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (agent_id, plugin_id)
);
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions(session_id) ON DELETE CASCADE,
    type TEXT NOT NULL,
    agent_name TEXT,
    prompt TEXT NOT NULL,
    project_dir TEXT,
    parent_session_id TEXT,
    execution_mode TEXT NOT NULL DEFAULT 'sync',
    demands TEXT,
    status TEXT NOT NULL DEFAULT 'pending',
    runner_id TEXT,
    error TEXT,
    created_at TEXT NOT NULL,
    claimed_at TEXT,
    started_at TEXT,
    completed_at TEXT,
    timeout_at TEXT
);
"""
BESIDE_INDEXES = {
    ("index", "runtime_plugins", "is_active"),
    ("index", "agent_plugins", "agent_id"),
    ("index", "runs", "session_id"),
    ("index", "runs", "status"),
    ("index", "runs", "runner_id"),
    ("index", "runs", "status", "created_at"),
}


def beside_facts() -> set[Fact]:
    tables = re.findall(r"CREATE TABLE .*?\n\);", BESIDE, flags=re.DOTALL)
    return {fact for sql in tables for fact in documents.table_facts(sql)[1]} | BESIDE_INDEXES


ALL = CLOTOCORE | COORDINATOR | beside_facts()
TABLES = {fact[1] for fact in ALL}


def totals(facts: set[Fact]) -> dict[str, int]:
    return dict(Counter(fact[0] for fact in facts)) | {"tables": len({fact[1] for fact in facts})}


def expected() -> set[Fact]:
    return as_postgres(ALL) if connection.vendor == "postgresql" else ALL


def reported() -> set[Fact]:
    read = of_postgres if connection.vendor == "postgresql" else of_sqlite
    with connection.cursor() as cursor:
        return read(cursor, TABLES)


def test_the_reader_found_all_of_clotocores_document() -> None:
    assert totals(CLOTOCORE) == {
        "tables": 10,
        "column": 77,
        "primary key": 10,
        "autoincrement": 3,
        "not null": 35,
        "default": 15,
        "unique": 1,
        "check": 3,
        "foreign key": 2,
        "index": 12,
        "trigger": 1,
    }


def test_the_reader_found_all_of_the_coordinators_document() -> None:
    assert totals(COORDINATOR) == {
        "tables": 2,
        "column": 22,
        "primary key": 2,
        "autoincrement": 1,
        "not null": 5,
        "foreign key": 2,
        "index": 3,
    }


def test_the_coordinators_lists_of_columns_agree_with_its_sql() -> None:
    listed = documents.rows(documents.COORDINATOR, "Column", "Type", "Nullable", "Description")
    keys = {fact[2:] for fact in COORDINATOR if fact[0] == "primary key"}
    required = {(fact[2],) for fact in COORDINATOR if fact[0] == "not null"} | keys
    assert len(listed) == 22
    columns = sorted(
        (fact for fact in COORDINATOR if fact[0] == "column"), key=lambda f: (f[1] != "sessions", f[2])
    )
    assert [row[:2] for row in listed] == [[name, type_] for _, _, _, name, type_ in columns]
    for name, _, nullable, _ in listed:
        # Each name that both tables have (session_id) is required in both.
        assert nullable == ("NO" if (name,) in required else "YES")


@pytest.mark.parametrize("line", ["NOT NULL FOREVER", "DEFAULT now()", "FK -> agents(id)", "CHECK > 0"])
def test_the_reader_refuses_what_it_does_not_understand(line: str) -> None:
    with pytest.raises(documents.NotUnderstood):
        documents.column_facts("t", 0, "c", "TEXT", line)


@pytest.mark.django_db
def test_the_database_reports_what_the_documents_say() -> None:
    assert reported() == expected()


@pytest.mark.django_db
def test_the_documents_sql_examples_run() -> None:
    examples = re.findall(r"```sql\n((?:UPDATE|SELECT).*?)```", documents.COORDINATOR, flags=re.DOTALL)
    assert len(examples) == 3
    with connection.cursor() as cursor:
        for sql in examples:
            # The named exception: `executor_type` is the old name of `executor_profile`.
            today = sql.replace("executor_type", "executor_profile").replace("?", "%s")
            cursor.execute(today, ["x"] * today.count("%s"))


def test_the_session_statuses_are_the_documents() -> None:
    listed = re.search(r"\| `status` \| TEXT \| NO \| Session status: (.+) \|", documents.COORDINATOR)
    assert listed is not None
    # The named exceptions: `error` stands in the document's text only, as the status of a failed session; `idle` is
    # the newest coordinator's, whose executors outlive their runs.
    assert set(Session.Status.values) == {*documents.quoted(listed[1], ","), "error", "idle"}
    assert "`status='error'` (failure)" in documents.COORDINATOR


def test_each_row_of_the_history_is_a_migration_of_its_name_in_its_order() -> None:
    names = sorted(name for app, name in MigrationLoader(None).disk_migrations if app == "coordinator")
    listed = [f"{number:04}_{name}" for number, (name, _) in enumerate(documents.history(), start=1)]
    assert len(listed) == 19
    assert names[: len(listed)] == listed


def test_there_is_one_leaf() -> None:
    assert len(MigrationLoader(None).graph.leaf_nodes("coordinator")) == 1


def sqlite_mutants(statements: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the schema with one clause, index or trigger less, or one type or order otherwise."""
    clause = re.compile(
        r" NOT NULL| DEFAULT (?:'[^']*'|\w+)| UNIQUE| AUTOINCREMENT| CHECK \(\w+ IN \([^()]*\)\)"
        r"| ON DELETE (?:CASCADE|SET NULL)| REFERENCES \w+ \(\w+\)(?: ON DELETE \w+(?: NULL)?)?"
        r"| DESC|(?<=\w )(?:TEXT|INTEGER|BOOLEAN|BLOB|DATETIME)\b|'(?:user|inline|capability)', "
    )
    for place, sql in enumerate(statements):
        if sql.startswith("CREATE TABLE"):
            for match in clause.finditer(sql):
                other = (
                    " VARCHAR"
                    if match[0].strip() in {"TEXT", "INTEGER", "BOOLEAN", "BLOB", "DATETIME"}
                    else ""
                )
                mutant = sql[: match.start()] + other + sql[match.end() :]
                if "AUTOINCREMENT" in mutant and "INTEGER PRIMARY KEY AUTOINCREMENT" not in mutant:
                    continue  # SQLite itself refuses that
                if match[0].startswith(" REFERENCES") and "FOREIGN KEY" in mutant:
                    mutant = re.sub(r",\s+FOREIGN KEY \(session_id\)(?! REF)", "", mutant)
                yield match[0], [*statements[:place], mutant, *statements[place + 1 :]]
        else:
            yield sql, statements[:place] + statements[place + 1 :]
            if " DESC" in sql:
                yield " DESC", [*statements[:place], sql.replace(" DESC", ""), *statements[place + 1 :]]


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "sqlite", reason="mutates SQLite's own SQL")
def test_the_comparison_sees_every_mutation_on_sqlite() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sbx_%'"
        )
        statements = [sql for table, sql in cursor.fetchall() if table in TABLES]
    missed, tried = [], 0
    for what, mutant in sqlite_mutants(statements):
        scratch = sqlite3.connect(":memory:")
        for sql in mutant:
            scratch.execute(sql)
        tried += 1
        if of_sqlite(scratch.cursor(), TABLES) == ALL:
            missed.append(what)
        scratch.close()
    assert not missed
    assert tried > 200


def postgres_mutations(facts: set[Fact]) -> Iterator[str]:
    """Yield a statement for each fact that makes it false."""
    for kind, table, *rest in sorted(facts, key=str):
        if kind == "column":
            yield f'ALTER TABLE {table} RENAME COLUMN "{rest[1]}" TO other'
        elif (
            kind == "not null"
            and ("primary key", table, rest[0]) not in facts
            and rest[0] not in key_of(facts, table)
        ):
            yield f'ALTER TABLE {table} ALTER COLUMN "{rest[0]}" DROP NOT NULL'
        elif kind == "default":
            yield f'ALTER TABLE {table} ALTER COLUMN "{rest[0]}" DROP DEFAULT'
        elif kind == "autoincrement":
            yield f"ALTER TABLE {table} ALTER COLUMN id DROP IDENTITY"
        elif kind == "trigger":
            yield f"DROP TRIGGER {rest[0]} ON {table}"


def key_of(facts: set[Fact], table: str) -> tuple[str, ...]:
    return next(fact[2:] for fact in facts if fact[:2] == ("primary key", table))


def postgres_drops() -> Iterator[str]:
    """Yield a statement for each constraint and index that takes it away or changes it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text, conname, contype::text, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE conrelid::regclass::text = ANY(%s) AND contype <> 't'",
            [sorted(TABLES)],
        )
        for table, name, kind, definition in cursor.fetchall():
            yield f"ALTER TABLE {table} DROP CONSTRAINT {name} CASCADE"
            if kind == "f" and "ON DELETE" in definition:
                plain = re.sub(r" ON DELETE (CASCADE|SET NULL)", "", definition)
                yield f"ALTER TABLE {table} DROP CONSTRAINT {name}; ALTER TABLE {table} ADD {plain}"
        cursor.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE indexname LIKE 'idx_%%' AND tablename = ANY(%s)",
            [sorted(TABLES)],
        )
        for name, definition in cursor.fetchall():
            yield f"DROP INDEX {name}"
            other = (
                definition.replace(" DESC", "")
                if " DESC" in definition
                else definition.replace(")", " DESC)")
            )
            yield f"DROP INDEX {name}; {other}"


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "postgresql", reason="mutates PostgreSQL's tables")
def test_the_comparison_sees_every_mutation_on_postgres() -> None:
    missed, tried = [], 0
    for sql in [*postgres_mutations(expected()), *postgres_drops()]:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)
            tried += 1
            if reported() == expected():
                missed.append(sql)
            transaction.set_rollback(True)
    assert not missed
    assert tried > 200
