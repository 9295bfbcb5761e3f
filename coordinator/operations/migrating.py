"""A check whether a migration may be applied while servers of the previous version run (a rolling upgrade).

A change comes in two steps. The first *expands*: tables, columns and indexes that the older version does not know and
need not fill. The second, in a later version, *contracts*: it takes away or tightens what only the version before the
first used. A migration of the second kind has a name that ends in `_contract`; so an older server knows, by the names
alone, whether it may still work on a database that a newer one has migrated. tests/schema/test_rolling.py holds this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, migrations, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from coordinator.engine import health
from coordinator.engine.partitions import TABLES
from coordinator.migrations._sql import SAFE_BESIDE_OLDER, EngineSql, in_words_of

CONTRACTS = "_contract"
MANY_ROWS = 100_000  # an index over fewer is built before anybody minds

# By name: those of PostgreSQL alone are in a module that SQLite's installations have no driver for.
HARMLESS = {
    "AlterModelOptions": "it changes no table",
    "AlterModelManagers": "it changes no table",
    "AlterModelTableComment": "it changes a comment",
    "RemoveIndex": "the older version works without the index, more slowly",
    "RemoveConstraint": "the older version already meets the constraint",
    "RenameIndex": "no statement names an index",
    "AddIndexConcurrently": "nobody waits while the index is built",
    "RemoveIndexConcurrently": "nobody waits while the index is removed",
    "ValidateConstraint": "nobody waits while the rows are checked",
}
HARMFUL = {
    "DeleteModel": "the older version still reads and writes the table",
    "RemoveField": "the older version still reads and writes the column",
    "RenameModel": "the older version knows the old name alone",
    "RenameField": "the older version knows the old name alone",
    "AlterModelTable": "the older version knows the old name alone",
    "AlterUniqueTogether": "the older version may write what is refused from now on",
    "AddConstraint": "the older version may write what is refused from now on",
    "AddConstraintNotValid": "the older version may write what is refused from now on",
}
CONCURRENT = {"AddIndexConcurrently", "RemoveIndexConcurrently"}
IN_PARTS = (
    "{table} may be in parts that an older version made, for which PostgreSQL does nothing concurrently: make the "
    "index ON ONLY {table}, then "
    "concurrently on each part, and attach those (where it is not in parts, concurrently as usual)"
)
NEW = "the older version does not know the table"
CREATE_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?\"?(\w+)", re.IGNORECASE)
CREATE_INDEX = re.compile(
    r"CREATE (?:UNIQUE )?INDEX (CONCURRENTLY )?(?:IF NOT EXISTS )?\S+ ON (ONLY )?\"?(\w+)", re.IGNORECASE
)
ADD_COLUMN = re.compile(r"ALTER TABLE \"?\w+\"? ADD (?:COLUMN )?(.+)", re.IGNORECASE | re.DOTALL)
ON_TABLE = re.compile(
    r"(?:INSERT INTO|UPDATE|ALTER TABLE|DROP TABLE|CREATE TRIGGER \S+ .*? ON|CREATE (?:UNIQUE )?INDEX \S+ ON)"
    r" \"?(\w+)",
    re.IGNORECASE,
)
SAFE_STATEMENTS = (
    (re.compile(r"CREATE FUNCTION\b", re.IGNORECASE), "the older version does not call the function"),
    (re.compile(r"DROP INDEX\b", re.IGNORECASE), HARMLESS["RemoveIndex"]),
    (
        re.compile(r"ALTER INDEX \S+ ATTACH PARTITION\b", re.IGNORECASE),
        "the index of a part is there already",
    ),
)
SQL_UNREAD = "it is not known what this SQL changes for the older version"

IsLarge = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class MigrationFinding:
    """What one operation means for servers of the version before."""

    migration: str
    operation: str
    safe: bool
    why: str


@dataclass
class MigrationJudge:
    """Judges operations in their order; tables that they make are nobody else's yet.

    `is_large` says of a table whether building an index would keep its writers waiting.
    """

    is_large: IsLarge = lambda _table: True
    new_tables: set[str] = field(default_factory=set)

    def iterate_migration_findings(
        self, migration: Migration, state: ProjectState
    ) -> Iterator[MigrationFinding]:
        """Yield a finding for each operation; `state` is that before it, and is moved on."""
        for operation in migration.operations:
            before = state.clone()
            operation.state_forwards(migration.app_label, state)
            for safe, reason in self.iterate_operation_judgments(
                operation, migration.app_label, before, state
            ):
                yield MigrationFinding(migration.name, operation.describe(), safe, reason)

    def iterate_operation_judgments(
        self, operation: Operation, app: str, before: ProjectState, after: ProjectState
    ) -> Iterator[tuple[bool, str]]:
        """Yield whether it is safe and why; more than once for one that holds several."""
        if isinstance(operation, migrations.SeparateDatabaseAndState):
            for inner in operation.database_operations:
                yield from self.iterate_operation_judgments(inner, app, before, after)
        elif isinstance(operation, EngineSql):
            for statement in operation.forward:
                if sql := in_words_of("postgresql", statement).strip():
                    yield self.judge_recognized_statement_or_none(sql) or declared_safety_or_unsafe(
                        operation.beside_older, SQL_UNREAD
                    )
        elif isinstance(operation, migrations.RunPython):
            yield judge_python_operation(operation.code)
        elif isinstance(operation, migrations.CreateModel):
            self.new_tables.add(model_table_name(operation.name, app, after))
            yield True, NEW
        else:
            yield self.judge_django_operation(operation, app, before, after)

    def judge_django_operation(
        self, operation: Operation, app: str, before: ProjectState, after: ProjectState
    ) -> tuple[bool, str]:
        """Judge one of Django's operations on a model that is there."""
        name, table = type(operation).__name__, operation_table_or_none(operation, app, after)
        if table in self.new_tables:
            return True, NEW
        if name == "AddIndex" or (name in CONCURRENT and table in TABLES):
            return self.judge_plain_index_build(str(table))
        if name in HARMLESS or name in HARMFUL:
            return name in HARMLESS, HARMLESS.get(name) or HARMFUL[name]
        if isinstance(operation, migrations.AddField):
            return self.judge_added_field(operation.field, str(table))
        if isinstance(operation, migrations.AlterField):
            return judge_altered_field(
                before.models[app, operation.model_name_lower].fields[operation.name], operation
            )
        return False, "it is not known what it does"

    def judge_plain_index_build(self, table: str) -> tuple[bool, str]:
        if table in TABLES:
            return False, IN_PARTS.format(table=table)
        if self.is_large(table):
            return False, f"writers of {table} wait while the index is built (AddIndexConcurrently does not)"
        return True, f"{table} is small"

    def judge_index_statement(
        self, concurrently: str | None, only: str | None, table: str
    ) -> tuple[bool, str]:
        if only and not concurrently:
            return True, "nothing is built but the index that the parts' are attached to"
        if concurrently and table not in TABLES:
            return True, HARMLESS["AddIndexConcurrently"]
        return self.judge_plain_index_build(table)

    def judge_added_field(self, column: models.Field[Any, Any], table: str) -> tuple[bool, str]:
        if isinstance(column, models.ManyToManyField):
            return True, NEW
        if not column.null and not column.has_db_default():
            return False, "the older version leaves the column out when it writes a row (null or db_default)"
        if column.unique or (getattr(column, "db_index", False) and self.is_large(table)):
            return False, f"writers of {table} wait while the index is built"
        return True, "the older version need not fill the column"

    def judge_recognized_statement_or_none(self, sql: str) -> tuple[bool, str] | None:
        """Judge one statement in PostgreSQL's words; None where it is not one of those that are known."""
        if match := CREATE_TABLE.match(sql):
            self.new_tables.add(match[1])
            return True, NEW
        if (about := ON_TABLE.match(sql)) and about[1] in self.new_tables:
            return True, NEW
        if index := CREATE_INDEX.match(sql):
            return self.judge_index_statement(*index.groups())
        if added := ADD_COLUMN.match(sql):
            return judge_column_definition_or_none(added[1])
        return next(((True, reason) for pattern, reason in SAFE_STATEMENTS if pattern.match(sql)), None)


