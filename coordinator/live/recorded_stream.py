"""`GET /sse/sessions`: sessions and their events as JSON, in the recorded form, with a replay of missed events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import parse_qs

import msgspec
from django.db import connection

from coordinator.feed.reader import FeedChange
from coordinator.lib.unfit_values import UnreadableText
from coordinator.live.channels import EventFrame
from coordinator.live.hub import WantedTopics
from coordinator.live.streams import build_sse_frame
from coordinator.sessions.events import EVENT_COLUMNS, JSON_COLUMNS
from coordinator.sessions.results import parse_result_text_and_data
from coordinator.sessions.wire import SESSION_COLUMNS

TOPICS = frozenset({"sessions", "events", "runs"})
INIT_SESSIONS = 500  # the newest; GET /sessions pages through the rest
PARAMETERS = 500  # ids in one query

# The recorded frames name the type before the session.
EVENT = ("event_type", *(name for name in EVENT_COLUMNS if name != "event_type"))
JSON_PLACES = tuple(map(EVENT.index, JSON_COLUMNS))
RUN = ("run_id", "error", "session_id", "status", "runner_id")

encode = msgspec.json.Encoder(enc_hook=str).encode


def parse_session_id_and_init(query_string: bytes) -> tuple[str | None, bool]:
    """Return which session the query names, None for all, and whether the stream begins with an `init` frame."""
    query = parse_qs(query_string.decode("latin-1"), encoding="utf-8")
    with_init = query.get("include_init", ["true"])[-1].lower() not in {"false", "0", "no", "off"}
    return query.get("session_id", [""])[-1] or None, with_init


def session_stream_topics(session_id: str | None) -> WantedTopics:
    """Return the changes that a stream of one session, or of all, receives."""
    return WantedTopics(TOPICS if session_id is None else (f"{topic}:{session_id}" for topic in TOPICS))


def load_session_init_frames(session_id: str | None, upto: int) -> list[EventFrame]:
    """Return the `init` frame: the newest sessions, or the one. Runs in a thread."""
    where, parameters = ("WHERE session_id = %s", [session_id]) if session_id is not None else ("", [])
    columns = ", ".join(map(column_as_text_sql, SESSION_COLUMNS))
    query = f"SELECT {columns} FROM sessions {where} ORDER BY created_at DESC LIMIT {INIT_SESSIONS}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        sessions = [dict(zip(SESSION_COLUMNS, row, strict=True)) for row in cursor.fetchall()]
    return [build_sse_frame(upto, "-ini-001", "init", encode({"sessions": sessions}))]


def load_frames_of_changes(changes: Sequence[FeedChange]) -> list[EventFrame]:
    """Return the frames of `changes`, in order, from the present rows. Runs in a thread.

    A row that was deleted meanwhile has no frame: its deletion follows.
    """
    sessions = fetch_rows_by_key(
        "sessions", SESSION_COLUMNS, {c.key for c in changes if c.topic == "sessions" and c.op != "delete"}
    )
    events = fetch_rows_by_key("events", ("id", *EVENT), {int(c.key) for c in changes if c.topic == "events"})
    runs = fetch_rows_by_key("runs", RUN, {c.key for c in changes if c.topic == "runs" and c.op == "update"})
    deleted_runs = Counter(c.parent for c in changes if c.topic == "runs" and c.op == "delete")
    frames = []
    for change in changes:
        if change.topic == "events":
            event_frame = build_event_frame_or_none(change, events.get(int(change.key)))
        elif change.topic == "sessions":
            event_frame = build_session_frame_or_none(
                change, sessions.get(change.key), deleted_runs[change.key]
            )
        else:
            event_frame = failed_run_frame_or_none(change, runs.get(change.key))
        if event_frame is not None:
            frames.append(event_frame)
    return frames


def fetch_rows_by_key(table: str, columns: Sequence[str], keys: Iterable[Any]) -> dict[Any, tuple[Any, ...]]:
    wanted_keys, key, read = list(keys), columns[0], ", ".join(map(column_as_text_sql, columns[1:]))
    rows_by_key: dict[Any, tuple[Any, ...]] = {}
    with connection.cursor() as cursor:
        for at in range(0, len(wanted_keys), PARAMETERS):
            some = wanted_keys[at : at + PARAMETERS]
            marks = ", ".join(["%s"] * len(some))
            cursor.execute(f"SELECT {key}, {read} FROM {table} WHERE {key} IN ({marks})", some)  # noqa: S608
            rows_by_key.update((row[0], row) for row in cursor.fetchall())
    return rows_by_key


def column_as_text_sql(column: str) -> str:
    """Return SQL for a column as the stream shows it: in SQLite another program may have stored a BLOB in a text."""
    return column if column == "exit_code" else f"CAST({column} AS TEXT)"


def build_event_frame_or_none(change: FeedChange, row: tuple[Any, ...] | None) -> EventFrame | None:
    if row is None or change.op != "insert":
        return None
    values = list(row[1:])
    for column in JSON_PLACES:
        values[column] = json_value_or_text(values[column])
    data = dict(zip(EVENT, values, strict=True))
    return build_sse_frame(
        change.id, "-evt-001", "event", encode({"data": copy_with_tool_result_fields(data)})
    )


def copy_with_tool_result_fields(data: dict[str, Any]) -> dict[str, Any]:
    """Add a result's two fields, which the events table keeps in the output; others do not have them."""
    text, result = parse_result_text_and_data(data["event_type"], data["tool_output"])
    is_result = text is not None or result is not None
    output = None if is_result else data["tool_output"]
    return {**data, "tool_output": output, "result_text": text, "result_data": result}


def json_value_or_text(text: str | None) -> Any:
    """Return a JSON column's value; a text of another program that is no JSON as that text."""
    if text is None or isinstance(text, UnreadableText):
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return text


def build_session_frame_or_none(
    change: FeedChange, row: tuple[Any, ...] | None, runs_deleted: int
) -> EventFrame | None:
    if change.op == "delete":
        data = encode({"session_id": change.key, "runs_deleted": runs_deleted})
        return build_sse_frame(change.id, "-sdl-001", "session_deleted", data)
    if row is None:
        return None
    data = encode({"session": dict(zip(SESSION_COLUMNS, row, strict=True))})
    if change.op == "insert":
        return build_sse_frame(change.id, "-scr-001", "session_created", data)
    return build_sse_frame(change.id, "-sup-001", "session_updated", data)


def failed_run_frame_or_none(change: FeedChange, row: tuple[Any, ...] | None) -> EventFrame | None:
    """Return `run_failed` for a run that no runner ever took: only those are reported, as recorded."""
    if row is None or row[RUN.index("status")] != "failed" or row[RUN.index("runner_id")] is not None:
        return None
    data = dict(zip(RUN[:3], row[:3], strict=True))
    return build_sse_frame(change.id, "-rfl-001", "run_failed", encode(data))
