"""The feed's triggers: what is told, in which order, by whom, and that they stand."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connection, migrations, models, transaction
from django.db.migrations.state import ProjectState

from coordinator.engine import change_triggers
from coordinator.feed import triggers
from coordinator.models import (
    Agent,
    ApiKey,
    Change,
    ChatMessage,
    Event,
    Grant,
    McpServer,
    PermissionRequest,
    Run,
)
from coordinator.models import Session as SessionRow
from coordinator.operations.startup import migrations_on_disk

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime(2026, 2, 23, 12, tzinfo=UTC)
postgres = connection.vendor == "postgresql"


def told(**only: Any) -> list[tuple[str, str, str | None, str]]:
    """Return what the feed says so far, and forget it."""
    found = list(Change.objects.filter(**only).order_by("id").values_list("topic", "key", "parent", "op"))
    Change.objects.all().delete()
    return found


def make_session(session_id: str = "ses_1", **fields: Any) -> SessionRow:
    return SessionRow.objects.create(session_id=session_id, status="running", created_at=NOW, **fields)


def make_run(session: SessionRow, run_id: str = "run_1") -> Run:
    return Run.objects.create(
        run_id=run_id, session=session, type="start_session", prompt="p", created_at=NOW
    )


def other_program() -> Any:
    """Return a connection as another program has it: no Django, no function of ours."""
    database = connection.settings_dict
    if postgres:
        return psycopg.connect(
            dbname=database["NAME"],
            user=database["USER"],
            password=database["PASSWORD"] or None,
            host=database["HOST"],
            port=database["PORT"] or None,
            autocommit=True,
        )
    return sqlite3.connect(database["NAME"], isolation_level=None)


class TestTold:
    def test_sessions_and_runs(self) -> None:
        session = make_session()
        run = make_run(session)
        SessionRow.objects.update(status="finished")
        run.delete()
        session.delete()
        assert told() == [
            ("sessions", "ses_1", None, "insert"),
            ("runs", "run_1", "ses_1", "insert"),
            ("sessions", "ses_1", None, "update"),
            ("runs", "run_1", "ses_1", "delete"),
            ("sessions", "ses_1", None, "delete"),
        ]

    def test_events_name_their_session(self) -> None:
        make_session()
        told()
        event = Event.objects.create(session_id="ses_1", event_type="message", timestamp="t")
        Event.objects.update(content=[])
        assert told() == [
            ("events", str(event.pk), "ses_1", "insert"),
            ("events", str(event.pk), "ses_1", "update"),
        ]

    def test_requests_servers_grants_and_messages(self) -> None:
        request = PermissionRequest.objects.create(
            request_id="r", created_at=NOW, plugin_id="p", permission_type="FileRead", justification="j"
        )
        McpServer.objects.create(name="srv", command="c", created_at=NOW)
        grant = Grant.objects.create(entry_type="server_grant", agent_id="a", server_id="srv", granted_at=NOW)
        ChatMessage.objects.create(
            id="m", agent_id="agent.cloto_default", source="user", content=[], created_at=NOW
        )
        assert told() == [
            ("permission_requests", str(request.pk), "p", "insert"),
            ("mcp_servers", "srv", None, "insert"),
            ("grants", str(grant.pk), "srv", "insert"),
            ("chat_messages", "m", "agent.cloto_default", "insert"),
        ]

    def test_an_agents_heartbeat(self) -> None:
        Agent.objects.update(last_seen=NOW)
        assert told() == [("agents", "agent.cloto_default", None, "update")]

    def test_people_and_their_groups(self) -> None:
        alice = User.objects.create_user("alice")
        alice.groups.add(Group.objects.get(name="viewer"))
        alice.groups.clear()
        alice.delete()
        key = str(alice.pk or Change.objects.latest("id").key)
        assert told() == [("users", key, None, op) for op in ("insert", "update", "update", "delete")]

    def test_a_write_by_another_program(self) -> None:
        with other_program() as program:
            program.execute("INSERT INTO sessions (session_id, status, created_at) VALUES ('x', 'y', 'z')")
        assert told() == [("sessions", "x", None, "insert")]

    def test_the_time_is_now(self) -> None:
        make_session()
        assert abs(Change.objects.get().at.timestamp() - time.time()) < 10


class TestNotTold:
    def test_an_update_that_changes_nothing(self) -> None:
        make_session()
        told()
        SessionRow.objects.update(status="running")
        assert told() == []

    def test_when_a_key_was_used_or_a_person_signed_in(self) -> None:
        ApiKey.objects.create(name="k", prefix="p", key_hash="h", scopes=[], created_at=NOW)
        User.objects.create_user("alice")
        told()
        ApiKey.objects.update(last_used_at=NOW)
        User.objects.update(last_login=NOW)
        assert told() == []
        ApiKey.objects.update(revoked_at=NOW)
        assert [topic for topic, *_ in told()] == ["api_keys"]

    def test_what_was_rolled_back(self) -> None:
        with transaction.atomic():
            make_session()
            transaction.set_rollback(True)
        assert told() == []

    def test_the_events_of_a_deleted_session(self) -> None:
        session = make_session()
        child = make_session("ses_2", parent_session=session)
        make_run(session)
        Event.objects.bulk_create(
            Event(session=session, event_type="message", timestamp="t") for _ in range(1000)
        )
        told()
        session.delete()
        assert not Event.objects.exists()
        assert sorted(told()) == [
            ("runs", "run_1", "ses_1", "delete"),
            ("sessions", "ses_1", None, "delete"),
            ("sessions", child.pk, None, "update"),
        ]


def test_ids_of_inserted_rows_are_not_those_of_changes() -> None:
    """SQLite: last_insert_rowid() must be the event's, whatever its trigger inserted."""
    make_session()
    with other_program() as program:
        insert = "INSERT INTO events (session_id, event_type, timestamp) VALUES ('ses_1', 'x', 't')"
        if not postgres:
            rowid = program.execute(insert).lastrowid
            assert rowid == program.execute("SELECT max(id) FROM events").fetchone()[0]


