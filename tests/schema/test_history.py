"""The history, step by step: forwards and back with rows in every table, and seeds that respect people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from pytest_django import DjangoDbBlocker

from coordinator.feed import triggers
from tests import standing
from tests.schema.facts import Fact, of_postgres, of_sqlite

GRAPH = MigrationLoader(None).graph
# In the order in which they are run, which is not everywhere that of their numbers.
STEPS = [n for app, n in GRAPH.forwards_plan(GRAPH.leaf_nodes("coordinator")[0]) if app == "coordinator"]
# One row for each table, in the columns that it has had since its first step; parents come first.
ROWS: dict[str, dict[str, Any]] = {
    "plugin_settings": {"plugin_id": "kept"},
    "plugin_configs": {"plugin_id": "kept", "config_key": "k", "config_value": "v"},
    "agents": {"id": "kept", "name": "n", "default_engine_id": "e"},
    "plugin_data": {"plugin_id": "kept", "key": "k", "value": "v"},
    "audit_logs": {"id": 99, "timestamp": "odd", "event_type": "X", "result": "success"},
    "permission_requests": {
        "id": 99,
        "request_id": "kept",
        "created_at": "2026-02-23T12:00:00Z",
        "plugin_id": "p",
        "permission_type": "FileRead",
        "justification": "j",
    },
    "chat_messages": {"id": "kept", "agent_id": "kept", "source": "user", "content": "[]", "created_at": 1},
    "chat_attachments": {
        "id": "kept",
        "message_id": "kept",
        "filename": "f",
        "mime_type": "image/png",
        "size_bytes": 1,
        "storage_type": "inline",
        "created_at": 1,
    },
    "stored_files": {
        "attachment_id": "kept",
        "place": "folder",
        "size_bytes": 1,
        "sha256": "s",
        "pieces": b"kept",
    },
    "runtime_plugins": {"plugin_id": "kept", "script_name": "s", "code_content": "c", "created_at": 1},
    "revoked_keys": {"key_hash": "kept", "revoked_at": 1},
    "agent_plugins": {"agent_id": "kept", "plugin_id": "p"},
    "mcp_servers": {"name": "kept", "command": "c", "created_at": 1},
    "mcp_access_control": {
        "id": 99,
        "entry_type": "server_grant",
        "agent_id": "a",
        "server_id": "s",
        "granted_at": "2026-02-23T12:00:00Z",
    },
    "sessions": {"session_id": "kept", "status": "running", "created_at": "2026-02-23T12:00:00Z"},
    "events": {"id": 99, "session_id": "kept", "event_type": "message", "timestamp": "t"},
    "runs": {
        "run_id": "kept",
        "session_id": "kept",
        "type": "start_session",
        "prompt": "p",
        "created_at": "t",
    },
    "event_context": {"event_id": 99, "session_id": "kept", "instant_us": 1, "received_at": 1},
    "api_keys": {"id": 99, "name": "kept", "prefix": "p", "key_hash": "h", "scopes": "[]", "created_at": "t"},
    "setup_tokens": {"token_hash": "kept", "created_at": "t"},
    "changes": {"id": 9_999, "at": 1, "topic": "t", "key": "k", "op": "insert"},
}
FILLINGS = {"TextField": "kept", "CharField": "kept", "BooleanField": True, "BinaryField": b"kept"}


@pytest.fixture(scope="module", autouse=True)
def whole_again(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A migrated database for all tests here, and for those that follow, whatever became of these.

    No test here migrates to the end for the next one: most begin at the bottom, where a step takes little time.
    """
    with django_db_blocker.unblock():
        before = standing.Standing()
        try:
            yield
        finally:
            call_command("migrate", verbosity=0)
            before.restore()


def begin_at(step: str) -> None:
    """Make the database that the history makes up to a step, without anything of the tests before."""
    migrate_to(None)
    migrate_to(step)


def migrate_to(step: str | None, between: Callable[..., None] | None = None) -> None:
    MigrationExecutor(connection, between).migrate([("coordinator", step)])


