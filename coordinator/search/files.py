"""What agents did to a file: the calls that touched it, in all sessions, newest first.

Which those are is noted by actions.search.file_touches, beside the index of words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models.expressions import RawSQL

from coordinator.engine.values import case_insensitive_like_operator
from coordinator.models import Event
from coordinator.models.agent_names import list_names_of_same_agent
from coordinator.search.paths import LONGEST

MOST_FILES = 200  # that one question means
PAGE = 30
READ_UP_TO = 32_768  # characters of an input that are read to be shown
_LARGE = ("tool_input", "tool_output", "content", "reason")


@dataclass(frozen=True, slots=True)
class TouchedFile:
    """A path that some call named."""

    id: int
    path: str


@dataclass(frozen=True, slots=True)
class FileTouch:
    """A call that touched a file. `tool_input` is its beginning, as stored; `failed` where its end has an error."""

    event: Event
    path: str
    tool_input: str
    failed: bool


@dataclass(frozen=True, slots=True)
class FileTouchPage:
    """A page of calls, newest first; `before` is where the next page begins, if there is one."""

    touches: list[FileTouch]
    before: int | None


def find_touched_files_matching_path(text: str) -> list[TouchedFile]:
    """Return the files that somebody means: exactly this path, else those that end so, else those that have it in.

    Upper and lower case are one except in the first. Of many, MOST_FILES, the shortest paths first.
    """
    text = text.strip()[:LONGEST]
    if not text:
        return []
    exactly = select_touched_files_by_sql("path = %s", [text])
    if exactly:
        return exactly
    like = f"path {case_insensitive_like_operator()} %s ESCAPE '!'"
    pattern = text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return select_touched_files_by_sql(like, [f"%/{pattern.lstrip('/')}"]) or select_touched_files_by_sql(
        like, [f"%{pattern}%"]
    )


def list_session_touched_file_counts(
    session_id: str, tools: Sequence[str], most: int = 1_000
) -> list[tuple[str, int]]:
    """Return the files that the session's calls of these tools touched, with how often, the most touched first.

    A call that failed, or that never came back, touched none; of an agent without ids of calls all count.
    """
    if not tools:
        return []
    statement = f"""
SELECT f.path, count(*) FROM events e
JOIN sbx_file_touches t ON t.event_id = e.id JOIN sbx_files f ON f.id = t.file_id
LEFT JOIN event_context c ON c.event_id = e.id
WHERE e.session_id = %s AND e.error IS NULL AND e.event_type IN ('pre_tool', 'post_tool')
    AND (c.tool_use_id IS NULL OR EXISTS (
        SELECT 1 FROM event_context o JOIN events x ON x.id = o.event_id
        WHERE o.session_id = c.session_id AND o.tool_use_id = c.tool_use_id
            AND x.event_type = 'post_tool' AND x.error IS NULL
    ))
    AND e.tool_name IN ({", ".join(["%s"] * len(tools))})
