"""A backup of a server at work is whole, and what is restored from it is what was there, table by table."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from coordinator.operations.backups import MANIFEST, BackupFile, BackupManifest, making, restoring
from tests.live.connections import connect, make_session, post
from tests.served import (
    ROOT,
    DatabaseAccess,
    Served,
    Template,
    drop_database,
    manage,
    postgres_url,
    run_on_postgres,
    tried,
)

pytestmark = pytest.mark.served
# What a restore itself writes, and what a server writes when it starts.
OWN = {"sbx_search_progress", "sbx_title_progress", "audit_logs", "audit_leaves", "changes", "leases"}


def on_odd_disks(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a management command as ON_ODD_DISKS has it."""
    command = [sys.executable, "-c", ON_ODD_DISKS, *words]
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120
    )


def everything(served: Any) -> dict[str, list[Any]]:
    """Return the rows of every table."""
    tables = (
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        if postgres_url()
        else "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    return {
        name: sorted(served.sql(f'SELECT * FROM "{name}"'), key=repr)
        for (name,) in served.sql(tables)
        if name not in OWN
    }


class Elsewhere(DatabaseAccess):
    """An empty machine to restore on: a data folder, and on PostgreSQL a database."""

    def __init__(self, served: Served, folder: Path) -> None:
        super().__init__(folder, f"{served.database}_elsewhere")
        if postgres_url():
            run_on_postgres(f"CREATE DATABASE {self.database}")
        self.env = served.env | Template.environment(folder, self.database)
        self.env.pop("SIGNALBOX_SECRET_KEY", None)


@pytest.fixture
def elsewhere(tmp_path: Path):
    made: list[Elsewhere] = []

    def make(served: Served) -> Elsewhere:
        made.append(Elsewhere(served, tmp_path / "elsewhere"))
        return made[-1]

    yield make
    for one in made:
        if postgres_url():
            drop_database(one.database)


def add_file(served: Served, content: bytes) -> None:
    agent = {"id": "agent.robot", "name": "robot", "default_engine_id": "mind.x"}
    columns, values = ", ".join([*agent, "description"]), (*agent.values(), "")
    if not served.sql("SELECT 1 FROM agents WHERE id = 'agent.robot'"):
        served.sql(f"INSERT INTO agents ({columns}) VALUES (?, ?, ?, ?)", values)
    key = served.client("all")
    answer = key.post(
        "/api/chat/agent.robot/messages", data={"text": "see"}, files={"files": ("a.bin", content)}
    )
    assert answer.status_code == 200, answer.text


