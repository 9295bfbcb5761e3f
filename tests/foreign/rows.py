"""Rows as any other program may leave them: every value that SQLite can hold, in every column that takes it.

The tables are those of the schema documents. A row is written by sqlite3 (or psycopg) alone, as a program that
knows nothing of Signalbox writes it: foreign keys unchecked, no type enforced but by the table itself.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from django.db import connection

from tests.served import Served

# Lately: the audit log forgets what is old when a row is added to it.
LATELY = datetime.now(UTC) - timedelta(hours=1)
NOON = f"{LATELY:%Y-%m-%dT%H:%M:%SZ}"
NOON_MS = int(LATELY.timestamp()) * 1000
TOLD = "ses_told"  # the session of odd events, runs and requests
AGENT = "agent.told"
LAST = "zebrafish"  # what the last row of each kind says, to be found after all odd ones


class Bytes(bytes):
    """Bytes that are stored as TEXT, whatever they are."""


# By name, so that a failure says which it was. SQLite's own words for types: NULL, INTEGER, REAL, TEXT, BLOB.
VALUES: dict[str, Any] = {
    "null": None,
    "zero": 0,
    "lowest": -(2**63),
    "highest": 2**63 - 1,
    "real": 1.5,
    "tiny": 5e-324,
    "infinity": float("inf"),
    "minus-infinity": float("-inf"),
    "empty": "",
    "blank": " \t\n",
    "word": "neither a number nor a time",
    "number": "12e3",
    "nul": "before\x00after",
    "surrogate": Bytes(b"lone \xed\xa0\x80 surrogate"),
    "cut": Bytes(b"\xf0\x9f\x98"),
    "latin-1": Bytes("Größe".encode("latin-1")),
    "blob": b"\x00\xff\xfe\x80blob",
    "json-blob": b'[{"type": "text", "text": "in a blob"}]',
    "huge": "huge " * 20_000,
    "impossible-date": "2026-02-30T25:61:61Z",
    "first-day": "0001-01-01T00:00:00+14:00",
    "last-day": "9999-12-31T23:59:59-12:00",
    "json-surrogate": r'{"text": "\ud800", "command": "\udfff", "file_path": "\ud83d"}',
    "json-blocks": r'[{"type": "text", "text": "\ud800"}, {"type": "image", "source": "none"}, 7, null, "x"]',
    "json-infinity": '{"a": [NaN, -Infinity, 1e999]}',
    "json-deep": "[" * 5_000 + "]" * 5_000,
    "json-nested": "[" * 800 + "]" * 800,
    "json-number": "-7",
    "json-wrong": '{"command": 7, "file_path": ["x"], "edits": "none", "content": {"type": 1}, "text": {}}',
    "path": "../..//?a=b#c%00%2F",
    "markup": "<script>alert(1)</script>{{ 7|add:7 }}",
}
# Those of which each column of each row gets one by itself; the others fill whole rows only.
ONE_BY_ONE = (
    "null", "lowest", "real", "infinity", "empty", "word", "nul", "surrogate", "blob", "json-blob", "huge",
    "impossible-date", "json-surrogate", "json-wrong", "path",
)  # fmt: skip
# The types that PostgreSQL's columns take are fixed: there only texts can be odd, and none with NUL.
ON_POSTGRES = {name: value for name, value in VALUES.items() if type(value) is str and "\x00" not in value}

_EVENT = {
    "session_id": TOLD, "event_type": "post_tool", "timestamp": NOON, "tool_name": "Bash",
    "tool_input": '{"command": "ls"}', "tool_output": '"ok"', "error": None,
    "exit_code": 0, "reason": None, "role": None, "content": None,
}  # fmt: skip
_RUN = {
    "run_id": "run_told", "session_id": TOLD, "type": "start_session", "agent_name": "reviewer", "prompt": "Look",
    "project_dir": "/srv", "parent_session_id": None, "execution_mode": "sync", "demands": None, "status": "completed",
    "runner_id": "lnch_1", "error": None, "created_at": NOON, "claimed_at": NOON, "started_at": NOON,
    "completed_at": NOON, "timeout_at": NOON,
}  # fmt: skip
_REQUEST = {
    "request_id": "req_told", "created_at": NOON, "plugin_id": AGENT, "permission_type": "FileWrite",
    "target_resource": "/srv/x", "justification": "To write", "status": "pending", "approved_by": None,
    "approved_at": None, "expires_at": None, "metadata": '{"tool_input": {"command": "ls"}}',
}  # fmt: skip
_GRANT = {
    "entry_type": "tool_grant", "agent_id": AGENT, "server_id": "srv.told", "tool_name": "read", "permission": "allow",
    "granted_by": "admin", "granted_at": NOON, "expires_at": None, "justification": "", "metadata": None,
}  # fmt: skip

# A sound row of each table, its key first. Variants beside it are rows in other states.
SOUND: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("sessions", "session_id", {
        "session_id": TOLD, "status": "finished", "created_at": NOON, "project_dir": "/srv", "agent_name": "reviewer",
        "last_resumed_at": NOON, "parent_session_id": None, "executor_session_id": "x", "executor_profile": "coding",
        "hostname": "box"}),
    ("sessions", "session_id", {
        "session_id": "ses_child", "status": "running", "created_at": NOON, "parent_session_id": TOLD}),
    ("events", "", _EVENT),
    ("events", "", _EVENT | {"event_type": "pre_tool", "tool_output": None}),
    ("events", "", _EVENT | {
        "event_type": "message", "role": "user", "content": '[{"type": "text", "text": "hello"}]', "tool_name": None,
        "tool_input": None, "tool_output": None}),
    ("events", "", _EVENT | {"event_type": "session_stop", "reason": "completed", "tool_name": None, "tool_input": None,
        "tool_output": None}),
    ("runs", "run_id", _RUN),
    ("runs", "run_id", _RUN | {"run_id": "run_pending", "status": "pending", "claimed_at": None, "started_at": None,
        "completed_at": None}),
    ("runs", "run_id", _RUN | {"run_id": "run_running", "status": "running", "completed_at": None}),
    ("plugin_settings", "plugin_id", {
        "plugin_id": "plugin.told", "is_active": True, "allowed_permissions": '["FileRead"]'}),
    ("plugin_configs", "config_key", {"plugin_id": "plugin.told", "config_key": "k", "config_value": "v"}),
    ("plugin_data", "key", {
        "plugin_id": "plugin.told", "key": "k", "value": "v", "updated_at": "2026-02-23 12:00:00"}),
    ("runtime_plugins", "plugin_id", {
        "plugin_id": "runtime.told", "script_name": "s.py", "description": "d", "code_content": "pass",
        "permissions": "[]", "created_at": NOON_MS, "created_by": "admin", "generation_number": 1, "is_active": True}),
    ("revoked_keys", "key_hash", {"key_hash": "told", "revoked_at": NOON_MS}),
    ("agents", "id", {
        "id": AGENT, "name": "Told", "description": "d", "default_engine_id": "mind.x", "status": "online",
        "metadata": "{}", "required_capabilities": '["Memory"]', "enabled": True, "last_seen": NOON_MS,
        "power_password_hash": None}),
    ("agent_plugins", "plugin_id", {"agent_id": AGENT, "plugin_id": "plugin.told", "pos_x": 0, "pos_y": 0}),
    ("audit_logs", "", {
        "timestamp": NOON, "event_type": "TOLD", "actor_id": "admin", "target_id": TOLD, "permission": "FileRead",
        "result": "allowed", "reason": "r", "metadata": "{}", "trace_id": "t"}),
    ("permission_requests", "request_id", _REQUEST),
    ("permission_requests", "request_id", _REQUEST | {
        "request_id": "req_decided", "status": "approved", "approved_by": "admin", "approved_at": NOON,
        "expires_at": "2026-02-24T12:00:00Z"}),
    ("chat_messages", "id", {
        "id": "msg_told", "agent_id": AGENT, "user_id": "default", "source": "agent",
        "content": '[{"type": "text", "text": "hello"}]', "metadata": None, "created_at": NOON_MS}),
    ("chat_attachments", "id", {
        "id": "att_told", "message_id": "msg_told", "filename": "a.txt", "mime_type": "text/plain", "size_bytes": 2,
        "storage_type": "inline", "inline_data": b"ok", "disk_path": None, "created_at": NOON_MS}),
    ("chat_attachments", "id", {
        "id": "att_disk", "message_id": "msg_told", "filename": "a.png", "mime_type": "image/png", "size_bytes": 2,
        "storage_type": "disk", "inline_data": None, "disk_path": "a/b.png", "created_at": NOON_MS}),
    ("mcp_servers", "name", {
        "name": "srv.told", "command": "npx", "args": '["-y"]', "script_content": None, "description": "d",
        "created_at": NOON_MS // 1000, "is_active": True, "default_policy": "opt-in"}),
    ("mcp_access_control", "", _GRANT),
    ("mcp_access_control", "", _GRANT | {"entry_type": "server_grant", "tool_name": None, "permission": "deny"}),
)  # fmt: skip


# What a CHECK or a key says of a row, so that the database would refuse a row with nothing sound in it.
TIES = {
    "session_id", "agent_id", "message_id", "plugin_id", "server_id", "entry_type", "source", "storage_type",
    "tool_name",
}  # fmt: skip


class Odd(NamedTuple):
    """One row with one odd value."""

    table: str
    column: str
    name: str  # of the value
    row: dict[str, Any]


def sound_rows(*, last: bool = False) -> Iterator[Odd]:
    """Yield the sound rows that the others name; or the rows that are stored `last`, and say so."""
    if not last:
        yield from (Odd(table, "", "", row) for table, _, row in SOUND)
        return
    said = json.dumps([{"type": "text", "text": LAST}])
    message = next(row for table, _, row in SOUND if table == "chat_messages")
    yield Odd("events", "", "", _EVENT | {"tool_output": said})
    yield Odd("chat_messages", "", "", message | {"id": "msg_last", "content": said})


def odd_rows() -> Iterator[Odd]:
    """Yield, of each sound row, one copy for every column and value. A key is the row's own where it is not odd."""
    values = VALUES if connection.vendor == "sqlite" else ON_POSTGRES
    for number, (table, key, sound) in enumerate(SOUND):
        for column in sound:
            for name in (name for name in ONE_BY_ONE if name in values):
                own = {key: f"{sound[key]}-{number}-{column}-{name}"} if key else {}
                yield Odd(table, column, name, {**sound, **own, column: values[name]})