GROUP BY f.path ORDER BY 2 DESC, 1 LIMIT %s"""  # constants  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(statement, [session_id, *tools, most])
        return list(cursor.fetchall())


def select_touched_files_by_sql(where: str, parameters: list[str]) -> list[TouchedFile]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id, path FROM sbx_files WHERE {where} ORDER BY length(path), path LIMIT %s",  # noqa: S608
            [*parameters, MOST_FILES],
        )
        return [TouchedFile(*row) for row in cursor.fetchall()]


def load_calls_touching_files(
    files: Sequence[TouchedFile],
    *,
    tool: str = "",
    agent: str = "",
    before: int | None = None,
    limit: int = PAGE,
) -> FileTouchPage:
    """Return the newest calls that touched one of these files."""
    if not files:
        return FileTouchPage([], None)
    paths = {file.id: file.path for file in files}
    file_touches = find_event_ids_touching_files(list(paths), tool, agent, before, limit + 1)
    rows = load_touch_events_by_id([event_id for event_id, _ in file_touches[:limit]])
    shown_touches = [
        FileTouch(rows[pk], paths[file_id], rows[pk].beginning or "", rows[pk].failed)
        for pk, file_id in file_touches[:limit]
        if pk in rows
    ]
    return FileTouchPage(shown_touches, file_touches[limit - 1][0] if len(file_touches) > limit else None)


def find_event_ids_touching_files(
    files: list[int], tool: str, agent: str, before: int | None, limit: int
) -> list[tuple[int, int]]:
    """Return the newest calls, each once, with one of the files that it touched."""
    joins, conditions, parameters = "", [f"t.file_id IN ({', '.join(['%s'] * len(files))})"], list[Any](files)
    if before is not None:
        conditions.append("t.event_id < %s")
        parameters.append(before)
    if tool or agent:
        joins += " JOIN events e ON e.id = t.event_id"
    if tool:
        conditions.append("e.tool_name = %s")
        parameters.append(tool)
    if agent:
        joins += " JOIN sessions s ON s.session_id = e.session_id"
        names = list_names_of_same_agent(agent)
        conditions.append(f"s.agent_name IN ({', '.join(['%s'] * len(names))})")
        parameters += names
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT t.event_id, min(t.file_id) FROM sbx_file_touches t{joins}"  # constants  # noqa: S608
            f" WHERE {' AND '.join(conditions)} GROUP BY t.event_id ORDER BY t.event_id DESC LIMIT %s",
            [*parameters, limit],
        )
        return list(cursor.fetchall())


_FAILED = """
events.error IS NOT NULL OR EXISTS (
    SELECT 1 FROM event_context c JOIN event_context o ON o.session_id = c.session_id AND o.tool_use_id = c.tool_use_id
    JOIN events x ON x.id = o.event_id WHERE c.event_id = events.id AND x.error IS NOT NULL
)"""


def load_touch_events_by_id(ids: Sequence[int]) -> dict[int, Any]:
    events: Any = Event.objects.filter(pk__in=ids).select_related("session", "context").defer(*_LARGE)
    events = events.annotate(
        beginning=RawSQL(f"substr(events.tool_input, 1, {READ_UP_TO})", []),  # noqa: S611 # constants
        failed=RawSQL(_FAILED, []),  # noqa: S611
    )
    rows: dict[int, Any] = events.in_bulk()
    return rows


def session_ids_touching_file_sql(text: str) -> RawSQL:
    """Return a query for the ids of the sessions that touched one of the files that somebody means."""
    ids = [file.id for file in find_touched_files_matching_path(text)] or [-1]
    touching = "SELECT DISTINCT session_id FROM sbx_file_touches WHERE file_id IN"
    return RawSQL(f"{touching} ({', '.join(['%s'] * len(ids))})", ids)  # noqa: S611 # constants


def session_ids_calling_tool_sql(tool: str) -> RawSQL:
    """Return a query for the ids of the sessions that called a tool."""
    return RawSQL("SELECT session_id FROM sbx_session_tools WHERE tool = %s", [tool])


def list_session_ids_calling_tools(tools: Sequence[str], most: int) -> list[str]:
    """Return the ids of the sessions that called one of the tools, the latest created first, at most so many."""
    if not tools:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
SELECT DISTINCT s.session_id, s.created_at FROM sbx_session_tools t JOIN sessions s ON s.session_id = t.session_id
WHERE t.tool IN ({", ".join(["%s"] * len(tools))}) ORDER BY s.created_at DESC, s.session_id DESC LIMIT %s""",  # noqa: S608 # constants
            [*tools, most],
        )
        return [row[0] for row in cursor.fetchall()]


def list_all_called_tools(most: int = 300) -> list[str]:
    """Return the tools that sessions called, in order, at most so many."""
    with connection.cursor() as cursor:
        # From one to the next: DISTINCT would read the whole index.
        cursor.execute(
            """
WITH RECURSIVE found (tool) AS (
    SELECT min(tool) FROM sbx_session_tools
    UNION ALL
    SELECT (SELECT min(tool) FROM sbx_session_tools WHERE tool > found.tool) FROM found WHERE found.tool IS NOT NULL
)
SELECT tool FROM found WHERE tool IS NOT NULL LIMIT %s""",
            [most],
        )
        return [row[0] for row in cursor.fetchall()]
