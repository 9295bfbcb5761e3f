"""Records of the files that calls touched, and of the tools that sessions called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django.db import connection, transaction

from coordinator.actions.search.progress import (
    build_sql_placeholders,
    fetch_query_ids,
    fetch_query_rows,
    save_index_progress,
)
from coordinator.engine import full_text
from coordinator.engine.values import cast_to_text_sql
from coordinator.search.paths import READ_UP_TO, extract_paths_from_stored_input

STEP = 500  # events a transaction
REACH = 300  # events before an end among which its beginning is looked for, where no id says which it is
FILES_LOOKED_AT = 5_000
# An end repeats its call's input; it counts only where nobody reported the beginning. Before it has statistics,
# PostgreSQL answers NOT EXISTS with a table of all beginnings, built for each batch. A single value it looks up.
_CALLS = f"""
SELECT e.id, e.session_id, {cast_to_text_sql("e.tool_name")}, e.event_type, c.tool_use_id,
    {cast_to_text_sql("s.project_dir")},
    substr({cast_to_text_sql("e.tool_input")}, 1, {READ_UP_TO}) FROM events e
JOIN sessions s ON s.session_id = e.session_id LEFT JOIN event_context c ON c.event_id = e.id
WHERE e.tool_name IS NOT NULL AND e.id IN ({{ids}}) AND (e.event_type <> 'post_tool' OR (
    SELECT p.id FROM event_context o JOIN events p ON p.id = o.event_id
    WHERE o.session_id = e.session_id AND o.tool_use_id = c.tool_use_id AND p.event_type = 'pre_tool' LIMIT 1
) IS NULL) ORDER BY e.id"""  # constants  # noqa: S608


class FileTouchingCall(NamedTuple):
    """One half of a call, as far as it says what was touched; `named_path` is the input's beginning, as stored."""

    event_id: int
    session_id: str
    tool: str
    kind: str
    tool_use_id: str | None
    directory: str | None
    named_path: str | None

    @property
    def is_call_end_without_id(self) -> bool:
        return self.kind == "post_tool" and not self.tool_use_id

    @property
    def touched_paths(self) -> list[str]:
        return extract_paths_from_stored_input(
            self.named_path if isinstance(self.named_path, str) else None, self.directory
        )


def record_file_touches(events: Sequence[int]) -> None:
    """Note what these events touched and called. Part of a transaction."""
    if not events:
        return
    with full_text.disable_table_scans_during_block():
        touched_files = [
            FileTouchingCall(*row)
            for row in fetch_query_rows(_CALLS.format(ids=build_sql_placeholders(events)), events)
        ]
    # Another program's id that is no text can be named nowhere else.
    calls = [call for call in touched_files if type(call.session_id) is str]
    begun = call_start_keys_near_ends(calls)
    touched = [
        (path, call)
        for call in calls
        if not is_call_start_already_recorded(call, begun)
        for path in call.touched_paths
    ]
    with connection.cursor() as cursor:
        file_ids = get_or_create_file_ids(sorted({path for path, _ in touched}))
        cursor.executemany(
            "INSERT INTO sbx_file_touches (file_id, event_id, session_id) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            sorted((file_ids[path], call.event_id, call.session_id) for path, call in touched),
        )
        cursor.executemany(
            "INSERT INTO sbx_session_tools (tool, session_id) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            sorted({(call.tool, call.session_id) for call in calls}),
        )


def call_start_keys_near_ends(calls: Sequence[FileTouchingCall]) -> set[tuple[str, str, int]]:
    """Return the beginnings near the ends that have no id: session, tool and event."""
    ends = [call.event_id for call in calls if call.is_call_end_without_id]
    if not ends:
        return set()
    return set(
        fetch_query_rows(
            "SELECT session_id, tool_name, id FROM events WHERE id >= %s AND id < %s AND event_type = 'pre_tool'",
            [min(ends) - REACH, max(ends)],
        )
    )


def is_call_start_already_recorded(call: FileTouchingCall, begun: set[tuple[str, str, int]]) -> bool:
    """Return whether an end without an id has its beginning among the events before it."""
    before = range(call.event_id - 1, call.event_id - REACH - 1, -1)
    return call.is_call_end_without_id and any((call.session_id, call.tool, pk) in begun for pk in before)


def get_or_create_file_ids(paths: Sequence[str]) -> dict[str, int]:
    """Return the ids of paths, new or known."""
    if not paths:
        return {}
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO sbx_files (path) VALUES (%s) ON CONFLICT DO NOTHING", [(path,) for path in paths]
        )
    return dict(
        fetch_query_rows(
            f"SELECT path, id FROM sbx_files WHERE path IN ({build_sql_placeholders(paths)})",  # noqa: S608
            paths,
        )
    )


def delete_file_touches(events: Sequence[int]) -> None:
    """Forget what these events touched. Part of a transaction."""
    if events:
        with connection.cursor() as cursor:
            cursor.execute(
                f"DELETE FROM sbx_file_touches WHERE event_id IN ({build_sql_placeholders(events)})",  # noqa: S608
                list(events),
            )


def delete_all_file_touches() -> None:
    """Forget what all events touched. Part of a transaction."""
    with connection.cursor() as cursor:
        for table in ("sbx_file_touches", "sbx_files", "sbx_session_tools"):
            cursor.execute(f"DELETE FROM {table}")  # noqa: S608


def delete_unused_file_paths() -> None:
    """Forget the paths that no call names any longer."""
    unused = "NOT EXISTS (SELECT 1 FROM sbx_file_touches t WHERE t.file_id = f.id)"
    (last,) = fetch_query_ids("SELECT coalesce(max(id), 0) FROM sbx_files")
    for low in range(0, last + 1, FILES_LOOKED_AT):
        stretch = [low, low + FILES_LOOKED_AT]
        if fetch_query_rows(
            f"SELECT 1 FROM sbx_files f WHERE id >= %s AND id < %s AND {unused} LIMIT 1",  # noqa: S608
            stretch,
        ):
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"DELETE FROM sbx_files AS f WHERE id >= %s AND id < %s AND {unused}", stretch)  # noqa: S608


def iterate_touch_backfill_steps(after: int) -> Iterator[int]:
    """Note what the events beyond `after` touched, oldest first: those that were indexed before this was noted."""
    while window := fetch_query_ids(
        "SELECT id FROM events WHERE id > %s ORDER BY id LIMIT %s", [after, STEP]
    ):
        after = window[-1]
        with transaction.atomic():
            record_file_touches(window)
            save_index_progress(filed=after)
        yield 0
    save_index_progress(filed=None)
