"""`manage.py move_to`: one filled installation on its way to PostgreSQL, with all that comes between."""

from __future__ import annotations

import contextlib
import sqlite3
import time
import uuid
from collections.abc import Iterator

import pytest

from tests.moving.installation import Installation, Writer, installed
from tests.patience import PATIENCE
from tests.served import postgres_url

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


def test_killed_and_run_again_it_goes_on_while_others_write(installation: Installation) -> None:
    writer = Writer(installation)
    installation.writers.append(writer)
    writer.start()
    status, said = installation.move_to(kill_at="  events  ")
    assert status == -9, said
    installation.sql("DELETE FROM chat_messages WHERE rowid % 7 = 0")
    installation.sql(
        "INSERT OR REPLACE INTO auth_group VALUES (77, 'replaced')"
    )  # no trigger sees the old one go
    check_names_what_cannot_be_moved(installation)
    status, said = installation.move_to(whole=True)
    assert status == 0, said
    assert "Continuing the move that was interrupted." in said
    assert "No server that runs on" in said, "which would have been restarted"
    writer.join(PATIENCE)
    assert "has moved to PostgreSQL" in writer.refusal
    found = installation.there("SELECT content FROM events WHERE content LIKE 'written %' ORDER BY id")
    assert [content for (content,) in found] == [f"written {number}" for number in writer.written]
    assert len(writer.written) > 20
    assert installation.there("SELECT DISTINCT description FROM agents") == [(f"after {writer.written[-1]}",)]


def check_names_what_cannot_be_moved(installation: Installation) -> None:
    installation.sql("UPDATE runs SET error = 'a' || char(0) WHERE rowid = 1")
    installation.sql("DELETE FROM sessions WHERE rowid = 2", careful=False)
    status, said = installation.move_to("--check")
    assert status == 1
    assert "runs 'run_000000000000': error held NUL characters" in said
    assert "events (row 101): the row it refers to in sessions does not exist" in said
    assert "PostgreSQL cannot hold 1 rows as they are" in said
    installation.sql("UPDATE runs SET error = NULL")
    for table in ("events", "event_context", "runs"):
        installation.sql(f"DELETE FROM {table} WHERE session_id NOT IN (SELECT session_id FROM sessions)")


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


def test_ids_go_on_after_the_last_and_the_search_index_is_worked_out_again(
    installation: Installation,
) -> None:
    ((last,),) = installation.sql("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
    assert installation.there("SELECT nextval(pg_get_serial_sequence('events', 'id'))") == [(last + 1,)]
    assert installation.there("SELECT count(*) FROM events_default") == [(0,)]
    assert installation.there("SELECT swept, followed FROM sbx_search_progress") == [(0, 0)]


def test_the_old_file_takes_no_more_writes(installation: Installation) -> None:
    assert (installation.folder / "database.url").read_text().strip() == installation.url
    for statement in (
        "DELETE FROM sessions",
        "UPDATE agents SET name = 'x'",
        "INSERT INTO leases VALUES ('a', 'b', 1)",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="has moved to PostgreSQL"):
            installation.sql(statement)


def test_back_while_nothing_was_written_there(installation: Installation) -> None:
    installation.there("UPDATE leases SET holder = 'another'")
    installation.there("INSERT INTO revoked_keys VALUES ('a', 1)")
    status, said = installation.move_to("--undo")
    assert status == 1
    assert "PostgreSQL was written to since the switch (revoked_keys)" in said
    installation.there("DELETE FROM revoked_keys")
    kill_before_sqlite_takes_writes(installation)
    status, said = installation.move_to("--undo")
    assert status == 0, said
    assert not (installation.folder / "database.url").exists()
    installation.sql("UPDATE agents SET name = 'x'")
    newest = "SELECT event_type FROM audit_logs ORDER BY id DESC LIMIT 1"
    assert installation.sql(newest) == [("DATABASE_MOVE_UNDONE",)]
    assert installation.sql("SELECT name FROM sqlite_master WHERE name LIKE 'sbx_move%'") == []


def kill_before_sqlite_takes_writes(installation: Installation) -> None:
    """Kill `--undo` where it waits for SQLite's one writer, having forgotten PostgreSQL's address."""
    with contextlib.closing(sqlite3.connect(installation.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with installation.moving("--undo") as process:
            while (installation.folder / "database.url").exists() and process.poll() is None:
                time.sleep(0.005)
            process.kill()
    assert process.returncode == -9
    assert not (installation.folder / "database.url").exists()
