"""Keeping up what sessions use by day and model, in the transaction that writes their events.

So a budget is asked about with a sum of few rows, however many events there are, and the sum is that of the events.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection

from coordinator.engine import bulk, round_trips
from coordinator.lib import instants
from coordinator.models import UsageDay
from coordinator.runs.offers import PROGRAMS
from coordinator.sessions.events import CONTEXT_COLUMNS, EVENT_COLUMNS
from coordinator.sessions.prices import KINDS, MOST_TOKENS

CALL = "pre_tool"
UNKNOWN_MODEL = "unknown"
# Whose a session is: who ordered it on a page, else who made the key that began it.
OWNER = (
    "coalesce((SELECT o.person FROM session_owners o WHERE o.session_id = s.session_id),"
    " (SELECT substr(k.created_by, 6) FROM session_writers w JOIN api_keys k ON k.name = w.writer"
    " WHERE w.session_id = s.session_id AND substr(k.created_by, 1, 5) = 'user:'"
    " ORDER BY w.is_runner, w.id LIMIT 1))"
)
# Its agent's program, as sessions.driving.program_of says it: where a runner drives the agent, the session names the
# runner's profile, and calls are asked about, and held, by the agent's program.
_RENAMED = " ".join(f"WHEN '{name}' THEN '{program}'" for name, program in PROGRAMS.items())
DRIVEN_PROGRAM = (
    f"(SELECT CASE d.agent {_RENAMED} ELSE d.agent END"  # noqa: S608 - names of ours
    " FROM driven_sessions d WHERE d.session_id = {session_id})"
)
_TOKENS = tuple(f"{kind}_tokens" for kind in KINDS)
_COUNTED = ("calls", *_TOKENS)
_GIVEN = ("session_id", "day", "model", *_COUNTED)
_TYPES = ("text", "text", "text", *["bigint"] * len(_COUNTED))
_TYPE = EVENT_COLUMNS.index("event_type")
_SESSION, _RECEIVED, _MODEL = map(CONTEXT_COLUMNS.index, ("session_id", "received_at", "model"))
_OUTPUT = CONTEXT_COLUMNS.index("output_tokens")
_AT = tuple(map(CONTEXT_COLUMNS.index, _TOKENS))


def add_usage_counts(rows: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> None:
    """Add what these events (their columns, their contexts' columns) say was used. Call it where they are written.

    A call counts when it is made, whatever is decided. The gateway writes one only where its agent told nothing of it.
    """
    sums: dict[tuple[str, str, str], list[int]] = {}
    for event, context in rows:
        has_tokens = context[_OUTPUT] is not None  # 0 at least, where others are told
        if event[_TYPE] != CALL and not has_tokens:
            continue
        model = (context[_MODEL] or UNKNOWN_MODEL) if has_tokens else ""
        day = instants.local_day(context[_RECEIVED], settings.LOCAL_ZONE)
        counts = sums.setdefault((context[_SESSION], day, model), [0] * (1 + len(_AT)))
        counts[0] += event[_TYPE] == CALL
        if has_tokens:
            for place, at in enumerate(_AT, 1):
                counts[place] += min(max(context[at] or 0, 0), MOST_TOKENS)
    if sums:
        given, parameters = bulk.rows_select_sql(
            [[*key, *counts] for key, counts in sorted(sums.items())], *_TYPES
        )
        with round_trips.planning_cursor() as cursor:
            cursor.execute(build_usage_upsert(given), parameters)


def correct_usage_programs(now: datetime) -> None:  # noqa: ARG001 - the shape of a job
    """Put right whose sums are that were written before it was known which agent a runner drives there."""
    known = DRIVEN_PROGRAM.format(session_id="u.session_id")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT u.id, {known} FROM usage_days u"  # noqa: S608 - names of ours
            f" WHERE coalesce(u.program, '') <> coalesce({known}, u.program, '')"
        )
        wrong = cursor.fetchall()
    for row_id, program in wrong:  # each by itself: who writes events waits for one row at most
        UsageDay.objects.filter(pk=row_id).update(program=program)


@functools.cache
def build_usage_upsert(given: str) -> str:
    sums = [f"{name} = usage_days.{name} + excluded.{name}" for name in _COUNTED]
    # Whose a session is may be known only later in the day; what is known is not forgotten.
    sums += [f"{name} = coalesce(usage_days.{name}, excluded.{name})" for name in ("agent", "person")]
    sums += [
        "program = coalesce(excluded.program, usage_days.program)"
    ]  # which agent is driven is told later, too
    program = f"coalesce({DRIVEN_PROGRAM.format(session_id='s.session_id')}, s.executor_profile)"
    return (
        f"WITH given ({', '.join(_GIVEN)}) AS ({given})"  # noqa: S608 - names of ours
        f" INSERT INTO usage_days (day, session_id, model, agent, program, person, {', '.join(_COUNTED)})"
        f" SELECT g.day, g.session_id, g.model, s.agent_name, {program}, {OWNER},"
        f" {', '.join(f'g.{name}' for name in _COUNTED)}"
        " FROM given g JOIN sessions s ON s.session_id = g.session_id WHERE true"
        f" ORDER BY g.session_id, g.day, g.model ON CONFLICT (day, session_id, model) DO UPDATE SET {', '.join(sums)}"
    )
