"""What may be migrated while servers of the version before go on, and that our own migrations are such, or say so."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from coordinator.engine import health
from coordinator.migrations._sql import safe_beside_older, step
from coordinator.operations import migrating, startup

FIRST_HELD = "0073"  # the migrations before were made for servers that stop first
MADE = migrations.CreateModel("Mood", [("id", models.BigAutoField(primary_key=True))])


def unread(apps: Any, schema_editor: Any) -> None:
    """Do who knows what."""


@safe_beside_older("it fills a column that the older version does not know")
def read(apps: Any, schema_editor: Any) -> None:
    """Do what its word says."""


def add(column: models.Field[Any, Any], model: str = "apikey") -> Operation:
    return migrations.AddField(model, "mood", column)


SAFE: list[Operation] = [
    MADE,
    add(models.TextField(null=True)),
    add(models.TextField(db_default="")),
    migrations.AlterField("apikey", "name", models.TextField(unique=True, help_text="Said otherwise")),
    migrations.AlterModelOptions("apikey", {"ordering": ["name"]}),
    migrations.RemoveIndex("apikey", "some_index"),
    migrations.RunPython(migrations.RunPython.noop),
    migrations.RunPython(read),
    step(
        ["CREATE TABLE moods (id INTEGER)", "CREATE INDEX a ON moods (id)", "INSERT INTO moods VALUES (1)"],
        [],
    ),
    step(["ALTER TABLE sessions ADD COLUMN mood TEXT"], []),
    step(["ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'"], []),
    step([{"sqlite": "", "postgresql": "CREATE INDEX CONCURRENTLY a ON sessions (title)"}], []),
    AddIndexConcurrently("session", models.Index(fields=["title"], name="a")),
    step(
        [
            {"sqlite": "", "postgresql": statement}
            for statement in (
                "CREATE INDEX a ON ONLY events (reason)",
                "CREATE INDEX CONCURRENTLY a_p0 ON events_p0 (reason)",
                "ALTER INDEX a ATTACH PARTITION a_p0",
            )
        ],
        [],
    ),
    step(["UPDATE sessions SET mood = 'calm'"], [], beside_older="nobody reads it yet"),
]
UNSAFE: list[Operation] = [
    add(models.TextField()),
    add(models.TextField(default="")),
    add(models.TextField(null=True, unique=True)),
    add(models.TextField(null=True, db_index=True)),
    migrations.RemoveField("apikey", "name"),
    migrations.RenameField("apikey", "name", "title"),
    migrations.RenameModel("apikey", "key"),
    migrations.DeleteModel("apikey"),
    migrations.AlterField("apikey", "name", models.IntegerField(unique=True)),
    migrations.AlterField("apikey", "agent_id", models.TextField()),
    migrations.AddIndex("apikey", models.Index(fields=["name"], name="a")),
    migrations.AddConstraint("apikey", models.CheckConstraint(condition=models.Q(name="a"), name="a")),
    migrations.RunPython(unread),
    migrations.RunSQL("SELECT 1"),
    step(["ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL"], []),
    step(["ALTER TABLE sessions ADD CONSTRAINT calm CHECK (mood = 'calm')"], []),
    step(["ALTER TABLE sessions DROP COLUMN title"], []),
    step(["CREATE INDEX a ON sessions (title)"], []),
    step(["CREATE INDEX a ON events (id)"], []),
    # Events may be in parts, and PostgreSQL refuses these there.
    step([{"sqlite": "", "postgresql": "CREATE INDEX CONCURRENTLY a ON events (id)"}], []),
    step([{"sqlite": "", "postgresql": "CREATE INDEX CONCURRENTLY a ON ONLY event_context (source)"}], []),
    AddIndexConcurrently("event", models.Index(fields=["reason"], name="a")),
    RemoveIndexConcurrently("event", "idx_events_session"),
    step(["UPDATE sessions SET status = 'idle'"], []),
]


@pytest.fixture(scope="module")
def loader() -> MigrationLoader:
    return MigrationLoader(None)


def verdicts(loader: MigrationLoader, operations: list[Operation]) -> list[bool]:
    """Return for each operation alone whether all of it is safe after the newest migration."""
    newest = loader.project_state()
    found = []
    for operation in operations:
        step_ = migrations.Migration("9999_next", "coordinator")
        step_.operations = [operation]
        found.append(
            not migrating.select_unsafe_findings(
                migrating.list_migration_safety_findings([step_], newest.clone(), migrating.MigrationJudge())
            )
        )
    return found


def test_what_the_version_before_can_go_on_with(loader: MigrationLoader) -> None:
    assert verdicts(loader, SAFE) == [True] * len(SAFE)
    assert verdicts(loader, UNSAFE) == [False] * len(UNSAFE)


def test_who_may_not_index_all_parts_at_once_is_told_how(loader: MigrationLoader) -> None:
    state = loader.project_state()
    step_ = migrations.Migration("9999_next", "coordinator")
    step_.operations = [migrations.AddIndex("event", models.Index(fields=["reason"], name="a"))]
    (found,) = migrating.list_migration_safety_findings(
        [step_], state, migrating.MigrationJudge(is_large=lambda _: False)
    )
    assert "make the index ON ONLY events, then concurrently on each part, and attach those" in found.why


def test_what_belongs_to_a_new_table_is_nobody_elses(loader: MigrationLoader) -> None:
    both = migrations.Migration("9999_next", "coordinator")
    both.operations = [
        MADE,
        add(models.TextField(), "mood"),
        migrations.AddIndex("mood", models.Index(fields=["mood"], name="a")),
    ]
    found = migrating.list_migration_safety_findings(
        [both], loader.project_state(), migrating.MigrationJudge()
    )
    assert (len(found), migrating.select_unsafe_findings(found)) == (3, [])


def test_our_own_migrations_expand_or_say_that_they_contract(loader: MigrationLoader) -> None:
    names = sorted(name for app, name in loader.disk_migrations if app == "coordinator")
    held = [name for name in names if name >= FIRST_HELD]
    before = max(name for name in names if name < FIRST_HELD)
    state, judge = loader.project_state(("coordinator", before)), migrating.MigrationJudge()
    found = migrating.list_migration_safety_findings(
        (loader.disk_migrations["coordinator", name] for name in held), state, judge
    )
    assert [
        f"{one.migration}: {one.operation}: {one.why}. Make it safe, mark it, or end its name in _contract."
        for one in migrating.select_unsafe_findings(found)
        if not one.migration.endswith(migrating.CONTRACTS)
    ] == []


def test_a_server_goes_on_beside_a_newer_version_until_that_takes_something_away() -> None:
    known = {("coordinator", "0001_init")}
    startup.refuse_newer_database(known, known | {("coordinator", "0002_more")})
    with pytest.raises(CommandError, match="newer Signalbox"):
        startup.refuse_newer_database(known, known | {("coordinator", "0003_less_contract")})


@pytest.mark.django_db
def test_a_new_version_does_not_break_the_servers_at_work(
    monkeypatch: pytest.MonkeyPatch, loader: MigrationLoader
) -> None:
    told = StringIO()
    call_command("check_migrations", stdout=told)
    assert told.getvalue() == "No migration is pending.\n"
    broken = migrations.Migration("9999_next", "coordinator")
    broken.operations = [migrations.RemoveField("apikey", "name"), MADE]
    found = migrating.list_migration_safety_findings(
        [broken], loader.project_state(), migrating.MigrationJudge()
    )
    monkeypatch.setattr(migrating, "list_pending_migration_safety_findings", lambda: found)
    startup.require_migrations_safe_for_running_servers()  # nobody is there
    monkeypatch.setattr(health, "count_server_processes", lambda: 2)
    monkeypatch.setattr(startup, "LET_GO_WITHIN", 0.0)
    with pytest.raises(CommandError, match=r"9999_next.*still reads and writes the column.*--migrate-anyway"):
        startup.require_migrations_safe_for_running_servers()
    with pytest.raises(SystemExit, match="3"):
        call_command("check_migrations", stdout=told)
    assert "UNSAFE  9999_next: Remove field name from apikey" in told.getvalue()
    assert "safe    9999_next: Create model Mood" in told.getvalue()
