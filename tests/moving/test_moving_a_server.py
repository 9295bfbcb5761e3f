"""A server on SQLite is stopped, moved, and started on PostgreSQL, where it goes on."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.served import ROOT, Served, Template, manage, postgres_url, tried, with_database

pytestmark = pytest.mark.skipif(postgres_url() is None, reason="moves to the PostgreSQL that is tested")
SESSION = "ses_00000000000a"


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Served]:
    """A server on SQLite, and an empty PostgreSQL database beside it (`served.sql` asks that)."""
    seed = tmp_path / "seed"
    seed.mkdir(mode=0o700)
    env = Template.environment(seed, "")
    del env["DATABASE_URL"]
    subprocess.run([sys.executable, "-m", "tests.served_seed"], cwd=ROOT, env=env, check=True, timeout=300)
    with closing(sqlite3.connect(seed / "signalbox.sqlite3")) as db, db:
        db.execute("INSERT INTO sessions (session_id, status, created_at) VALUES (?, 'running', ?)",
                   (SESSION, "2026-02-23T12:00:00.000000+00:00"))  # fmt: skip
    served = Served(Template(seed, "template1"), tmp_path / "data", workers=1, env={})
    del served.env["DATABASE_URL"]
    try:
        served.start()
        yield served
    finally:
        served.close()


def post_event(served: Served, text: str) -> None:
    event = {
        "event_type": "message",
        "session_id": SESSION,
        "timestamp": "2026-02-23T12:00:00Z",
        "role": "user",
        "content": [{"type": "text", "text": text}],
    }
    assert served.client().post(f"/sessions/{SESSION}/events", json=event).status_code == 201


def test_a_server_goes_on_where_it_was_moved_to(on_sqlite: Served) -> None:
    url = with_database(os.environ["DATABASE_URL"], on_sqlite.database)
    post_event(on_sqlite, "before")
    refused = tried("move_to", url, env=on_sqlite.env)
    assert refused.returncode == 1
    assert "Signalbox already runs on" in refused.stderr
    assert "A move needs it stopped" in refused.stderr
    assert "All of it can be moved" in manage("move_to", url, "--dry-run", env=on_sqlite.env).stdout
    on_sqlite.stop()
    manage("move_to", url, env=on_sqlite.env)
    on_sqlite.env["DATABASE_URL"] = url
    on_sqlite.start()
    post_event(on_sqlite, "after")
    stored = "SELECT content::jsonb -> 0 ->> 'text' FROM events WHERE session_id = ? ORDER BY id"
    assert on_sqlite.sql(stored, (SESSION,)) == [("before",), ("after",)]
