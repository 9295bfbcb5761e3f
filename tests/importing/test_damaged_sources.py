"""What is damaged or odd ends in a clear line: what can be read comes in, and the audit log says the rest."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from coordinator.models import Agent, AuditLog, ChatAttachment, Event
from coordinator.operations import startup
from tests.importing.sources import AGENT, EVENT, MESSAGE, SESSION, add, brought, database, kept, newest

PAGE = 4096


def audit() -> Any:
    return AuditLog.objects.get(event_type="DATABASE_IMPORTED")


def spoil(path: Path, table: str, *, every: int, leave: int = 0) -> None:
    """Overwrite the head of every so manieth leaf page of a table."""
    file = sqlite3.connect(path)
    (root,) = file.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    file.close()
    content = bytearray(path.read_bytes())
    leaves = [
        at
        for at in range(0, len(content), PAGE)
        if content[at] == 0x0D and at // PAGE + 1 != root and at > PAGE * 40
    ]
    for at in leaves[leave::every]:
        content[at : at + 16] = b"\xff" * 16
    path.write_bytes(content)


@pytest.mark.django_db
def test_rows_on_sound_pages_come_in_around_damaged_ones(path: Path) -> None:
    file = database(path)
    add(file, "sessions", SESSION)
    add(file, "events", *[{**EVENT, "content": "x" * 900, "reason": str(n)} for n in range(400)])
    file.close()
    spoil(path, "events", every=10, leave=3)
    done = {one.table: one for one in brought(path).outcomes}["events"]
    assert 300 < done.added < 400
    assert len(done.unreadable) > 3
    assert all(line.startswith("rows ") for line in done.unreadable)
    there = {int(reason) for reason in Event.objects.values_list("reason", flat=True) if reason}
    assert len(there) == done.added
    assert 399 in there
    assert (audit().result, "damaged places" in audit().reason) == ("failure", True)
    assert any("events: rows" in line for line in audit().metadata["could_not_be_read"])


@pytest.mark.django_db
def test_a_damaged_source_can_be_imported_again(path: Path) -> None:
    file = database(path)
    add(file, "sessions", SESSION)
    add(file, "events", *[{**EVENT, "content": "x" * 900} for _ in range(100)])
    file.close()
    spoil(path, "events", every=7)
    first, second = brought(path), brought(path)
    assert [one.as_report_dict()["could_not_be_read"] for one in first.outcomes] == [
        one.as_report_dict()["could_not_be_read"] for one in second.outcomes
    ]
    assert not any(one.added for one in second.outcomes if one.table != "audit_logs")


@pytest.mark.django_db
def test_a_schema_that_cannot_be_read_is_told_in_one_line_and_in_the_audit_log(path: Path) -> None:
    database(path).close()
    content = bytearray(path.read_bytes())
    content[100:PAGE] = b"\xff" * (PAGE - 100)
    path.write_bytes(content)
    with pytest.raises(CommandError, match="cannot be read as an SQLite database") as told:
        call_command("import_db", str(path))
    assert "\n" not in str(told.value)
    assert audit().result == "failure"


@pytest.mark.django_db
@pytest.mark.parametrize("rows", [3, 5_000])
def test_tables_without_row_numbers_come_in_whole(path: Path, rows: int) -> None:
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as file:
        file.execute(
            "CREATE TABLE plugin_data(plugin_id TEXT, key TEXT, value, PRIMARY KEY (key, plugin_id)) WITHOUT ROWID"
        )
        file.executemany("INSERT INTO plugin_data VALUES ('p', ?, ?)", ((f"k{n}", n) for n in range(rows)))
    file.close()
    done = {one.table: one for one in brought(path).outcomes}
    assert done["plugin_data"].added == rows
    assert done["plugin_data"].changed == {"value was a number and became text": rows}


@pytest.mark.django_db
def test_a_table_in_an_order_that_only_its_program_knows_comes_in(path: Path) -> None:
    path.parent.mkdir(parents=True)
    file = sqlite3.connect(path)
    file.create_collation("own", lambda a, b: (a < b) - (a > b))
    file.execute(
        "CREATE TABLE agents(id TEXT COLLATE own PRIMARY KEY, name, default_engine_id) WITHOUT ROWID"
    )
    file.executemany("INSERT INTO agents VALUES (?, 'x', 'y')", [("a",), ("c",), ("b",)])
    file.commit()
    file.close()
    brought(path)
    assert {"a", "b", "c"} <= set(Agent.objects.values_list("pk", flat=True))


@pytest.mark.django_db
def test_a_table_whose_columns_take_the_names_of_row_numbers_comes_in(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE agents(id TEXT, name, default_engine_id, rowid, _rowid_, oid)")
        file.execute("INSERT INTO agents VALUES ('a', 'x', 'y', 5, 6, 7)")
        file.execute('CREATE TABLE "od""d name" (place, "c""0")')
        file.execute('INSERT INTO "od""d name" VALUES (1, 2)')
        file.execute("CREATE VIRTUAL TABLE words USING fts5(said)")
    file.close()
    done = brought(path)
    assert Agent.objects.filter(pk="a").exists()
    assert kept(done, table='od"d name')[0]["row"] == {"place": 1, 'c"0': 2}
    assert not kept(done, table="words")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "disk_path", ["attachments/\0", "attachments/" + "x/" * 3000, "x" * 300, "attachments/loop/x"]
)
def test_a_path_that_is_none_is_told(path: Path, disk_path: str) -> None:
    file = database(path)
    add(file, "agents", AGENT)
    add(file, "chat_messages", MESSAGE)
    (path.parent / "attachments").mkdir()
    (path.parent / "attachments" / "loop").symlink_to("loop")
    row = {"id": "a", "message_id": "m1", "filename": "f", "mime_type": "t", "size_bytes": 1, "created_at": 1}
    add(file, "chat_attachments", {**row, "storage_type": "disk", "disk_path": disk_path})
    done = brought(path)
    told = {one.table: one for one in done.outcomes}["chat_attachments"]
    assert "was not found" in told.left_out[0]
    assert kept(done, table="chat_attachments")[-1]["row"]["disk_path"] == disk_path
    assert not ChatAttachment.objects.exists()


@pytest.mark.django_db
def test_a_value_that_fits_no_column_leaves_its_row_aside(path: Path) -> None:
    file = newest(path)
    file.executescript(
        "DROP TABLE runtime_plugins; CREATE TABLE runtime_plugins (plugin_id, script_name, code_content,"
        " created_at, generation_number, is_active)"
    )
    row = {"plugin_id": "r", "script_name": "r.py", "code_content": "x", "created_at": "2026-02-23 12:00:00"}
    add(file, "runtime_plugins", {**row, "is_active": 1}, {**row, "plugin_id": "s", "is_active": None})
    done = {one.table: one for one in brought(path).outcomes}["runtime_plugins"]
    assert (done.added, len(done.left_out)) == (1, 1)


@pytest.mark.django_db
def test_an_import_that_must_stop_says_where_and_what_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = newest(path)
    add(file, "agents", AGENT)
    add(file, "cron_jobs", {"id": "c"})
    file.close()
    from coordinator.importing import import_files as keeping

    def full(place: Path) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keeping, "open_new_private_file", full)
    with pytest.raises(
        CommandError, match=r"stopped at the table .*: .*No space left on device.*repeat the import"
    ):
        call_command("import_db", str(path))
    assert audit().result == "failure"


@pytest.mark.django_db
def test_a_data_folder_that_was_never_served_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "applied_migrations", set)
    with pytest.raises(CommandError, match=r"has no tables yet\. Start `signalbox serve` once"):
        call_command("import_db", "x.db")