def judge_column_definition_or_none(definition: str) -> tuple[bool, str] | None:
    """Judge what follows ADD COLUMN."""
    if re.match(r"(CONSTRAINT|CHECK|UNIQUE|FOREIGN|PRIMARY)\b", definition, re.IGNORECASE):
        return None
    if re.search(r"\b(UNIQUE|REFERENCES)\b", definition, re.IGNORECASE):
        return None
    definition_text = definition.upper()
    if "NOT NULL" in definition_text and "DEFAULT" not in definition_text:
        return False, "the older version leaves the column out when it writes a row"
    return True, "the older version need not fill the column"


def declared_safety_or_unsafe(word: str, otherwise: str) -> tuple[bool, str]:
    """Take the word of who wrote it, where there is one."""
    return (True, word) if word else (False, otherwise)


def judge_python_operation(code: Any) -> tuple[bool, str]:
    if code is migrations.RunPython.noop:
        return True, "it does nothing"
    unread = f"what {code.__name__} does to rows that the older version uses is not known"
    return declared_safety_or_unsafe(getattr(code, SAFE_BESIDE_OLDER, ""), unread)


def judge_altered_field(old: models.Field[Any, Any], operation: migrations.AlterField) -> tuple[bool, str]:
    new = operation.field
    if old.null and not new.null:
        return False, "the older version may still write NULL, and all rows are looked through under a lock"
    if old.has_db_default() and not new.has_db_default():
        return False, "the older version leaves the column out when it writes a row"
    if column_type_or_reference(old) != column_type_or_reference(new):
        return (
            False,
            "the table may be rewritten under a lock, and the older version may not be able to read it",
        )
    if new.unique and not old.unique:
        return False, "the older version may write what is refused from now on"
    return True, "the column holds what it held"