def wide_rows() -> Iterator[Odd]:
    """Yield, of each sound row and value, one copy that holds the value in every column which takes it."""
    values = VALUES if connection.vendor == "sqlite" else ON_POSTGRES
    for number, (table, key, sound) in enumerate(SOUND):
        for name, value in values.items():
            own = {key: f"{sound[key]}-{number}-wide-{name}"} if key else {}
            yield Odd(table, "", name, {**{column: value for column in sound if column not in TIES}, **own})


class Foreign:
    """Another program on the same database, or on a server's. Use in a `with` block; it commits at its end."""

    def __init__(self, served: Served | None = None) -> None:
        self._served = served

    def __enter__(self) -> Foreign:
        place: Any = connection.settings_dict["NAME"]
        to = {"cursor_factory": psycopg.Cursor}
        if self._served:
            place, to = self._served.folder / "signalbox.sqlite3", to | {"dbname": self._served.database}
        self._on: Any = (
            sqlite3.connect(place, timeout=10)
            if connection.vendor == "sqlite"
            else psycopg.connect(**connection.get_connection_params() | to)
        )
        return self

    def __exit__(self, problem: object, *_: object) -> None:
        if problem is None:
            self._on.commit()
        self._on.close()

    def write(self, table: str, row: dict[str, Any]) -> bool:
        """Write a row; say whether the table took it (a CHECK, NOT NULL or a key may refuse it)."""
        sqlite = connection.vendor == "sqlite"
        mark = "?" if sqlite else "%s"
        marks = [f"CAST({mark} AS TEXT)" if isinstance(one, Bytes) else mark for one in row.values()]
        values = [bytes(one) if isinstance(one, Bytes) else one for one in row.values()]
        statement = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(marks)})"
        try:
            if sqlite:
                self._on.execute(statement, values)
            else:
                with self._on.transaction():
                    self._on.execute(statement, values)
        except (sqlite3.IntegrityError, psycopg.errors.IntegrityError, psycopg.errors.DataError):
            return False
        except psycopg.errors.ProgrammingError:  # a text in an integer column
            return False
        return True
