"""`manage.py move_to`: one filled installation on its way to PostgreSQL, with all that comes between."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.moving.installation import Installation, installed
from tests.served import postgres_url, tried

pytestmark = pytest.mark.skipif(postgres_url() is None, reason="moves to the PostgreSQL that is tested")

TABLES = (
    "sessions",
    "events",
    "event_context",
    "permission_requests",
    "audit_logs",
    "audit_leaves",
    "chat_messages",
    "auth_group",
)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One for all tests of this file, which follow each other as an operator's steps do."""
    folder = tmp_path_factory.mktemp("moving") / "data"
    with installed(folder, f"signalbox_moving_{uuid.uuid4().hex[:12]}") as made:
        yield made


def test_a_dry_run_says_what_would_be_moved_and_what_would_fail(installation: Installation) -> None:
    installation.sql("UPDATE runs SET error = 'a' || char(0) WHERE rowid = 1")
    installation.sql("DELETE FROM sessions WHERE rowid = 2", careful=False)
    installation.sql("CREATE TABLE theirs (a)")
    status, said = installation.move_to("--dry-run")
    assert status == 1
    assert "runs 'run_000000000000': error held NUL characters" in said
    assert "events (row 101): the row it refers to in sessions does not exist" in said
    assert "PostgreSQL cannot hold 1 rows as they are" in said
    assert "Not moved: theirs, a table of another program (0 rows)." in said
    installation.sql("UPDATE runs SET error = NULL")
    installation.sql("DROP TABLE theirs")
    for table in ("events", "event_context", "runs"):
        installation.sql(f"DELETE FROM {table} WHERE session_id NOT IN (SELECT session_id FROM sessions)")
    status, said = installation.move_to("--dry-run", whole=True)
    assert status == 0, said
    assert f"events{1900:>32,}" in said
    assert "All of it can be moved. Nothing was changed (--dry-run)." in said
    assert installation.there(
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    ) == [(0,)]


def test_nothing_is_moved_while_another_program_writes(installation: Installation) -> None:
    with contextlib.closing(sqlite3.connect(installation.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        status, said = installation.move_to()
    assert status == 1
    assert "Another program is writing to" in said


def test_no_server_starts_on_a_move_that_was_killed(installation: Installation) -> None:
    status, said = installation.move_to(kill_at="  events  ")
    assert status == -9, said
    assert installation.there("SELECT moved_at FROM sbx_move") == [(None,)]
    assert installation.there("SELECT count(*) FROM sessions") == [(0,)], "the copy is one transaction"
    installation.made_by_migrations = list_constraints_and_triggers(installation)
    served = tried("serve", "--no-migrate", env=installation.env | {"DATABASE_URL": installation.url})
    assert served.returncode == 1
    assert "is incomplete: a move to it from SQLite was interrupted" in served.stderr


def test_run_again_it_moves_everything_and_leaves_sqlite_as_it_is(installation: Installation) -> None:
    installation.sql("DELETE FROM chat_messages WHERE rowid % 7 = 0")
    before = digest_of_all(installation)
    status, said = installation.move_to(whole=True)
    assert status == 0, said
    assert "no table differs" in said
    assert f"Set DATABASE_URL to the address you gave ({installation.name} on" in said
    assert "signalbox serve" in said
    assert installation.there("SELECT to_regclass('sbx_move') IS NULL") == [(True,)]
    assert digest_of_all(installation) == before
    installation.sql("UPDATE agents SET name = name")


def digest_of_all(installation: Installation) -> str:
    """Return a digest of everything that SQLite holds: rows, tables, triggers."""
    with contextlib.closing(sqlite3.connect(installation.file)) as db:
        return hashlib.sha256("\n".join(db.iterdump()).encode()).hexdigest()


@pytest.mark.parametrize("table", TABLES)
def test_what_arrived_is_what_was_there(installation: Installation, table: str) -> None:
    beside = {"audit_logs": "WHERE event_type <> 'DATABASE_MOVED'", "audit_leaves": ""}.get(table, "")
    columns = [name for (name,) in installation.sql("SELECT name FROM pragma_table_info(?)", (table,))]
    query = f"SELECT {', '.join(columns)} FROM {table} {beside}"
    here, there = set(installation.sql(query)), set(installation.there(query))
    if table == "audit_leaves":  # the move's own entry
        (newest,) = there - here
        there.remove(newest)
    assert there == here


def test_constraints_and_triggers_are_as_the_migrations_make_them(installation: Installation) -> None:
    assert list_constraints_and_triggers(installation) == installation.made_by_migrations


def list_constraints_and_triggers(installation: Installation) -> list[tuple[Any, ...]]:
    """Return the constraints and triggers of PostgreSQL, and whether they hold."""
    found = installation.there(
        "SELECT conrelid::regclass::text, pg_get_constraintdef(oid), convalidated::text FROM pg_constraint"
        " WHERE conparentid = 0 AND connamespace = 'public'::regnamespace UNION ALL"
        " SELECT tgrelid::regclass::text, tgname, tgenabled::text FROM pg_trigger"
        " WHERE NOT tgisinternal AND tgparentid = 0 ORDER BY 1, 2"
    )
    assert len(found) > 200
    return found


def test_ids_go_on_after_the_last_and_the_search_index_is_worked_out_again(
    installation: Installation,
) -> None:
    ((last,),) = installation.sql("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
    assert installation.there("SELECT nextval(pg_get_serial_sequence('events', 'id'))") == [(last + 1,)]
    ((last,),) = installation.sql("SELECT max(id) FROM auth_group")
    assert installation.there("SELECT nextval(pg_get_serial_sequence('auth_group', 'id'))") == [(last + 1,)]
    assert installation.there("SELECT swept, followed FROM sbx_search_progress") == [(0, 0)]


def test_nothing_is_moved_over_something(installation: Installation) -> None:
    status, said = installation.move_to()
    assert status == 1
    assert "has tables already, and a move needs an empty database" in said
