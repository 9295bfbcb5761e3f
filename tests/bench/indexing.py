"""`python -m tests.bench.indexing`: how quickly the search index catches up with a bulk fill, and how large it is.

Works inside, on the empty database that the environment names. It fills it with events like those of a coding
agent (messages, commands with outputs, edits with the file before them, thinking with signatures, pictures), then
runs the job as housekeeping does, slice after slice, and counts.
"""

from __future__ import annotations

import argparse
import base64
import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING:
    from coordinator.models import Event

BATCH = 2_000
WORDS = 20_000


def main() -> None:
    """Fill, index and report."""
    options = arguments()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    django.setup()
    from django.utils import timezone

    from tests.bench import corpus

    before = database_bytes()
    if options.small:
        corpus.fill(corpus.Size(options.events // 20, options.events), timezone.now(), lambda _line: None)
    else:
        fill_like_an_agent(options.events, timezone.now())
    filled = database_bytes()
    started_at, worked = time.monotonic(), time.process_time()
    done = catch_up(options.every)
    took = time.monotonic() - started_at
    print(f"events: {options.events:,}, {(filled - before) / options.events:,.0f} bytes each")
    print(f"indexed: {done:,} in {took:.1f} s, {done / took:,.0f} a second, with housekeeping's pauses")
    print(
        f"processor of this process: {(time.process_time() - worked) / max(1, done) * 1e6:,.0f} µs an event"
    )
    print(f"index: {(database_bytes() - filled) / options.events:,.0f} bytes an event")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.indexing", description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--small", action="store_true", help="events of a few hundred characters (corpus.py)")
    parser.add_argument(
        "--every", type=float, default=2.0, help="seconds from slice to slice, as housekeeping's"
    )
    return parser.parse_args()


def catch_up(every: float) -> int:
    """Run the job as housekeeping does until everything is indexed; return how many events that were."""
    from coordinator.actions import search

    done = 0
    while True:
        began = time.monotonic()
        done += search.index_slice_and_count_events()
        if not search.count_unindexed_events():
            return done
        time.sleep(max(0.0, every - (time.monotonic() - began)))


def database_bytes() -> int:
    """Return how large the database is."""
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        else:
            cursor.execute("SELECT pg_database_size(current_database())")
        return int(cursor.fetchone()[0])


def fill_like_an_agent(number: int, now: datetime) -> None:
    """Write a session with so many events."""
    from coordinator.models import Event, EventContext, Session
    from tests.bench.corpus import _context

    Session.objects.create(session_id="ses_bench", status="finished", created_at=now, agent_name="bench")
    events = iterate_events(number, now)
    for _ in range(0, number, BATCH):
        rows = Event.objects.bulk_create(islice(events, BATCH))
        EventContext.objects.bulk_create(_context(event) for event in rows)


def iterate_events(number: int, now: datetime) -> Iterator[Event]:
    """Yield events in the mix of a coding agent's session."""
    from coordinator.lib import instants
    from coordinator.models import Event

    dice = Random(3)
    words = ["".join(dice.choices("abcdefghiklmnoprstu", k=dice.randint(3, 11))) for _ in range(WORDS)]
    weights = [1 / (rank + 3) for rank in range(WORDS)]
    source = " ".join(dice.choices(words, weights=weights, k=400_000))

    def text(length: int) -> str:
        start = dice.randrange(len(source) - length)
        return source[start : start + length].replace(" and ", "\n")

    for place in range(number):
        at = instants.format_canonical_instant(now - timedelta(seconds=number - place))
        row = Event(session_id="ses_bench", timestamp=at)
        kind = place % 20
        if kind < 4:
            row.event_type, row.role = "message", "assistant" if kind else "user"
            row.content = [{"type": "text", "text": text(300)}]
        elif kind < 6:
            row.event_type, row.role = "message", "assistant"
            signature = base64.b64encode(dice.randbytes(900)).decode()
            row.content = [{"type": "thinking", "thinking": text(600), "signature": signature}]
        elif kind < 13:
            row.event_type, row.tool_name = "pre_tool", "Bash"
            row.tool_input = {"command": text(160), "description": text(40)}
        else:
            row.event_type, row.tool_name = "post_tool", "Bash"
            row.tool_output = outputs(kind, text, dice)
        yield row


def outputs(kind: int, text: Any, dice: Random) -> dict[str, Any]:
    """Return a call's result: an edit's, a picture's, a long or a short output."""
    if kind == 13:
        old, new = text(120), text(140)
        return {
            "filePath": "/srv/app/src/views.py", "oldString": old, "newString": new, "originalFile": text(12_000),
            "structuredPatch": [{"oldStart": 1, "lines": [f"-{old}", f"+{new}"]}],
        }  # fmt: skip
    if kind == 14 and dice.random() < 0.05:
        return {"type": "image", "file": {"base64": base64.b64encode(dice.randbytes(60_000)).decode()}}
    return {"stdout": text(20_000 if dice.random() < 0.03 else 900), "stderr": ""}


if __name__ == "__main__":
    main()
