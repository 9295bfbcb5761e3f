"""A filled events table is put into parts while a server writes into it: nothing is lost, refused, or told twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from django.db import connection

from tests.patience import PATIENCE
from tests.served import Served, manage

pytestmark = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite keeps its events in one table"
)

SESSIONS = [f"ses_{number:012x}" for number in range(4)]
BATCH = 20
WITHOUT_PARTS = (
    "from django.core.management import call_command;"
    "call_command('migrate', 'coordinator', '0071_budgets', verbosity=0); call_command('migrate', verbosity=0)"
)


def event(session_id: str, number: int) -> dict[str, object]:
    return {
        "event_type": "message",
        "session_id": session_id,
        "timestamp": f"2026-02-23T12:00:00.{number:06}Z",
        "role": "user",
        "content": [{"type": "text", "text": f"story {number} of {session_id}"}],
    }


class Writer(threading.Thread):
    """Posts batches into one session until it is told to stop."""

    def __init__(self, served: Served, session_id: str) -> None:
        super().__init__(daemon=True)
        self.client = served.client()
        self.session_id = session_id
        self.posted = 0
        self.refused: list[str] = []
        self.longest = 0.0
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.02):
            batch = [event(self.session_id, self.posted + number) for number in range(BATCH)]
            began = time.monotonic()
            answer = self.client.post("/api/events", json=batch)
            self.longest = max(self.longest, time.monotonic() - began)
            if answer.status_code == 200:
                self.posted += BATCH
            else:
                self.refused.append(answer.text)


@pytest.fixture
def whole(serve: Callable[..., Served]) -> Served:
    """A server on a database from before there were parts, with events in it."""
    served = serve()
    for session_id in SESSIONS:
        served.sql(
            "INSERT INTO sessions (session_id, status, created_at) VALUES (?, 'running', '2026-02-23T12:00:00Z')",
            (session_id,),
        )
        answer = served.client().post("/api/events", json=[event(session_id, 999_000 + n) for n in range(5)])
        assert answer.status_code == 200, answer.text
    served.stop()
    manage("shell", "-c", WITHOUT_PARTS, env=served.env)
    assert served.sql("SELECT relkind::text FROM pg_class WHERE relname = 'events'") == [("r",)]
    served.start()
    return served


def test_a_filled_table_is_put_into_parts_while_events_are_written(whole: Served) -> None:
    writers = [Writer(whole, session_id) for session_id in SESSIONS]
    for writer in writers:
        writer.start()
    time.sleep(0.5)
    told = manage("partition_events", env=whole.env).stdout
    assert "in parts" in told
    before = whole.sql("SELECT count(*) FROM events")[0][0]
    deadline = time.monotonic() + PATIENCE
    while whole.sql("SELECT count(*) FROM events")[0][0] < before + 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    for writer in writers:
        writer.stopping.set()
        writer.join(PATIENCE)
    assert [text for writer in writers for text in writer.refused] == []
    assert max(writer.longest for writer in writers) < 4
    assert whole.sql("SELECT relkind::text FROM pg_class WHERE relname = 'events'") == [("p",)]
    for writer in writers:
        assert whole.sql(
            "SELECT count(*), count(DISTINCT id) FROM events WHERE session_id = ?", (writer.session_id,)
        ) == [(writer.posted + 5, writer.posted + 5)]
        assert whole.sql(
            "SELECT count(*), count(DISTINCT key) FROM changes WHERE topic = 'events' AND parent = ?",
            (writer.session_id,),
        ) == [(writer.posted + 5, writer.posted + 5)]
    assert whole.sql(
        "SELECT count(*) FROM events e LEFT JOIN event_context c ON c.event_id = e.id WHERE c IS NULL"
    ) == [(0,)]
    spans = whole.sql(
        "SELECT count(*) FROM sbx_session_spans s JOIN event_context c USING (session_id)"
        " WHERE c.event_id >= s.first_id AND c.event_id < s.before_id"
    )
    assert spans == [(sum(writer.posted + 5 for writer in writers),)]
    page = whole.client().get(f"/sessions/{SESSIONS[0]}/events", params={"limit": 7}).json()
    assert len(page["events"]) == 7
    again = manage("partition_events", env=whole.env).stdout
    assert "in parts" not in again
    assert whole.client().get("/health/ready").status_code == 200