def column_type_or_reference(column: models.Field[Any, Any]) -> object:
    """Return what a column holds, to compare: its type in the database, or what it refers to."""
    if isinstance(column, models.ForeignKey):
        return column.remote_field.model
    return column.db_type(connection)


def operation_table_or_none(operation: Operation, app: str, state: ProjectState) -> str | None:
    name = getattr(operation, "model_name", None)
    return model_table_name(name, app, state) if name and (app, name.lower()) in state.models else None


def model_table_name(name: str, app: str, state: ProjectState) -> str:
    """Return a model's table, without making the model: that takes its time."""
    return str(state.models[app, name.lower()].options.get("db_table") or f"{app}_{name.lower()}")


def list_migration_safety_findings(
    steps: Iterable[Migration], state: ProjectState, judge: MigrationJudge
) -> list[MigrationFinding]:
    """Return what is found in these migrations, which follow on `state`."""
    return [finding for step in steps for finding in judge.iterate_migration_findings(step, state)]


def list_pending_migration_safety_findings() -> list[MigrationFinding]:
    """Return what is found in the migrations that this database lacks; none where it lacks none."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if not plan:
        return []
    judge = MigrationJudge(is_large=lambda table: health.has_more_rows_than(table, MANY_ROWS))
    applied = [key for key in executor.loader.graph.nodes if key in executor.loader.applied_migrations]
    state = executor.loader.project_state(applied) if applied else ProjectState(real_apps=set())
    return list_migration_safety_findings((step for step, _ in plan), state, judge)


def select_unsafe_findings(findings: Sequence[MigrationFinding]) -> list[MigrationFinding]:
    """Return what must not be done while servers of the previous version run."""
    return [finding for finding in findings if not finding.safe]


def select_version_breaking_migrations(names: Iterable[str]) -> list[str]:
    """Return those of the migrations after which older versions do not work any more."""
    return sorted(name for name in names if name.endswith(CONTRACTS))
