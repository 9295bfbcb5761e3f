"""Workers and sealers are killed (kill -9) under load: does the audit log keep every entry, without a gap?

    python -m tests.bench.audit_kills --kills 50            # on PostgreSQL: with DATABASE_URL, as the tests

Starts a server of its own. Three clients ask for permissions without a pause; each question writes an audit entry. In
each round `manage.py audit seal` runs, and a worker is killed at a random moment; in every second round the one who
seals is killed as well. At the end the log must have every entry that was acknowledged, numbered without a gap, and
continue every checkpoint that was ever sent to a file outside of the database. Exits with 1 if not.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.served import ROOT, Served, manage, running, shared_template

BACK_WITHIN = 60.0  # seconds for a new worker
UNLOGGED = "SELECT count(*) FROM audit_logs WHERE id NOT IN (SELECT audit_id FROM audit_leaves)"


@dataclass
class Asker:
    """A client that asks for permission again and again, and notes which questions were acknowledged."""

    client: httpx.Client
    name: str
    done: threading.Event
    pause: float  # seconds between two questions
    acknowledged: list[str] = field(default_factory=list)

    def run(self) -> None:
        number = 0
        while not self.done.wait(self.pause):
            body = {
                "plugin_id": "p",
                "permission_type": "FileRead",
                "target_resource": f"/{self.name}/{number}",
                "justification": "To look",
            }
            number += 1
            with contextlib.suppress(httpx.TransportError):
                answer = self.client.post("/api/permission-requests", json=body)
                if answer.is_success:
                    self.acknowledged.append(answer.json()["request_id"])


@dataclass
class Outcome:
    """What was left after the killing; `problems` is empty where the log is whole."""

    kills: int = 0
    entries: int = 0
    checkpoints: int = 0
    acknowledged: int = 0
    problems: list[str] = field(default_factory=list)


def killed_under_load(served: Served, outside: Path, kills: int, *, pause: float = 0) -> Outcome:
    """Kill `kills` times, and look. The server sends its checkpoints to the file `outside`."""
    done = threading.Event()
    askers = [Asker(served.client("agent"), name, done, pause) for name in ("a", "b", "c")]
    threads = [threading.Thread(target=asker.run) for asker in askers]
    for thread in threads:
        thread.start()
    found = Outcome()
    try:
        for number in range(kills):
            kill_once(served, also_the_sealer=number % 2 == 1)
            found.kills += 1
            problem = gap(served)
            found.problems += [f"After kill {found.kills}: {problem}"] if problem else []
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    manage("audit", "seal", env=served.env)
    look_at(served, outside, askers, found)
    return found


def kill_once(served: Served, *, also_the_sealer: bool) -> None:
    """Kill a worker while the log is being sealed, and wait for its successor."""
    sealer = subprocess.Popen(
        [sys.executable, "manage.py", "audit", "seal"],
        cwd=ROOT, env=served.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    time.sleep(random.uniform(0, 3))
    killed = served.kill_worker()
    if also_the_sealer:
        sealer.kill()
    said = sealer.communicate(timeout=120)[0]
    assert also_the_sealer or sealer.returncode == 0, said
    deadline = time.monotonic() + BACK_WITHIN
    while killed in served.worker_pids() or len(served.worker_pids()) < served.workers:
        assert time.monotonic() < deadline, "no new worker came"
        time.sleep(0.02)


def gap(served: Served) -> str:
    """Say in words what is wrong with the numbers of the leaves, if anything."""
    ((entries, highest),) = served.sql("SELECT count(*), max(leaf_index) FROM audit_leaves")
    return "" if highest == entries - 1 else f"{entries} entries, and the highest has number {highest}"


def look_at(served: Served, outside: Path, askers: list[Asker], found: Outcome) -> None:
    """Note what is in the log and what is wrong with it."""
    ((found.entries,),) = served.sql("SELECT count(*) FROM audit_leaves")
    words = ["--checkpoint", str(outside)] if outside.exists() else []
    checked = subprocess.run(
        [sys.executable, "manage.py", "audit", "verify", *words],
        cwd=ROOT, env=served.env, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if "Nothing was changed." not in checked.stdout:
        found.problems.append(checked.stdout + checked.stderr)
    found.checkpoints = outside.read_text().count("\n\n") if outside.exists() else 0
    for statement, problem in (
        (UNLOGGED, "{} audit rows are not in the log"),
        ("SELECT count(*) FROM audit_leaves WHERE NOT by_signalbox", "{} entries have no hash of ours"),
        ("SELECT count(*) FROM audit_leaves WHERE leaf_index IS NULL", "{} entries have no number"),
    ):
        ((number,),) = served.sql(statement)
        if number:
            found.problems.append(problem.format(number))
    logged = {
        target for (target,) in served.sql("SELECT target_id FROM audit_logs WHERE target_id IS NOT NULL")
    }
    acknowledged = [one for asker in askers for one in asker.acknowledged]
    found.acknowledged = len(acknowledged)
    if lost := [one for one in acknowledged if one not in logged]:
        found.problems.append(f"{len(lost)} acknowledged questions have no entry")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="signalbox-kills-") as name:
        folder, outside = Path(name), Path(name) / "outside"
        with (
            shared_template(folder / "template") as template,
            running(
                template,
                folder / "server",
                SIGNALBOX_MAX_PENDING_REQUESTS="1000000",
                SIGNALBOX_AUDIT_CHECKPOINTS=f"file:{outside}",
            ) as served,
        ):
            began = time.monotonic()
            found = killed_under_load(served, outside, given.kills)
    print(
        f"{found.kills} kills in {time.monotonic() - began:.0f} s: {found.entries:,} entries, {found.acknowledged:,} "
        f"acknowledged questions, {found.checkpoints:,} checkpoints outside."
    )
    print("\n".join(found.problems) or "No gap, nothing lost, and every checkpoint is continued.")
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
