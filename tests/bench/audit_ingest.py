"""Does the audit log's tree slow ingest? Two servers in one run, in turns: one seals, the other has no leaves to seal.

    python -m tests.bench.audit_ingest --rounds 10 --seconds 8      # on PostgreSQL: with DATABASE_URL, as the tests

Both get the same events on eight connections, and one permission request a second, so that there is something to seal
each minute. On the other server the trigger that makes leaves is taken down. Prints the processor time of an event
(server's processes; PostgreSQL's own for that database included) and events a second, the middle of all rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.bench.measures import event_body
from tests.served import Served, children_of, postgres_url, running, shared_template

CONNECTIONS = 8
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Side:
    """One server and what its rounds cost: seconds of the processor and of the clock an event."""

    name: str
    served: Served
    processor: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)


def processor_seconds(served: Served) -> float:
    """Return what the server's processes have used, and PostgreSQL's backends for its database."""
    assert served.process is not None
    pids = [served.process.pid, *descendants(served.process.pid)]
    if postgres_url():
        found = served.sql("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        pids += [pid for (pid,) in found]
    return sum(used(pid) for pid in pids)


def descendants(pid: int) -> list[int]:
    return [one for child in children_of(pid) for one in (child, *descendants(child))]


def used(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0


def post_events(served: Served, session: str, until: float, counts: list[int]) -> None:
    body, number = event_body(session), 0
    with served.client("all") as client:
        while time.monotonic() < until:
            answer = client.post(
                f"/sessions/{session}/events", content=body, headers={"Content-Type": "application/json"}
            )
            answer.raise_for_status()
            number += 1
    counts.append(number)


def ask(served: Served, until: float, number: int) -> None:
    with served.client("agent") as client:
        while time.monotonic() < until:
            number += 1
            body = {
                "plugin_id": "p",
                "permission_type": "FileRead",
                "target_resource": f"/{time.time_ns()}",
                "justification": "To look",
            }
            with suppress(httpx.HTTPError):
                client.post("/api/permission-requests", json=body)
            time.sleep(1)


def measure(side: Side, sessions: list[str], seconds: float, *, keep: bool) -> None:
    until, counts = time.monotonic() + seconds, list[int]()
    posters = [
        threading.Thread(target=post_events, args=(side.served, one, until, counts)) for one in sessions
    ]
    asker = threading.Thread(target=ask, args=(side.served, until, 0))
    began, before = time.monotonic(), processor_seconds(side.served)
    for thread in (*posters, asker):
        thread.start()
    for thread in posters:
        thread.join()
    took, cost = time.monotonic() - began, processor_seconds(side.served) - before
    asker.join()
    if keep and sum(counts):
        side.processor.append(cost / sum(counts))
        side.clock.append(took / sum(counts))


def made_sessions(served: Served) -> list[str]:
    """Start sessions by orders for them, as any client does."""
    client, names = served.client("all"), []
    for _ in range(CONNECTIONS):
        run = (
            client.post("/runs", json={"type": "start_session", "prompt": "bench"}).raise_for_status().json()
        )
        client.post(f"/runs/{run['run_id']}/stop")
        names.append(str(run["session_id"]))
    return names


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=8.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="signalbox-ingest-") as name:
        folder = Path(name)
        more = {"SIGNALBOX_MAX_PENDING_REQUESTS": "1000000"}
        with (
            shared_template(folder / "template") as template,
            running(template, folder / "sealing", **more) as sealing,
            running(template, folder / "without", **more) as without,
        ):
            table = " ON audit_logs" if postgres_url() else ""
            without.sql(f"DROP TRIGGER sbx_audit_leaf{table}")
            sides = [Side("sealing", sealing), Side("without leaves", without)]
            sessions = {side.name: made_sessions(side.served) for side in sides}
            for number in range(given.rounds + 1):  # the first is for warming up
                for side in sides if number % 2 else reversed(sides):
                    measure(side, sessions[side.name], given.seconds, keep=number > 0)
            ((sealed,),) = sealing.sql("SELECT count(*) FROM audit_checkpoints")
    print("| server | processor µs an event | events a second |\n|---|---:|---:|")
    for side in sides:
        print(
            f"| {side.name} | {statistics.median(side.processor) * 1e6:.0f} | {1 / statistics.median(side.clock):.0f} |"
        )
    one, other = sides
    pairs = [with_it / out for with_it, out in zip(one.processor, other.processor, strict=True)]
    print(
        f"\nProcessor time with sealing: {(statistics.median(pairs) - 1) * 100:+.1f} % in the middle pair of rounds "
        f"({min(pairs) * 100 - 100:+.1f} to {max(pairs) * 100 - 100:+.1f}). Checkpoints signed meanwhile: {sealed}."
    )


if __name__ == "__main__":
    main()
