"""A backup of a server at work is whole, and what is restored from it is what was there, table by table."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from coordinator.backups import MANIFEST, making
from tests.live.connections import connect, make_session, post
from tests.served import (
    ROOT,
    Served,
    Template,
    drop_database,
    manage,
    postgres_url,
    run_on_postgres,
)

pytestmark = pytest.mark.served
# What a restore itself writes, and what a server writes when it starts.
OWN = {"audit_logs", "changes", "leases"}


def run(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "manage.py", *words]
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


class Elsewhere:
    """An empty machine to restore on: a data folder, and on PostgreSQL a database."""

    sql = Served.sql

    def __init__(self, served: Served, folder: Path) -> None:
        self.folder = folder
        self.database = f"{served.database}_elsewhere"
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
    """Post events as fast as one connection takes them, and count those that were acknowledged."""
    acknowledged, stop = [0], threading.Event()

    def work() -> None:
        connection = connect(served)
        event = {"event_type": "message", "session_id": "ses_busy", "timestamp": "2026-03-01T00:00:00Z"}
        while not stop.is_set():
            assert post(connection, "/sessions/ses_busy/events", event)[0] == 201
            acknowledged[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()


def test_what_is_restored_is_what_was_backed_up(
    served: Served, elsewhere: Callable[[Served], Elsewhere], tmp_path: Path
) -> None:
    make_session(served, "ses_busy")
    add_file(served, b"x" * 200_000)
    busy, still = tmp_path / "busy", tmp_path / "still"
    with ingesting(served) as acknowledged:
        while acknowledged[0] < 20:
            threading.Event().wait(0.01)
        before = acknowledged[0]
        manage("backup", str(busy), env=served.env)
        after = acknowledged[0]
    assert after > before  # the server went on writing
    manage("backup", str(still), env=served.env)
    kept = everything(served)

    # From the one made under load: every event that was acknowledged before it began.
    other = elsewhere(served)
    manage("restore", str(busy), env=other.env)
    [(events,)] = other.sql("SELECT count(*) FROM events")
    assert before <= events <= len(kept["events"])
    assert (other.folder / "secret_key").read_bytes() == (served.folder / "secret_key").read_bytes()

    # From the one made while nothing happened: each table, row by row, and each file.
    refused = run("restore", str(still), env=other.env)
    assert (refused.returncode, "--replace" in refused.stderr) == (1, True), refused.stderr
    manage("restore", str(still), "--replace", env=other.env)
    assert everything(other) == kept
    files = [path.relative_to(served.folder) for path in served.folder.glob("attachments/*/*")]
    assert len(files) == 1
    assert (other.folder / files[0]).read_bytes() == (served.folder / files[0]).read_bytes()
    assert "ok    attachments" in run("doctor", env=other.env).stdout
    assert other.sql("SELECT count(*) FROM audit_logs WHERE event_type = 'BACKUP_RESTORED'") == [(1,)]

    over_a_server = run("restore", str(still), "--replace", env=served.env)
    assert (over_a_server.returncode, "already runs" in over_a_server.stderr) == (1, True), (
        over_a_server.stderr
    )


@pytest.fixture(scope="module")
def made(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a database that nobody serves."""
    target = tmp_path_factory.mktemp("backups") / "made"
    env = served_template.environment(served_template.folder, served_template.database)
    manage("backup", str(target), env=env)
    return target


@pytest.fixture
def backup(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(made, tmp_path / "backup")


@pytest.fixture
def nowhere(served_template: Template, tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that a backup must not get onto."""
    return served_template.environment(tmp_path / "nowhere", served_template.database)


def test_a_backup_that_is_damaged_or_none_changes_nothing(
    backup: Path, nowhere: dict[str, str], tmp_path: Path
) -> None:
    [name] = [
        name for name in json.loads((backup / MANIFEST).read_text())["files"] if name.startswith("database")
    ]
    with (backup / name).open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    said = run("restore", str(backup), "--replace", env=nowhere)
    assert (said.returncode, "checksum" in said.stderr) == (1, True), said.stderr
    said = run("restore", str(tmp_path), "--replace", env=nowhere)
    assert "is no backup" in said.stderr
    assert not (tmp_path / "nowhere" / "signalbox.sqlite3").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"engine": "oracle"}, "DATABASE_URL names"),
        ({"migrations": ["9999_from_the_future"]}, "newer Signalbox"),
        ({"files": {"../../outside": {"bytes": 1, "sha256": "x"}}}, "names a file elsewhere"),
    ],
)
def test_a_backup_that_does_not_fit_is_refused(
    backup: Path, nowhere: dict[str, str], changes: dict[str, Any], says: str
) -> None:
    manifest = json.loads((backup / MANIFEST).read_text()) | changes
    (backup / MANIFEST).write_text(json.dumps(manifest))
    said = run("restore", str(backup), "--replace", env=nowhere)
    assert said.returncode == 1
    assert says in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.skipif(postgres_url() is not None, reason="on PostgreSQL the same code migrates")
def test_an_older_backup_is_brought_up_to_this_version(served_template: Template, tmp_path: Path) -> None:
    old, new = (served_template.environment(tmp_path / name, "") for name in ("old", "new"))
    (tmp_path / "old").mkdir()
    manage("migrate", "coordinator", "0030", "--verbosity=0", env=old)
    manage("backup", str(tmp_path / "backup"), env=old)
    said = manage("restore", str(tmp_path / "backup"), env=new).stdout
    assert "Migrating the database" in said
    assert "ok    migrations" in run("doctor", env=new).stdout


@pytest.mark.django_db(transaction=True)
def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(making, "digest_of", full)
    with pytest.raises(CommandError, match="the disk is full"):
        call_command("backup", str(tmp_path / "backup"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with pytest.raises(CommandError, match="is there already"):
        call_command("backup", str(tmp_path / "there"))
    monkeypatch.setattr("coordinator.backups.shutil.disk_usage", lambda _: type("Usage", (), {"free": 1}))
    with pytest.raises(CommandError, match="Not enough room"):
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


@pytest.mark.skipif(postgres_url() is None, reason="a schema is PostgreSQL's")
def test_a_dump_that_cannot_be_loaded_leaves_the_old_tables(
    backup: Path, served: Served, tmp_path: Path
) -> None:
    served.stop()
    before = everything(served)
    (backup / "database.dump").write_bytes(b"PGDMP no dump")
    manifest = json.loads((backup / MANIFEST).read_text())
    file = making.digest_of(backup / "database.dump")
    manifest["files"]["database.dump"] = {"bytes": file.bytes, "sha256": file.sha256}
    (backup / MANIFEST).write_text(json.dumps(manifest))
    said = run("restore", str(backup), "--replace", env=served.env)
    assert (said.returncode, "pg_restore failed" in said.stderr) == (1, True), said.stderr
    assert everything(served) == before