def run(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def tables() -> set[str]:
    """Return the tables that stand, but neither Django's own nor the search index, which holds no rows of its own."""
    names = {name for name in standing.tables(connection) if not name.startswith(("auth_", "django_"))}
    return names - {"sbx_search", "sbx_search_pieces", "sbx_chat_search", "sbx_chat_words"}


def row_for(table: str) -> dict[str, Any]:
    """Return the row above, or for a table of a later step one that fills what must be filled."""
    if table not in ROWS:
        with connection.cursor() as cursor:
            columns = connection.introspection.get_table_description(cursor, table)
            types = {c.name: connection.introspection.get_field_type(c.type_code, c) for c in columns}
            key = connection.introspection.get_primary_key_columns(cursor, table) or []
        parents = {column: row_for(other)[target] for column, (target, other) in references(table).items()}
        ROWS[table] = {
            column.name: parents.get(column.name, FILLINGS.get(types[column.name], 99))
            for column in columns
            if column.name in key or not (column.null_ok or column.default)
        }
    return ROWS[table]


def references(table: str) -> dict[str, tuple[str, str]]:
    """Return for each foreign key of a table the column and the table that it points to."""
    with connection.cursor() as cursor:
        relations = connection.introspection.get_relations(cursor, table)
    return {column: (relation[0], relation[1]) for column, relation in relations.items()}


def depth(table: str) -> int:
    """Return how many tables must have their row before this one."""
    parents = {other for _target, other in references(table).values()} - {table}
    return 1 + max(map(depth, parents), default=0)


def insert(table: str) -> None:
    row = row_for(table)
    columns = ", ".join(f'"{column}"' for column in row)
    run(f"INSERT INTO {table} ({columns}) VALUES ({', '.join(['%s'] * len(row))})", *row.values())


def has_row(table: str) -> bool:
    row = row_for(table)
    where = " AND ".join(f'"{column}" = %s' for column in row)
    return bool(run(f"SELECT 1 FROM {table} WHERE {where}", *row.values()))


def parents_first(table: str) -> tuple[int, str]:
    """Order tables so that a row finds what it points to."""
    return (depth(table), table)


def described() -> set[Fact]:
    """Return the facts of all tables that the history makes, as they are now."""
    read = of_postgres if connection.vendor == "postgresql" else of_sqlite
    with connection.cursor() as cursor:
        return read(cursor, tables())


def test_seeds_are_those_of_the_history() -> None:
    assert run("SELECT plugin_id, allowed_permissions FROM plugin_settings ORDER BY plugin_id") == [
        ("memory.ks22", '["MemoryRead","MemoryWrite"]'),
        ("mind.cerebras", '["NetworkAccess"]'),
        ("mind.deepseek", '["NetworkAccess"]'),
    ]
    assert run("SELECT id, default_engine_id, status FROM agents") == [
        ("agent.cloto_default", "mind.cerebras", "online")
    ]
    assert run("SELECT plugin_id FROM agent_plugins ORDER BY pos_x") == [("mind.cerebras",), ("memory.ks22",)]


def test_seeds_that_were_changed_later_stay_on_the_way_back() -> None:
    run("UPDATE agents SET name = 'Renamed'")
    run("UPDATE plugin_settings SET allowed_permissions = '[]' WHERE plugin_id = 'mind.deepseek'")
    migrate_to("0005_optimize_plugin_data")
    assert run("SELECT name FROM agents") == [("Renamed",)]
    assert run("SELECT plugin_id FROM plugin_settings") == [("mind.deepseek",)]


def test_forwards_and_back_with_rows_in_every_table() -> None:
    """One migration each way, looked at between its steps: one for each step would work out all before it anew."""
    migrate_to(None)
    assert not tables()
    schema_at: dict[str, set[Fact]] = {}
    came_back: list[str] = []

    def between(what: str, migration: Any = None, _fake: bool = False) -> None:
        if migration is None or migration.app_label != "coordinator":
            return
        step = migration.name
        if what == "apply_success":
            triggers.synchronize_feed_triggers(connection)
            schema_at[step] = described()
            for table in sorted(tables(), key=parents_first):
                if not has_row(table):
                    insert(table)
                assert has_row(table)
        if what == "unapply_start":
            came_back.append(step)
            assert described() == schema_at[step], step
            assert all(has_row(table) for table in tables()), step

    migrate_to(STEPS[-1], between)
    assert list(schema_at) == STEPS
    migrate_to(None, between)
    assert came_back == STEPS[::-1]
    assert not tables()


def test_a_step_gives_the_schema_of_its_time() -> None:
    def columns(table: str) -> list[str]:
        with connection.cursor() as cursor:
            return [c.name for c in connection.introspection.get_table_description(cursor, table)]

    begin_at("0001_init")
    assert tables() == {"plugin_settings", "plugin_configs", "agents"}
    assert columns("plugin_settings") == ["plugin_id", "is_active"]
    assert columns("agents")[-1] == "metadata"
    migrate_to("0005_optimize_plugin_data")
    assert columns("agents")[-1] == "required_capabilities"
    assert ("index", "plugin_data", "plugin_id") in described()
    migrate_to("0018_add_mcp_servers")
    assert ("index", "plugin_data", "plugin_id") not in described()
    assert columns("mcp_servers")[-1] == "is_active"
    migrate_to("0019_add_mcp_access_control")
    assert columns("mcp_servers")[-1] == "default_policy"
    assert "sessions" not in tables()


def test_seeds_never_overwrite_what_a_person_wrote() -> None:
    begin_at("0005_optimize_plugin_data")
    run(
        "INSERT INTO plugin_settings (plugin_id, is_active, allowed_permissions) VALUES "
        "('mind.deepseek', %s, '[]'), ('memory.ks22', %s, '[\"FileRead\"]')",
        False,
        True,
    )
    run("INSERT INTO plugin_configs VALUES ('mind.deepseek', 'model_id', 'mine')")
    run(
        "INSERT INTO agents (id, name, default_engine_id) VALUES ('agent.cloto_default', 'Mine', 'my.engine')"
    )
    written = everything()
    migrate_to("0019_add_mcp_access_control")
    assert written <= everything()
    assert len(everything()) == len(written) + 2  # mind.cerebras and its config
    migrate_to("0005_optimize_plugin_data")
    assert everything() == written


def everything() -> set[tuple[Any, ...]]:
    """Return what people would see of the seeded tables."""
    return {
        *run("SELECT plugin_id, is_active, allowed_permissions FROM plugin_settings"),
        *run("SELECT plugin_id, config_key, config_value FROM plugin_configs"),
        *run("SELECT id, name, default_engine_id FROM agents"),
    }


@pytest.mark.parametrize(("name", "afterwards"), [("Python Analyst", "Python Bridge"), ("Mine", "Mine")])
def test_the_renamed_agent_is_renamed_unless_a_person_did(name: str, afterwards: str) -> None:
    begin_at("0010_add_chat_persistence")
    run(
        "INSERT INTO agents (id, name, default_engine_id) VALUES ('agent.analyst', %s, 'python.analyst')",
        name,
    )
    migrate_to("0011_rename_python_analyst")
    assert run("SELECT name FROM agents WHERE id = 'agent.analyst'") == [(afterwards,)]


def test_without_the_default_agent_it_gets_no_plugins() -> None:
    begin_at("0014_add_revoked_keys")
    run("DELETE FROM agents")
    migrate_to("0015_add_agent_plugins")
    assert run("SELECT * FROM agent_plugins") == []


def test_the_leases_of_housekeeping_become_jobs() -> None:
    begin_at("0084_declined_tool_definitions")
    run(
        "INSERT INTO leases (name, holder, until) VALUES ('job:prune', 'h:1', 1700000000000), ('x', 'h:1', 1)"
    )
    migrate_to("0085_jobs")
    assert run("SELECT name, subject, next_at, attempts, leased_by FROM jobs") == [
        ("prune", "", 1700000000000, 0, None)
    ]


def test_messages_that_wait_become_jobs_and_go_back() -> None:
    begin_at("0087_no_id_limit")
    run(
        "INSERT INTO notification_targets (id, person, kind, address, created_at) VALUES (1, 'a', 'email', 'x', 't')"
    )
    at, later = "2026-03-01T12:00:00.000000+00:00", 1772366400000
    waiting = f"(7, 1, 'r', 't', 'waiting', 3, '{at}', 'answered 500')"
    run(
        "INSERT INTO notification_log (id, target_id, request_id, created_at, state, attempts, next_at, outcome)"
        f" VALUES {waiting}, (8, 1, 's', 't', 'sent', 1, NULL, 'answered 200')"
    )
    migrate_to("0088_delivery_jobs")
    jobs = "SELECT name, subject, next_at, attempts, error FROM jobs"
    assert run(jobs) == [("notifications:send", "7", later, 3, "answered 500")]
    assert run("SELECT next_at FROM notification_log WHERE id = 7") == [(None,)]
    migrate_to("0087_no_id_limit")
    assert run("SELECT next_at, attempts FROM notification_log WHERE id = 7") == [(at, 3)]
    assert run(jobs) == []