@contextmanager
def ingesting(served: Served):
    """Post one event after another, and count those that were acknowledged."""
    acknowledged, stop = [0], threading.Event()

    def work() -> None:
        connection = connect(served)
        event = {"event_type": "message", "session_id": "ses_busy", "timestamp": "2026-03-01T00:00:00Z"}
        while not stop.wait(0.01):
            assert post(connection, "/sessions/ses_busy/events", event)[0] == 201
            acknowledged[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()


def approve_once(served: Served) -> None:
    """Have a person's approval for one call, which was not used."""
    decided = datetime.now(UTC).isoformat()
    served.sql(
        "INSERT INTO permission_requests (request_id, created_at, plugin_id, permission_type, justification, status,"
        " approved_by, approved_at) VALUES ('once', ?, 'claude-code', 'ToolCall', 'push', 'approved', 'alice', ?)",
        (decided, decided),
    )
    served.sql(
        "INSERT INTO permission_context (request_id, requested_by, subject_key, validity, repeat_key, closed_at)"
        " VALUES ('once', 'key:ci', 's', 'once', 'r', ?)",
        (decided,),
    )


def test_what_is_restored_is_what_was_backed_up_but_for_approvals_that_may_have_been_used_since(
    served: Served, elsewhere: Callable[[Served], Elsewhere], tmp_path: Path
) -> None:
    make_session(served, "ses_busy")
    add_file(served, b"x" * 200_000)
    approve_once(served)
    busy, still = tmp_path / "busy", tmp_path / "still"
    with ingesting(served) as acknowledged:
        while acknowledged[0] < 20:
            threading.Event().wait(0.01)
        before = acknowledged[0]
        manage("backup", str(busy), env=served.env)
        after = acknowledged[0]
    assert after > before  # the server went on writing
    for table in ("permission_context", "permission_requests"):
        served.sql(f"DELETE FROM {table} WHERE request_id = 'once'")
    served.stop()  # it seals its log, and makes texts ready for search, whenever it comes to it
    manage("backup", str(still), env=served.env)
    kept = everything(served)

    # From the one made under load: every event that was acknowledged before it began. The approval may be used by now.
    other = elsewhere(served)
    assert "Ended 1 approvals" in manage("restore", str(busy), env=other.env).stdout
    [(revoked_by,)] = other.sql("SELECT revoked_by FROM permission_context WHERE request_id = 'once'")
    assert revoked_by == "system:restore"
    told = other.sql("SELECT event_type FROM audit_logs WHERE target_id = 'once'")
    assert told == [("PERMISSION_APPROVAL_REVOKED",)]
    [(events,)] = other.sql("SELECT count(*) FROM events")
    assert before <= events <= len(kept["events"])
    assert (other.folder / "secret_key").read_bytes() == (served.folder / "secret_key").read_bytes()

    # From the one made while nothing happened: each table, row by row, and each file.
    refused = tried("restore", str(still), env=other.env)
    assert (refused.returncode, "--replace" in refused.stderr) == (1, True), refused.stderr
    manage("restore", str(still), "--replace", env=other.env)
    assert everything(other) == kept
    files = [path.relative_to(served.folder) for path in served.folder.glob("attachments/*/*")]
    assert len(files) == 1
    assert (other.folder / files[0]).read_bytes() == (served.folder / files[0]).read_bytes()
    assert "ok    attachments" in tried("doctor", env=other.env).stdout
    assert other.sql("SELECT count(*) FROM audit_logs WHERE event_type = 'BACKUP_RESTORED'") == [(1,)]

    served.start()
    over_a_server = tried("restore", str(still), "--replace", env=served.env)
    assert (over_a_server.returncode, "already runs" in over_a_server.stderr) == (1, True), (
        over_a_server.stderr
    )


@pytest.fixture(scope="module")
def made(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a database that nobody serves: a copy, since a backup seals the log and makes the key for it."""
    folder = tmp_path_factory.mktemp("backups")
    standing = Served(served_template, folder / "server", workers=1, env={})
    manage("backup", str(folder / "made"), env=standing.env)
    standing.close()
    return folder / "made"


@pytest.fixture
def idle(served_template: Template, tmp_path: Path) -> Iterator[Served]:
    """A data folder and a database that nobody serves."""
    standing = Served(served_template, tmp_path / "idle", workers=1, env={})
    yield standing
    standing.close()


@pytest.fixture
def backup(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(made, tmp_path / "backup")


@pytest.fixture
def nowhere(served_template: Template, tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that a backup must not get onto."""
    return served_template.environment(tmp_path / "nowhere", served_template.database)


def test_a_backup_that_is_damaged_changes_nothing(
    backup: Path, nowhere: dict[str, str], tmp_path: Path
) -> None:
    [name] = [
        name for name in json.loads((backup / MANIFEST).read_text())["files"] if name.startswith("database")
    ]
    with (backup / name).open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    said = tried("restore", str(backup), "--replace", env=nowhere)
    assert (said.returncode, "checksum" in said.stderr) == (1, True), said.stderr
    assert "Traceback" not in said.stderr
    assert not (tmp_path / "nowhere" / "signalbox.sqlite3").exists()


@pytest.fixture
def nothing_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a restore in this process goes on to the data."""
    monkeypatch.setattr(restoring, "replace_data_with_backup", lambda *_: pytest.fail("it is put back"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"engine": "oracle"}, "DATABASE_URL names"),
        ({"migrations": ["9999_from_the_future"]}, "newer Signalbox"),
        ({"files": {"../../outside": {"bytes": 1, "sha256": "x"}}}, "names a file elsewhere"),
        ({"files": {"attachments/../beside": {"bytes": 1, "sha256": "x"}}}, "names a file elsewhere"),
    ],
)
def test_a_backup_that_does_not_fit_is_refused(
    backup: Path, nothing_put_back: None, changes: dict[str, Any], says: str
) -> None:
    manifest = json.loads((backup / MANIFEST).read_text()) | changes
    (backup / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CommandError, match=says):
        call_command("restore", str(backup), "--replace")


def test_a_folder_that_is_no_backup_is_refused(tmp_path: Path, nothing_put_back: None) -> None:
    with pytest.raises(CommandError, match="is not a backup"):
        call_command("restore", str(tmp_path), "--replace")


@pytest.mark.skipif(postgres_url() is not None, reason="on PostgreSQL the same code migrates")
def test_an_older_backup_is_brought_up_to_this_version(served_template: Template, tmp_path: Path) -> None:
    old, new = (served_template.environment(tmp_path / name, "") for name in ("old", "new"))
    (tmp_path / "old").mkdir()
    manage("migrate", "coordinator", "0030", "--verbosity=0", env=old)
    manage("backup", str(tmp_path / "backup"), env=old)
    said = manage("restore", str(tmp_path / "backup"), env=new).stdout
    assert "Migrating the database" in said
    assert "ok    migrations" in tried("doctor", env=new).stdout


@pytest.mark.django_db(transaction=True)
def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(making, "measure_and_hash_backup_file", full)
    with pytest.raises(CommandError, match="the disk is full"):
        call_command("backup", str(tmp_path / "backup"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with pytest.raises(CommandError, match="already exists"):
        call_command("backup", str(tmp_path / "there"))
    monkeypatch.setattr(
        "coordinator.operations.backups.shutil.disk_usage", lambda _: type("Usage", (), {"free": 1})
    )
    with pytest.raises(CommandError, match="Not enough space"):
        call_command("backup", str(tmp_path / "backup"))
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.skipif(postgres_url() is None, reason="SQLite needs no other program")
@pytest.mark.django_db(transaction=True)
def test_without_pg_dump_the_operator_is_told_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making.shutil, "which", lambda _: None)
    with pytest.raises(CommandError, match="run: pg_dump --format=custom") as told:
        call_command("backup", str(tmp_path / "backup"))
    assert "attachments" in str(told.value)
    assert list(tmp_path.iterdir()) == []


# The program, where nothing is renamed from or to the folder OTHER_DISK, and nothing new onto the file BROKEN.
ON_ODD_DISKS = """
import errno, os, sys
from pathlib import Path

def rename(old, new, plain=Path.rename):
    disk = os.environ.get("OTHER_DISK", "/nowhere")
    if old.is_relative_to(disk) != Path(new).is_relative_to(disk):
        raise OSError(errno.EXDEV, "Invalid cross-device link")
    if str(new) == os.environ.get("BROKEN") and "replaced-" not in str(old):
        raise OSError(errno.EIO, "Input/output error")
    return plain(old, new)

Path.rename = rename
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", *sys.argv[1:]])
"""


@pytest.mark.skipif(postgres_url() is not None, reason="PostgreSQL has its tables elsewhere anyway")
def test_a_database_on_another_disk_than_the_data_folder_is_put_back(
    made: Path, nowhere: dict[str, str], tmp_path: Path
) -> None:
    data, disk = tmp_path / "nowhere", tmp_path / "disk"
    for folder, name in ((data, "secret_key"), (disk, "signalbox.sqlite3")):
        folder.mkdir()
        (folder / name).write_text(f"the old {name}, which is long enough to be one")
    env = nowhere | {"DATABASE_URL": f"sqlite:///{disk}/signalbox.sqlite3", "OTHER_DISK": str(disk)}
    said = on_odd_disks("restore", str(made), "--replace", env=env)
    assert said.returncode == 0, said.stderr
    with sqlite3.connect(disk / "signalbox.sqlite3") as database:
        assert database.execute("SELECT count(*) FROM auth_user").fetchone()[0] > 0
    assert (data / "secret_key").read_bytes() == (made / "secret_key").read_bytes()
    for folder, name in ((data, "secret_key"), (disk, "signalbox.sqlite3")):
        [kept] = folder.glob(f"replaced-*/{name}")
        assert kept.read_text().startswith("the old")
        assert str(kept.parent) in said.stdout
        assert not list(folder.glob("*.restoring"))


def test_a_restore_that_fails_half_way_is_undone(made: Path, idle: Served) -> None:
    (idle.folder / "attachments" / "ab").mkdir(parents=True)
    (idle.folder / "attachments" / "ab" / "file.bin").write_bytes(b"x" * 200_000)

    def files() -> dict[Path, bytes]:
        paths = (
            path for path in idle.folder.rglob("*") if path.is_file() and path.suffix not in {".log", ".lock"}
        )
        return {path: path.read_bytes() for path in paths}

    tables, stood = everything(idle), files()
    env = idle.env | {"BROKEN": str(idle.folder / "secret_key")}
    said = on_odd_disks("restore", str(made), "--replace", env=env)
    assert (said.returncode, "Nothing was changed" in said.stderr) == (1, True), said.stderr
    assert everything(idle) == tables
    assert files() == stood
    assert not list(idle.folder.glob("replaced-*"))


def test_what_a_second_restore_replaces_is_kept_beside_what_the_first_one_did(tmp_path: Path) -> None:
    folders = [tmp_path / "data", tmp_path / "disk"]
    assert restoring.find_unused_name_in_folders("replaced-1", folders) == "replaced-1"
    for name in ("replaced-1", "replaced-1-2"):
        (folders[1] / name).mkdir(parents=True)
    assert restoring.find_unused_name_in_folders("replaced-1", folders) == "replaced-1-3"


def test_every_disk_is_asked_for_the_room_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"database.sqlite3": 100, "attachments/a": 50, "secret_key": 10}
    manifest = BackupManifest(
        "1", "now", "sqlite", [], {}, {name: BackupFile(size, "") for name, size in files.items()}
    )
    places = {
        "database.sqlite3": tmp_path / "disk" / "signalbox.sqlite3",
        "attachments": tmp_path / "attachments",
        "secret_key": tmp_path / "secret_key",
    }
    asked: dict[Path, int] = {}
    monkeypatch.setattr(restoring, "require_disk_space", asked.__setitem__)
    restoring.require_restore_space(manifest, places)
    assert asked == {tmp_path / "disk": 260}
    asked.clear()
    monkeypatch.setattr(restoring, "device_number_of_folder", str)
    restoring.require_restore_space(manifest, places)
    assert asked == {tmp_path / "disk": 200, tmp_path: 60}


@pytest.mark.skipif(postgres_url() is None, reason="a schema is PostgreSQL's")
def test_after_a_restore_was_killed_the_next_one_says_how_to_bring_the_old_tables_back(
    made: Path, idle: Served, tmp_path: Path
) -> None:
    before = everything(idle)
    (tmp_path / "pg_restore").write_text("#!/bin/sh\nkill -9 $PPID\n")
    (tmp_path / "pg_restore").chmod(0o755)
    killing = idle.env | {"PATH": f"{tmp_path}{os.pathsep}{idle.env['PATH']}"}
    assert tried("restore", str(made), "--replace", env=killing).returncode == -9
    assert everything(idle) == {}
    for words in ([], ["--replace"]):
        said = tried("restore", str(made), *words, env=idle.env)
        assert said.returncode == 1
    for statement in ("DROP SCHEMA public CASCADE;", "ALTER SCHEMA signalbox_replaced RENAME TO public;"):
        assert statement in said.stderr
        idle.sql(statement)
    assert everything(idle) == before


@pytest.mark.skipif(postgres_url() is None, reason="a schema is PostgreSQL's")
def test_a_dump_that_cannot_be_loaded_leaves_the_old_tables(
    backup: Path, idle: Served, tmp_path: Path
) -> None:
    before = everything(idle)
    (backup / "database.dump").write_bytes(b"PGDMP no dump")
    manifest = json.loads((backup / MANIFEST).read_text())
    file = making.measure_and_hash_backup_file(backup / "database.dump")
    manifest["files"]["database.dump"] = {"bytes": file.bytes, "sha256": file.sha256}
    (backup / MANIFEST).write_text(json.dumps(manifest))
    said = tried("restore", str(backup), "--replace", env=idle.env)
    assert (said.returncode, "pg_restore failed" in said.stderr) == (1, True), said.stderr
    assert everything(idle) == before
