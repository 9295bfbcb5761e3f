"""Databases as the two systems leave them, at any step of their history: made by the history's own SQL."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any

from coordinator.migrations._sql import EngineSql, in_words_of

FOLDER = Path(__file__).parents[2] / "coordinator" / "migrations"
STEPS = sorted(path.stem for path in FOLDER.glob("00[0-2]*.py") if path.stem[:4] <= "0021")
CLOTOCORE = [step for step in STEPS if step[:4] <= "0019"]


def statements(step: str) -> list[str]:
    """Return a step's SQL in SQLite's words."""
    found = []
    for operation in import_module(f"coordinator.migrations.{step}").Migration.operations:
        for part in [operation, *getattr(operation, "database_operations", ())]:
            if isinstance(part, EngineSql):
                found += [in_words_of("sqlite", statement) for statement in part.forward]
    return [statement for statement in found if statement]


def database(path: Path, upto: str = STEPS[-1]) -> sqlite3.Connection:
    """Return a new database at `path`, with the schema and the seeds of that step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = sqlite3.connect(path)
    for step in STEPS:
        if step <= upto:
            for statement in statements(step):
                file.executescript(statement)
    file.commit()
    return file


def add(file: sqlite3.Connection, table: str, *rows: dict[str, Any]) -> None:
    """Add rows, unchecked, as a program of old might have."""
    file.execute("PRAGMA foreign_keys = off")
    for row in rows:
        names, places = ", ".join(row), ", ".join("?" * len(row))
        file.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", tuple(row.values()))
    file.commit()


AGENT = {"id": "agent.watch", "name": "Watch", "default_engine_id": "mind.x", "last_seen": 1771848000000}
MESSAGE = {
    "id": "m1",
    "agent_id": "agent.watch",
    "user_id": "anna",
    "source": "user",
    "content": '[{"type": "text", "text": "the pool ran dry"}]',
    "created_at": 1771848000000,
}
SESSION = {"session_id": "ses_1", "status": "finished", "created_at": "2026-02-23T12:00:00Z"}
EVENT = {
    "session_id": "ses_1",
    "event_type": "message",
    "timestamp": "2026-02-23T12:00:01Z",
    "role": "user",
    "content": '[{"type":"text","text":"hi"}]',
}
