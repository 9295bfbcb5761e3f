"""`GET /sse/sessions`: sessions and their events as JSON, in the recorded form, with a replay that replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from django.db import connection

from coordinator.edge.channels import Frame
from coordinator.edge.streams import frame
from coordinator.feed import Change

TOPICS = frozenset({"sessions", "events", "runs"})
INIT_SESSIONS = 500  # the newest; GET /sessions pages through the rest
PARAMETERS = 500  # ids in one query

SESSION = (
    "session_id", "status", "created_at", "project_dir", "agent_name", "last_resumed_at", "parent_session_id",
    "executor_session_id", "executor_profile", "hostname",
)  # fmt: skip
EVENT = (
    "event_type", "session_id", "timestamp", "tool_name", "tool_input", "tool_output", "error", "exit_code",
    "reason", "role", "content",
)  # fmt: skip
JSON_COLUMNS = tuple(EVENT.index(name) for name in ("tool_input", "tool_output", "content"))
RUN = ("run_id", "error", "session_id", "status", "runner_id")

encode = msgspec.json.Encoder().encode


def wants(session_id: str | None) -> Callable[[Change], bool]:
    """Return the test for changes that a stream of one session, or of all, is told of."""
    if session_id is None:
        return lambda change: change.topic in TOPICS
    return lambda change: change.topic in TOPICS and session_id in (change.key, change.parent)


def hello(session_id: str | None, upto: int) -> list[Frame]:
    """Return the `init` frame: the newest sessions, or the one. Runs in a thread."""
    where, parameters = ("WHERE session_id = %s", [session_id]) if session_id is not None else ("", [])
    query = (
        f"SELECT {', '.join(SESSION)} FROM sessions {where} ORDER BY created_at DESC LIMIT {INIT_SESSIONS}"  # noqa: S608
    )
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        sessions = [dict(zip(SESSION, row, strict=True)) for row in cursor.fetchall()]
    return [frame(upto, "-ini-001", "init", encode({"sessions": sessions}))]


def render(changes: Sequence[Change]) -> list[Frame]:
    """Return the frames of `changes`, in order, from the rows as they stand now. Runs in a thread.

    A row that is gone meanwhile has no frame: its deletion follows.
    """
    sessions = _rows(
        "sessions", SESSION, {c.key for c in changes if c.topic == "sessions" and c.op != "delete"}
    )
    events = _rows("events", ("id", *EVENT), {int(c.key) for c in changes if c.topic == "events"})
    runs = _rows("runs", RUN, {c.key for c in changes if c.topic == "runs" and c.op == "update"})
    deleted_runs = Counter(c.parent for c in changes if c.topic == "runs" and c.op == "delete")
    frames = []
    for change in changes:
        if change.topic == "events":
            made = _event(change, events.get(int(change.key)))
        elif change.topic == "sessions":
            made = _session(change, sessions.get(change.key), deleted_runs[change.key])
        else:
            made = _run(change, runs.get(change.key))
        if made is not None:
            frames.append(made)
    return frames


def _rows(table: str, columns: Sequence[str], keys: Iterable[Any]) -> dict[Any, tuple[Any, ...]]:
    """Return rows by their first column."""
    wanted = list(keys)
    found: dict[Any, tuple[Any, ...]] = {}
    with connection.cursor() as cursor:
        for at in range(0, len(wanted), PARAMETERS):
            some = wanted[at : at + PARAMETERS]
            marks = ", ".join(["%s"] * len(some))
            cursor.execute(
                f"SELECT {', '.join(columns)} FROM {table} WHERE {columns[0]} IN ({marks})",  # noqa: S608
                some,
            )
            found.update((row[0], row) for row in cursor.fetchall())
    return found


def _event(change: Change, row: tuple[Any, ...] | None) -> Frame | None:
    if row is None or change.op != "insert":
        return None
    values = list(row[1:])
    for place in JSON_COLUMNS:
        values[place] = json_of(values[place])
    data = dict(zip(EVENT, values, strict=True))
    return frame(change.id, "-evt-001", "event", encode({"data": data}))


def json_of(text: str | None) -> Any:
    """Return a JSON column's value; a text of another program that is no JSON as that text."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text


def _session(change: Change, row: tuple[Any, ...] | None, runs_deleted: int) -> Frame | None:
    if change.op == "delete":
        data = encode({"session_id": change.key, "runs_deleted": runs_deleted})
        return frame(change.id, "-sdl-001", "session_deleted", data)
    if row is None:
        return None
    data = encode({"session": dict(zip(SESSION, row, strict=True))})
    if change.op == "insert":
        return frame(change.id, "-scr-001", "session_created", data)
    return frame(change.id, "-sup-001", "session_updated", data)


def _run(change: Change, row: tuple[Any, ...] | None) -> Frame | None:
    """Return `run_failed` for a run that no runner ever took: only those are told, as recorded."""
    if row is None or row[RUN.index("status")] != "failed" or row[RUN.index("runner_id")] is not None:
        return None
    data = dict(zip(RUN[:3], row[:3], strict=True))
    return frame(change.id, "-rfl-001", "run_failed", encode(data))
