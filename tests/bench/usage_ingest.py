"""What does it cost to count what events used? One server, the same events in turns with tokens and without.

    python -m tests.bench.usage_ingest --rounds 8 --seconds 4      # on PostgreSQL: with DATABASE_URL, as the tests

Eight connections post requests to a model, one event a request. Those with tokens get a row of `usage_requests` with
its price, and are added to the sums of their day. Prints the processor time of an event (server's processes;
PostgreSQL's own for that database included) and events a second, the middle of all rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.audit_ingest import made_sessions, processor_seconds
from tests.served import Served, running, shared_template

TOKENS = {
    "input_tokens": 900,
    "output_tokens": 350,
    "cache_read_tokens": 42_000,
    "cache_write_tokens": 1_200,
}


@dataclass
class EventKind:
    """Events of one kind and what its rounds cost: seconds of the processor and of the clock an event."""

    name: str
    tokens: dict[str, int]
    processor: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)

    def body(self, session: str) -> bytes:
        event = {
            "event_type": "model_request",
            "session_id": session,
            "timestamp": datetime.now(UTC).isoformat(),
            "model": "claude-opus-4-6",
            "source": "executor",
        }
        return json.dumps(event | self.tokens).encode()


def post_events(served: Served, kind: EventKind, session: str, until: float, counts: list[int]) -> None:
    number, headers = 0, {"Content-Type": "application/json"}
    with served.client("all") as client:
        while time.monotonic() < until:
            answer = client.post(f"/sessions/{session}/events", content=kind.body(session), headers=headers)
            answer.raise_for_status()
            number += 1
    counts.append(number)


def measure(served: Served, kind: EventKind, sessions: list[str], seconds: float, *, keep: bool) -> None:
    until, counts = time.monotonic() + seconds, list[int]()
    posters = [
        threading.Thread(target=post_events, args=(served, kind, session, until, counts))
        for session in sessions
    ]
    began, before = time.monotonic(), processor_seconds(served)
    for thread in posters:
        thread.start()
    for thread in posters:
        thread.join()
    took, cost = time.monotonic() - began, processor_seconds(served) - before
    if keep and sum(counts):
        kind.processor.append(cost / sum(counts))
        kind.clock.append(took / sum(counts))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    kinds = [EventKind("with tokens", TOKENS), EventKind("without", {})]
    with tempfile.TemporaryDirectory(prefix="signalbox-usage-") as name:
        folder = Path(name)
        with (
            shared_template(folder / "template") as template,
            running(template, folder / "served") as served,
        ):
            sessions = made_sessions(served)
            for number in range(options.rounds + 1):  # the first is for warming up
                for kind in kinds if number % 2 else reversed(kinds):
                    measure(served, kind, sessions, options.seconds, keep=number > 0)
            ((counted,),) = served.sql("SELECT count(*) FROM usage_requests")
    print("| events | processor µs an event | events a second |\n|---|---:|---:|")
    for kind in kinds:
        middle = statistics.median(kind.processor) * 1e6
        print(f"| {kind.name} | {middle:.0f} | {1 / statistics.median(kind.clock):.0f} |")
    counting, plain = kinds
    ratios = [more / less for more, less in zip(counting.processor, plain.processor, strict=True)]
    print(
        f"\nProcessor time with tokens: {statistics.median(ratios):.2f} times that without, in the middle pair of"
        f" rounds ({min(ratios):.2f} to {max(ratios):.2f}). Requests counted: {counted:,}."
    )


if __name__ == "__main__":
    main()
