"""A database full of sessions and events, written straight into the tables: a million events within minutes.

The words are made for the hard questions: one that is everywhere, two that are common and never meet, one that
only old events have, many that begin alike, and a few that are rare.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, islice
from random import Random
from typing import Any

from coordinator.lib import instants
from coordinator.models import Change, Event, EventContext, Session

LONG = "ses_ffffffffffff"  # the session that has a tenth of all events
IDLE_AGENT = "idle"  # its sessions have no events
BATCH = 5_000
RARE_EVERY = 100_003  # events
DAYS = 90
WORDS = 30_000
HOT = "/srv/projects/1/src/settings.py"  # the file that very many calls touch
BEGINNING = "ident"  # so begin 3,000 of the words, and most events have one of them
TOOLS = ("Bash", "Read", "Edit", "Grep", "mcp__tickets__search")


@dataclass(frozen=True, slots=True)
class Size:
    """How much to write."""

    sessions: int
    events: int

    @property
    def long_session(self) -> int:
        """How many of the events are one session's."""
        return self.events // 10


def fill(size: Size, now: datetime, say: Callable[[str], object]) -> None:
    """Write sessions and events that end at `now` into an empty database."""
    dice = Random(7)
    sentences = _sentences(dice)
    for rows in _batches(_sessions(size, now)):
        Session.objects.bulk_create(rows)
    say(f"{size.sessions:,} sessions")
    written = 0
    for batch in _batches(_events(size, now, dice, sentences)):
        events = Event.objects.bulk_create(batch)
        EventContext.objects.bulk_create(_context(event) for event in events)
        written += len(events)
        if written % (BATCH * 20) == 0:
            say(f"{written:,} events")
            Change.objects.all()._raw_delete(Change.objects.db)


def _batches(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(rows, BATCH)):
        yield batch


def _name(number: int) -> str:
    return LONG if number == 0 else f"ses_{number:012x}"


def _sessions(size: Size, now: datetime) -> Iterator[Session]:
    statuses = ["finished"] * 45 + ["error"] * 3 + ["stopped", "running"]
    for number in range(size.sessions):
        agent = IDLE_AGENT if number % 1000 == 999 else f"agent-{number % 19}"
        yield Session(
            session_id=_name(number),
            status="finished" if number == 0 else statuses[number % len(statuses)],
            created_at=now - timedelta(days=DAYS) * (1 - number / size.sessions),
            agent_name=agent,
            hostname=f"host-{number % 31}",
            project_dir=f"/srv/projects/{number % 57}",
            parent_session_id=_name(number - 1) if number % 20 == 7 else None,
        )


def _events(size: Size, now: datetime, dice: Random, sentences: list[str]) -> Iterator[Event]:
    span = timedelta(days=DAYS) / size.events
    for number in range(size.events):
        at = instants.format_canonical_instant(now - timedelta(days=DAYS) + span * number)
        if number % 10 == 5:
            session = LONG
        else:
            place = 1 + (number * (size.sessions - 1)) // size.events
            session = _name(place - 1 if place % 1000 == 999 else place)
        text = " ".join(dice.choices(sentences, k=2 + number % 5))
        text += " everywhere" + (" evening" if number % 2 else " oddly")
        if number % 2 == 0 and number < size.events * 3 // 10:
            text += " yesteryear"
        if number % RARE_EVERY == 17:
            text += " needle in a haystack"
        yield _event(session, at, number, text)


def _event(session: str, at: str, number: int, text: str) -> Event:
    kind = number // 10 % 4
    tool = TOOLS[number // 40 % len(TOOLS)]
    row = Event(session_id=session, timestamp=at)
    if kind == 0:
        row.event_type, row.role = "message", "user" if number % 8 == 0 else "assistant"
        row.content = [{"type": "text", "text": text}]
    elif kind in (1, 3):
        row.event_type, row.tool_name = "pre_tool", tool
        row.tool_input = _input(tool, number, text)
    else:
        row.event_type, row.tool_name = "post_tool", tool
        row.tool_input, row.tool_output = _input(tool, number, text), {"stdout": text}
        if number % 47 == 0:
            row.error = "the command failed with exit status 1"
    return row


def _input(tool: str, number: int, text: str) -> dict[str, str]:
    """Return a call's input; every hundredth file of those that are read or edited is the HOT one."""
    if tool not in ("Read", "Edit"):
        return {"command": text[:200]}
    place = number // 10
    path = (
        HOT
        if place % 100 == 3
        else f"/srv/projects/{place % 57}/src/{text.split(maxsplit=1)[0]}_{place % 7}.py"
    )
    return {"file_path": path, "old_string": text[:100], "new_string": text[:120]}


def _context(event: Event) -> EventContext:
    at = instants.parse_instant_or_none(event.timestamp)
    assert at is not None
    return EventContext(
        event_id=event.pk,
        session_id=event.session_id,
        instant_us=instants.instant_to_microseconds(at),
        received_at=at,
    )


def _sentences(dice: Random) -> list[str]:
    """Return sentences of words that are as unevenly common as those of a language."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = ["".join(dice.choices(syllables, k=dice.randint(2, 4))) for _ in range(WORDS)]
    words[5::10] = [f"{BEGINNING}{word}" for word in words[5::10]]
    weights = list(accumulate(1 / (rank + 3) for rank in range(WORDS)))
    return [" ".join(dice.choices(words, cum_weights=weights, k=dice.randint(8, 25))) for _ in range(40_000)]


def as_told() -> str:
    """Return what the corpus holds, for the table's head."""
    return json.dumps({"events": Event.objects.count(), "sessions": Session.objects.count()})