@pytest.mark.skipif(not postgres, reason="SQLite has one writer at a time")
class TestCommitOrder:
    def test_ids_follow_the_order_of_commits_not_of_writes(self) -> None:
        with other_program() as early, other_program() as late:
            early.autocommit = late.autocommit = False
            early.execute("INSERT INTO sessions (session_id, status, created_at) VALUES ('first', 'x', 't')")
            late.execute("INSERT INTO sessions (session_id, status, created_at) VALUES ('second', 'x', 't')")
            late.commit()
            early.commit()
        assert [key for _, key, _, _ in told()] == ["second", "first"]

    def test_writers_that_wait_for_each_others_rows_do_not_deadlock_with_the_feed(self) -> None:
        """The lock comes last, so a writer that waits for a row never holds it."""
        make_session("a")
        make_session("b")
        with other_program() as one, other_program() as other:
            one.autocommit = other.autocommit = False
            one.execute("UPDATE sessions SET status = 'one' WHERE session_id = 'a'")
            other.execute("UPDATE sessions SET status = 'other' WHERE session_id = 'b'")
            other.execute("SET lock_timeout = '2s'")
            one.commit()
            other.execute("UPDATE sessions SET status = 'other' WHERE session_id = 'a'")
            other.commit()
        assert {session.status for session in SessionRow.objects.all()} == {"other"}

    def test_a_transaction_notifies_once(self) -> None:
        with other_program() as listener:
            listener.execute(f"LISTEN {change_triggers.CHANNEL}")
            with transaction.atomic():
                session = make_session()
                Event.objects.bulk_create(
                    Event(session=session, event_type="x", timestamp="t") for _ in range(100)
                )
            assert len(list(listener.notifies(timeout=2, stop_after=1))) == 1
            assert list(listener.notifies(timeout=0.2)) == []


def test_ten_thousand_events_in_one_transaction_stay_fast() -> None:
    """Guards against a trigger that costs a multiple of its row; the bound leaves room for a busy machine."""
    make_session()
    rows = [("ses_1", "message", "2026-02-23T12:00:00Z", "x" * 200)] * 10_000
    started = time.perf_counter()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO events (session_id, event_type, timestamp, content) VALUES (%s, %s, %s, %s)", rows
        )
    assert time.perf_counter() - started < 10
    assert len(told(topic="events")) == 10_000


