"""Is our answer the recorded one? The same fields with the same values, but for clocks, row ids and the named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d)?")
# Rows are told apart by these; a list of rows is compared row by row.
KEYS = ("run_id", "session_id", "runner_id", "name")
# Not compared by value: row numbers, ages and how long this server's polls are.
# The count has our starts in it.
VARYING = {"id", "events_count", "seconds_since_heartbeat", "poll_timeout_seconds", "timeout_at"}
STARTS = {"session_start", "run_start"}
# Set where the original never did (a resumed session says when), or sooner than it did.
MAY_BE_SET = {"last_resumed_at", "claimed_at", "runner_id", "started_at"}


def differences(recorded: Any, ours: Any, at: str = "") -> Iterator[str]:
    """Yield what of the recorded answer is missing or different in ours; what ours has beside is no difference."""
    if isinstance(recorded, dict):
        yield from _of_objects(recorded, ours, at)
    elif isinstance(recorded, list):
        yield from _of_lists(recorded, ours, at)
    elif isinstance(recorded, str) and TIME.fullmatch(recorded):
        if not isinstance(ours, str) or not TIME.fullmatch(ours):
            yield f"{at}: {ours!r} is no time"
    elif recorded != ours or isinstance(recorded, bool) != isinstance(ours, bool):
        yield f"{at}: recorded {recorded!r}, ours {ours!r}"


def _of_objects(recorded: dict[str, Any], ours: Any, at: str) -> Iterator[str]:
    if not isinstance(ours, dict):
        yield f"{at}: recorded an object, ours {ours!r}"
        return
    for name, value in recorded.items():
        place = f"{at}.{name}"
        if name not in ours:
            yield f"{place}: missing"
        elif name in VARYING and value is not None:
            if type(value) is not type(ours[name]) and not isinstance(ours[name], int | float):
                yield f"{place}: recorded {value!r}, ours {ours[name]!r}"
        elif not (name in MAY_BE_SET and value is None):
            yield from differences(value, ours[name], place)


def _of_lists(recorded: list[Any], ours: Any, at: str) -> Iterator[str]:
    if not isinstance(ours, list):
        yield f"{at}: recorded a list, ours {ours!r}"
    elif recorded and isinstance(recorded[0], dict) and (key := _key_of(recorded[0])):
        rows = {row.get(key): row for row in ours if isinstance(row, dict)}
        for row in recorded:
            if row[key] in rows:
                yield from differences(row, rows[row[key]], f"{at}[{row[key]}]")
            else:
                yield f"{at}: no {row[key]}"
    elif recorded and isinstance(recorded[0], dict) and "event_type" in recorded[0]:
        yield from _of_events(recorded, ours, at)
    elif len(recorded) != len(ours):
        yield f"{at}: recorded {len(recorded)} entries, ours {len(ours)}"
    else:
        for n, (one, other) in enumerate(zip(recorded, ours, strict=True)):
            yield from differences(one, other, f"{at}[{n}]")


def _of_events(recorded: list[dict[str, Any]], ours: list[dict[str, Any]], at: str) -> Iterator[str]:
    """Our coordinator writes the start of every run, and the executor's own word of it is not kept beside."""
    theirs = [event for event in recorded if event["event_type"] not in STARTS]
    rest = [event for event in ours if event["event_type"] not in STARTS]
    if len(ours) - len(rest) < len(recorded) - len(theirs):
        yield f"{at}: a start is missing"
    if len(rest) != len(theirs):
        yield f"{at}: recorded {len(theirs)} events, ours {len(rest)}"
    for one, other in zip(theirs, rest, strict=False):
        yield from differences(one, other, f"{at}[{one['id']}]")


def _key_of(row: dict[str, Any]) -> str | None:
    if "event_type" in row:
        return None
    return next((key for key in KEYS if key in row), None)
