"""A server goes on taking events over HTTP while `manage.py move_to` runs: it is restarted, and nothing is lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import httpx
import pytest

from tests.served import ROOT, Served, Template, manage, postgres_url, with_database

pytestmark = pytest.mark.skipif(postgres_url() is None, reason="moves to the PostgreSQL that is tested")
SESSION = "ses_00000000000a"


class Teller(threading.Thread):
    """Posts events one by one, each until it is acknowledged, until it is told to stop."""

    def __init__(self, served: Served) -> None:
        super().__init__(daemon=True)
        self.client = served.client()
        self.acknowledged: list[str] = []
        self.refused: set[int] = set()
        self.enough = threading.Event()
        self.grown = threading.Condition()

    def run(self) -> None:
        for number in count():
            text = f"event {number}"
            while not self.enough.is_set() and not self._post(text):
                self.enough.wait(0.05)
            if self.enough.is_set():
                return
            with self.grown:
                self.acknowledged.append(text)
                self.grown.notify_all()

    def _post(self, text: str) -> bool:
        event = {
            "event_type": "message",
            "session_id": SESSION,
            "timestamp": "2026-02-23T12:00:00Z",
            "role": "user",
            "content": [{"type": "text", "text": text}],
        }
        try:
            answer = self.client.post(
                f"/sessions/{SESSION}/events", json=event, headers={"Idempotency-Key": text}
            )
        except httpx.TransportError:  # the server is restarted
            return False
        if answer.status_code != 201:
            self.refused.add(answer.status_code)
        return answer.status_code == 201

    def wait_for(self, more: int) -> None:
        """Wait until so many more events are acknowledged."""
        with self.grown:
            goal = len(self.acknowledged) + more
            assert self.grown.wait_for(lambda: len(self.acknowledged) >= goal, 60), self.refused


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


def test_what_was_acknowledged_during_a_move_is_in_postgresql(on_sqlite: Served) -> None:
    teller = Teller(on_sqlite)
    teller.start()
    try:
        teller.wait_for(20)
        url = with_database(os.environ["DATABASE_URL"], on_sqlite.database)
        said = manage("move_to", url, env=on_sqlite.env).stdout
        assert "The pause is over" in said
        teller.wait_for(20)
    finally:
        teller.enough.set()
        teller.join(60)
    assert teller.refused <= {503}
    stored = [
        text
        for (text,) in on_sqlite.sql(
            "SELECT content::jsonb -> 0 ->> 'text' FROM events WHERE session_id = ? ORDER BY id", (SESSION,)
        )
    ]
    told = teller.acknowledged
    assert stored[: len(told)] == told
    assert stored[len(told) :] in ([], [f"event {len(told)}"]), "written as the test ended"
    with closing(sqlite3.connect(on_sqlite.folder / "signalbox.sqlite3")) as db:
        ((left,),) = db.execute("SELECT count(*) FROM events WHERE session_id = ?", (SESSION,)).fetchall()
    assert 0 < left <= len(told) - 20, "the last ones were taken by PostgreSQL"
