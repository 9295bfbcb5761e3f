"""Queries of the recorded events for the facts about earlier calls that rules use. Only reads.

Each question is one statement along the index of a session's timeline. It reads at most MOST_EVENTS rows of that index
and MOST_ROWS events, of none more than LONGEST_TEXT characters, however long the session is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
from django.db import connection

from coordinator.lib import instants
from coordinator.lib.json_bounds import load_bounded_json
from coordinator.lib.storable import is_storable_text
from coordinator.models import KnownHost, McpResultMark, Session
from coordinator.policy.rules.call_history import (
    MARKED_RESULT,
    SAME_CALL,
    CallHistory,
    HistoryNeeds,
    Repetition,
    TimedCall,
    remove_insignificant_input_fields,
)
from coordinator.secrets.masking import mask_secrets_in_value

MOST_EVENTS = 2_000  # of a session, looked at for one question
MOST_ROWS = 400  # calls, or ends of calls, that are compared
# Characters of an input or an error that are compared. Longer inputs must be the same as a whole.
LONGEST_TEXT = 8_192
SHORT_ERROR = 30  # characters; such an error says little ("Exit code 1"), so the call must be the same, too
MINUTE_US = 60_000_000
MOST_OF_INPUT = 32 * LONGEST_TEXT  # bytes of memory that a stored input may take
MOST_HOSTS = 500  # that are looked up for one call
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{7,40}\b|[0-9]+(?:[.,:][0-9]+)*")


class SessionEvent(NamedTuple):
    """A recorded event of a call: `tool_input` is None where it is too long, and then compared as a whole."""

    call_id: str | None
    tool: str | None
    error: str | None
    tool_input: str | None
    has_equal_input: bool


def evaluate_history_conditions(needs: HistoryNeeds, moment: TimedCall) -> CallHistory:
    """Return which of the repetitions are reached with this call, and which of the hosts are known."""
    reached = frozenset(one for one in needs.repetitions if count_repetitions(one, moment) >= one.times)
    return CallHistory(
        reached, find_hosts_approved_in_project(needs.hosts, moment) if needs.hosts else frozenset()
    )


def count_repetitions(repetition: Repetition, moment: TimedCall) -> int:
    """Return how often the call was made, this time included, or how often its session met its last error."""
    if repetition.kind == MARKED_RESULT:
        return has_recent_suspicious_result(moment, repetition.minutes)
    count = count_same_calls if repetition.kind == SAME_CALL else count_repeats_of_last_error
    return count(moment, repetition.minutes, repetition.times)


def count_same_calls(moment: TimedCall, minutes: int, most: int) -> int:
    """Return how often the session made this call, this time included; no more than `most`.

    The same call is one of the same tool with the same input, whatever its description and time limit.
    """
    stored_form = dump_tool_input_as_stored(moment.tool_input)
    compared_input = normalize_stored_input_for_comparison(stored_form)
    tools = list(filter(None, [moment.tool, moment.other_tool]))
    rows = load_recent_session_events(moment, minutes, "pre_tool", tools, stored_form)
    count = 0 if moment.is_recorded else 1
    for row in rows:
        if count >= most:
            break
        if moment.call_id is None or row.call_id != moment.call_id:
            count += row.has_equal_input or (
                bool(compared_input)
                and normalize_stored_input_for_comparison(row.tool_input) == compared_input
            )
    return max(count, 1)


def has_recent_suspicious_result(moment: TimedCall, minutes: int) -> int:
    """Return 1 where the session got a marked result in the minutes before the moment, else 0."""
    if not is_storable_text(moment.session_id):
        return 0
    since = moment.made_at - timedelta(minutes=minutes)
    marked = McpResultMark.objects.filter(session_id=moment.session_id, marked_at__gte=since)
    if moment.event_id is not None:
        marked = marked.filter(marked_at__lt=moment.made_at)
    return int(marked.exists())


def count_repeats_of_last_error(moment: TimedCall, minutes: int, most: int) -> int:
    """Return how often calls of the session failed with the error of the last call that ended; 0 where that did not."""
    key, count = None, 0
    for row in load_recent_session_events(moment, minutes, "post_tool"):
        if key is None and not row.error:
            return 0
        error_key = build_error_comparison_key(row) if row.error else None
        key = error_key if key is None else key
        count += error_key == key
        if count >= most:
            break
    return count


def build_error_comparison_key(row: SessionEvent) -> tuple[str, ...]:
    """Return by what an error is the same as another one: numbers, times and digests do not count."""
    text = " ".join(_NUMBERS.sub("#", row.error or "").split())
    return (
        row.tool or "",
        text,
        *([normalize_stored_input_for_comparison(row.tool_input)] if len(text) <= SHORT_ERROR else []),
    )


def dump_tool_input_as_stored(tool_input: Any) -> str:
    """Return an input as its event holds it."""
    return msgspec.json.encode(mask_secrets_in_value(tool_input)).decode()


def normalize_stored_input_for_comparison(stored: str | None) -> str:
    """Return a stored input in the form in which inputs are compared; "" where it is too long or cannot be read."""
    if stored is None or len(stored) > LONGEST_TEXT:
        return ""
    try:
        return json.dumps(
            remove_insignificant_input_fields(load_bounded_json(stored, most=MOST_OF_INPUT)), sort_keys=True
        )
    except (ValueError, RecursionError):
        return ""


def load_recent_session_events(
    moment: TimedCall, minutes: int, event_type: str, tools: Sequence[str] = (), tool_input: str = ""
) -> list[SessionEvent]:
    """Return the session's events of one type in the minutes before the moment, newest first.

    Of a recorded moment only what came before it. `tool_input` is an input as events hold it, with which theirs are
    compared as a whole where it is too long to be read.
    """
    if not all(map(is_storable_text, [moment.session_id, *tools])):
        return []
    made_us = instants.instant_to_microseconds(moment.made_at)
    parameters: list[Any] = [moment.session_id, made_us - minutes * MINUTE_US]
    before = ""
    if moment.event_id is not None:
        before = " AND instant_us <= %s AND event_id < %s"
        parameters += [made_us, moment.event_id]
    equal = "e.tool_input = %s" if len(tool_input) > LONGEST_TEXT else "1 = 0"
    of_tool = f" AND e.tool_name IN ({', '.join(['%s'] * len(tools))})" if tools else ""
    sql = (
        "SELECT c.tool_use_id, e.tool_name, substr(e.error, 1, %s),"  # noqa: S608 - names of ours
        f" CASE WHEN length(e.tool_input) <= %s THEN e.tool_input END, {equal}"
        " FROM (SELECT event_id, tool_use_id, instant_us FROM event_context"
        f" WHERE session_id = %s AND instant_us >= %s{before}"
        f" ORDER BY instant_us DESC, event_id DESC LIMIT {MOST_EVENTS}) c"
        f" JOIN events e ON e.id = c.event_id WHERE e.event_type = %s{of_tool}"
        f" ORDER BY c.instant_us DESC, e.id DESC LIMIT {MOST_ROWS}"
    )
    long_texts = [tool_input] if len(tool_input) > LONGEST_TEXT else []
    with connection.cursor() as cursor:
        cursor.execute(sql, [LONGEST_TEXT, LONGEST_TEXT, *long_texts, *parameters, event_type, *tools])
        return [SessionEvent(*row) for row in cursor.fetchall()]


def find_hosts_approved_in_project(hosts: frozenset[str], moment: TimedCall) -> frozenset[str]:
    """Return those of the hosts that a person approved a call to in the session's project, before a recorded moment."""
    folder = load_project_folder_or_default(moment.session_id, moment.folder)
    known_rows = KnownHost.objects.filter(folder=folder, host__in=sorted(hosts)[:MOST_HOSTS])
    if moment.event_id is not None:
        known_rows = known_rows.filter(approved_at__lt=moment.made_at)
    return frozenset(known_rows.values_list("host", flat=True))


def load_project_folder_or_default(session_id: str | None, folder: str | None) -> str:
    """Return the folder of a session's project, else where the call is made; "" where neither is known."""
    stored = None
    if session_id and is_storable_text(session_id):
        stored = Session.objects.filter(pk=session_id).values_list("project_dir", flat=True).first()
    return (stored or folder or "").rstrip("/")
