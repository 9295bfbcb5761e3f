"""Activity of a session just before one of its events: a person's last message to the agent, and its last calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection

from coordinator.engine.values import cast_to_text_sql
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.titles import extract_message_text

STEPS = 3
LOOKED_BACK = 60  # events of the session, for its last calls
WORDLESS = 3  # messages that are looked at, where the last ones are pictures alone
REACH = 50_000  # ids before the event: what is older is not looked for
LONGEST = 300  # characters of a text that is shown
READ_UP_TO = 4_000  # characters of a stored text
MAIN_INPUT_FIELDS = (
    "command",
    "cmd",
    "file_path",
    "path",
    "pattern",
    "url",
    "query",
    "description",
    "prompt",
)

_PLACE = "e.session_id = %s AND e.id < %s AND e.id > %s"
_CALLED = f"""
SELECT * FROM (SELECT %s AS place, e.id, e.event_type, {cast_to_text_sql("e.tool_name")},
    substr({cast_to_text_sql("e.tool_input")}, 1, {READ_UP_TO})
FROM events e WHERE {_PLACE} ORDER BY e.id DESC LIMIT {LOOKED_BACK}) r WHERE event_type = 'pre_tool'
"""  # constants  # noqa: S608
# However long ago in its turn: all columns of the index sbx_events_kinds are named, so that it is read from its end.
_PROMPTS_SQL = f"""
SELECT * FROM (SELECT %s AS place, e.id, e.event_type, NULL, substr({cast_to_text_sql("e.content")}, 1, {READ_UP_TO})
FROM events e WHERE {_PLACE} AND e.event_type = 'message' AND e.tool_name IS NULL AND e.role = 'user'
ORDER BY e.tool_name DESC, e.id DESC LIMIT {WORDLESS}) r
"""  # constants  # noqa: S608
_BEFORE = f"{_PROMPTS_SQL} UNION ALL {_CALLED}"


@dataclass(frozen=True, slots=True)
class RecentCall:
    """A call that was made: its tool, and what it was about."""

    tool: str
    about: str


@dataclass(frozen=True, slots=True)
class RecentActivity:
    """A person's last message to the agent (empty where that is long ago), and its last calls, oldest first."""

    task: str = ""
    steps: tuple[RecentCall, ...] = ()


Row = tuple[str, str | None, object]  # type, tool, and the input; of a person's message, its content


def load_recent_activity_before_events(positions: Sequence[tuple[str, int]]) -> list[RecentActivity]:
    """Return, for each session and event, the last message and calls before it: one query for all.

    Secrets are masked; texts are cut at LONGEST.
    """
    if not positions:
        return []
    parameters = [
        value
        for number, (session_id, event_id) in enumerate(positions)
        for value in (number, session_id, event_id, event_id - REACH) * 2
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            f"{' UNION ALL '.join([_BEFORE] * len(positions))} ORDER BY place, id DESC", parameters
        )
        rows = cursor.fetchall()
    rows_by_place: list[list[Row]] = [[] for _ in positions]
    for number, _, *row in rows:
        rows_by_place[number].append(tuple(row))
    return [build_recent_activity(place_rows) for place_rows in rows_by_place]


def build_recent_activity(rows: Sequence[Row]) -> RecentActivity:
    """Return what rows of one session say, newest first."""
    message_texts = (extract_message_text(content) for kind, _, content in rows if kind == "message")
    called = [
        RecentCall(str(tool), summarize_stored_tool_input(tool_input))
        for kind, tool, tool_input in rows
        if kind == "pre_tool" and tool
    ]
    return RecentActivity(
        mask_and_shorten_prompt(next(filter(None, message_texts), "")), tuple(reversed(called[:STEPS]))
    )


def summarize_stored_tool_input(stored: object) -> str:
    """Return what a call was about, in a line; its input may be cut, or no JSON."""
    if not isinstance(stored, str):
        return ""
    try:
        decoded = json.loads(stored)
    except (ValueError, RecursionError):
        return mask_and_shorten_text_to_line(stored)
    if not isinstance(decoded, dict):
        return mask_and_shorten_text_to_line(stored)
    most = next((decoded[name] for name in MAIN_INPUT_FIELDS if isinstance(decoded.get(name), str)), None)
    return mask_and_shorten_text_to_line(stored if most is None else most)


def mask_and_shorten_prompt(text: str) -> str:
    """Return the beginning of a prompt with its lines, which its lists and tables need."""
    masked = str(mask_secrets_in_value(text)).strip()
    return masked if len(masked) <= LONGEST else f"{masked[:LONGEST]}…"


def mask_and_shorten_text_to_line(text: str) -> str:
    line = " ".join(str(mask_secrets_in_value(text)).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