class TestStanding:
    def test_what_stands_is_what_should(self) -> None:
        expected = triggers.build_expected_triggers(connection)
        assert triggers.load_current_trigger_fingerprints(connection) == {
            name: (trigger.table, trigger.trigger_fingerprint) for name, trigger in expected.items()
        }
        names = {
            f"{change_triggers.PREFIX}{told.table}_{op}" for told in triggers.FEED_TABLES for op in told.ops
        }
        assert set(expected) == names
        assert triggers.synchronize_feed_triggers(connection) == []

    def test_a_missing_and_a_foreign_one_are_put_right(self) -> None:
        on = " ON agents" if postgres else ""
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER sbx_feed_agents_update{on}")
            if postgres:
                cursor.execute(
                    "CREATE CONSTRAINT TRIGGER sbx_feed_old AFTER INSERT ON agents FOR EACH ROW "
                    "EXECUTE FUNCTION sbx_feed_agents()"
                )
            else:
                cursor.execute("CREATE TRIGGER sbx_feed_old AFTER INSERT ON agents BEGIN SELECT 1; END")
        assert triggers.synchronize_feed_triggers(connection) == ["sbx_feed_agents_update", "sbx_feed_old"]
        assert triggers.synchronize_feed_triggers(connection) == []

    @pytest.mark.skipif(not postgres, reason="SQLite's triggers have no functions")
    @pytest.mark.parametrize(
        "harm",
        [
            "CREATE OR REPLACE FUNCTION sbx_feed_agents() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "ALTER TABLE agents DISABLE TRIGGER sbx_feed_agents_insert",
        ],
    )
    def test_harm_done_by_hand_is_put_right(self, harm: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(harm)
        assert "sbx_feed_agents_insert" in triggers.synchronize_feed_triggers(connection)
        Agent.objects.create(id="a", name="A", default_engine_id="e")
        assert told() == [("agents", "a", None, "insert")]

    def test_a_table_that_django_remakes_gets_its_triggers_back(self) -> None:
        """On SQLite an altered field means a new table, which has no triggers."""
        state = ProjectState.from_apps(ApiKey._meta.apps)
        operation = migrations.AlterField("apikey", "prefix", models.TextField(db_index=True))
        altered = state.clone()
        operation.state_forwards("coordinator", altered)
        with connection.schema_editor() as editor:
            operation.database_forwards("coordinator", editor, state, altered)
        assert postgres or "sbx_feed_api_keys_insert" not in triggers.load_current_trigger_fingerprints(
            connection
        )
        call_command("migrate", verbosity=0)
        assert "sbx_feed_api_keys_insert" in triggers.load_current_trigger_fingerprints(connection)
        ApiKey.objects.create(name="k", prefix="p", key_hash="h", scopes=[], created_at=NOW)
        assert [topic for topic, *_ in told()] == ["api_keys"]
        with connection.schema_editor() as editor:
            operation.database_backwards("coordinator", editor, altered, state)


# By which migration a server knows that a newer version has defined the triggers, and leaves them alone
# (operations.post_migrate, operations.startup); with the digest of the definitions since then.
DEFINED_SINCE = (
    ("0075_spans_by_session", "bf209e1fc675e0cd"),
    ("0076_bound_keys", "db0b6cc5aec8ea20"),
    ("0095_shown_tools", "aa76532f56df2da6"),
    ("0103_call_limits", "913743e06a03b97c"),
    ("0112_tool_collections", "553f023b26be89d8"),
)


def defined_now() -> str:
    """Return a digest of what makes the triggers, on both engines and whatever columns the tables have."""
    columns = [[*sorted({table.key, "any_other"} | table.quiet)] for table in triggers.FEED_TABLES]
    made = [
        trigger.statements
        for table, its in zip(triggers.FEED_TABLES, columns, strict=True)
        for build in (change_triggers.iterate_sqlite_feed_triggers, change_triggers.build_postgres_triggers)
        for trigger in build(table, its)
    ]
    return hashlib.sha256(repr(made).encode()).hexdigest()[:16]


def test_other_definitions_of_the_triggers_come_with_a_migration() -> None:
    """Else two versions side by side would each put up their own at every start, the older one in the newer's place.

    Where nothing else is to be migrated, an empty migration will do. Add a line to DEFINED_SINCE for it.
    """
    since = [migration for migration, _ in DEFINED_SINCE]
    known = {name for app, name in migrations_on_disk() if app == "coordinator"}
    assert DEFINED_SINCE[-1][1] == defined_now()
    assert set(since) <= known
    assert since == sorted(set(since))
