"""Databases as the two systems leave them, at any step of their history: made by the history's own SQL."""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any

from django.utils import timezone

from coordinator.actions.importing import ImportOutcome, import_database
from coordinator.importing.source_database import SourceDatabase
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
    path.write_bytes(_database_of(upto))
    return sqlite3.connect(path)


@functools.cache
def _database_of(upto: str) -> bytes:
    with contextlib.closing(sqlite3.connect(":memory:")) as file:
        for step in STEPS:
            if step <= upto:
                for statement in statements(step):
                    file.executescript(statement)
        file.commit()
        return file.serialize()


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

# What the newest versions have beside the documents' columns, and tables that Signalbox has no place for.
NEWEST_COORDINATOR = """
DROP TABLE runs;
CREATE TABLE runs (run_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, type TEXT NOT NULL, agent_name TEXT,
    parameters TEXT NOT NULL, scope TEXT, resolved_agent_blueprint TEXT, project_dir TEXT, parent_session_id TEXT,
    execution_mode TEXT NOT NULL DEFAULT 'sync', demands TEXT, status TEXT NOT NULL DEFAULT 'pending',
    runner_id TEXT, error TEXT, created_at TEXT NOT NULL, claimed_at TEXT, started_at TEXT, completed_at TEXT,
    timeout_at TEXT);
ALTER TABLE events ADD COLUMN result_text TEXT;
ALTER TABLE events ADD COLUMN result_data TEXT;
"""
NEWEST_CLOTOCORE = """
ALTER TABLE agents ADD COLUMN agent_type TEXT NOT NULL DEFAULT 'agent';
ALTER TABLE audit_logs ADD COLUMN chain_hash TEXT;
ALTER TABLE chat_messages ADD COLUMN parent_id TEXT;
ALTER TABLE chat_messages ADD COLUMN branch_index INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chat_messages ADD COLUMN conversation_id TEXT;
ALTER TABLE mcp_servers ADD COLUMN env TEXT;
ALTER TABLE mcp_servers ADD COLUMN auth_token TEXT;
CREATE TABLE cron_jobs (id TEXT PRIMARY KEY, agent_id TEXT, prompt TEXT, every INTEGER);
CREATE TABLE llm_providers (id TEXT PRIMARY KEY, api_key TEXT);
CREATE TABLE model_history (provider TEXT, model TEXT, seen BLOB);
CREATE TABLE memory_locks (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE trusted_commands (command TEXT);
"""
RUN = {
    "run_id": "run_1",
    "session_id": "ses_1",
    "type": "start_session",
    "status": "completed",
    "created_at": "2026-02-23T12:00:00Z",
}


def newest(path: Path) -> sqlite3.Connection:
    """Return a new database with all that both systems' newest versions have."""
    file = database(path)
    file.executescript(NEWEST_COORDINATOR + NEWEST_CLOTOCORE)
    return file


def brought(path: Path, *, write: bool = True, with_policy: bool = False) -> ImportOutcome:
    """Import a database and return what became of it."""
    source = SourceDatabase(path)
    try:
        return import_database(source, now=timezone.now(), write=write, with_policy=with_policy)
    finally:
        source.delete_database_copy()


def kept(done: ImportOutcome, **wanted: Any) -> list[dict[str, Any]]:
    """Return what an import kept aside, of those lines that say so."""
    assert done.aside is not None
    lines = [json.loads(line) for line in done.aside.read_text().splitlines()]
    return [one for one in lines if wanted.items() <= one.items()]
