"""Three servers on one PostgreSQL behind a balancer, while they are killed, replaced by newer versions and cut off.

    python -m tests.bench.servers                       # ten minutes
    python -m tests.bench.servers --seconds 90 --between 2 --proxy haproxy

A SQLite installation with the demo's history and files is moved to PostgreSQL and S3, and three servers start on it
behind nginx or HAProxy, with the files in `.deploy/`. PostgreSQL is a primary and its synchronous standby, both started
here; or the one that DATABASE_URL names (whose user may make databases and end connections; it is then cut off and only
reads, but does not fail over). Through the balancer go: events that are posted one by one, streams that follow them,
runners that take runs, the runner's own program with agents that work and ask, programs that ask for permission and
wait, calls of tools through the gateway that wait for a person, files, and people who decide, each question as a plan
says; about some nobody decides. Meanwhile, one after the other: a server is replaced by its newer version, which has a
migration more, so that two versions work side by side; a server is killed with all its workers and started again; all
connections of the database are cut; the database only reads; a worker is killed; the other balancer takes the first
one's place; the database lets nobody in; it is killed, and its standby takes over.

What is counted at the end must all be nothing: events that were acknowledged and are not there once, events that a
stream missed or heard twice, runs taken twice or without an end, agents who are told otherwise than they spoke,
verdicts that were not heard, against the plan or of nobody, approvals whose call did not run exactly once, calls that
ran without, files that do not come back as they were, what `audit verify` and `doctor` find broken, answers that were
neither good nor a 503 of ours with its Retry-After, and refusals, breaks and the balancer's own 502 while there was no
trouble. Exits with 1 where something is not nothing.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import django

from tests.bench.servers import faults, work
from tests.bench.servers.balancer import KINDS, Balancer
from tests.bench.servers.installation import SERVERS, Versions, bucket, moved_in, serving
from tests.bench.servers.ledger import Ledger, Load, guarded
from tests.bench.servers.people import decide
from tests.bench.servers.postgres import Given, Pair
from tests.bench.servers.troubles import GRACE, Troubles
from tests.gateway.agents import AGENT, furnish, grant
from tests.gateway.example_server import running as example_running
from tests.live.connections import make_session
from tests.served import free_port, postgres_url

CALM = 120.0  # seconds at most, for all to come to its end afterwards


def main() -> int:
    """Build it all, and say whether nothing was lost, doubled or wrongly allowed."""
    options = arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-servers-")))
        database = postgres(stack, folder)
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
        django.setup()  # for what the gateway's tests know of keys
        logging.disable(logging.INFO)
        s3 = stack.enter_context(bucket())
        template, files = moved_in(folder, s3)
        stack.callback(template.drop)
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        example = stack.enter_context(example_running())
        servers = stack.enter_context(serving(template, folder, SERVERS, url, s3))
        if options.logs:
            stack.callback(keep_logs, folder, options.logs)
        database.name = servers[0].database
        balancer = Balancer(options.proxy, folder, port, servers)
        stack.callback(balancer.stop)
        load = Load(url, servers[0], example)
        load.ledger.files |= files
        stack.enter_context(work.runner(load, folder))
        troubles = Troubles(servers, balancer, database, Versions(folder))
        found = run(load, troubles, options, folder)
        tell(load.ledger, troubles, options.seconds, found)
        excused = {faults.UNTROUBLED} if options.shared else set()
        return 1 if any(items for name, items in found.items() if name not in excused) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.servers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=600, help="how long there is trouble (600)")
    parser.add_argument(
        "--between", type=float, default=GRACE + 4,
        help=f"seconds of peace between two troubles ({GRACE + 4:.0f}); what is refused later than {GRACE:.0f} s"
        " after one is a fault",
    )  # fmt: skip
    parser.add_argument("--proxy", choices=KINDS, default="nginx", help="which balancer begins")
    parser.add_argument(
        "--shared", action="store_true",
        help="other programs keep this machine busy: what is refused while there is no trouble is told, and no fault",
    )  # fmt: skip
    parser.add_argument("--logs", type=Path, help="a folder to keep the servers' logs in")
    return parser.parse_args()


def postgres(stack: ExitStack, folder: Path) -> Given:
    """Return the PostgreSQL that DATABASE_URL names, or start one with a standby and have DATABASE_URL name it."""
    if postgres_url() is not None:
        return Given()
    folder.chmod(0o755)  # PostgreSQL works in it as a user of its own
    pair = Pair(folder / "postgresql")
    stack.callback(pair.close)
    os.environ["DATABASE_URL"] = pair.url
    return pair


def keep_logs(folder: Path, logs: Path) -> None:
    """Copy what servers and the runner said."""
    logs.mkdir(exist_ok=True, parents=True)
    for log in folder.glob("server-*/server.log"):
        shutil.copy(log, logs / f"{log.parent.name}.log")
    shutil.copy(folder / "runner.log", logs)


def run(load: Load, troubles: Troubles, options: argparse.Namespace, folder: Path) -> faults.Found:
    """Put the load on, make the troubles, let all come to its end, and return what was found."""
    since = datetime.now(UTC).isoformat(timespec="microseconds")
    make_session(load.database, work.SESSION)
    furnish(load.database, load.example.url)
    grant(load.database, AGENT, "write", "ask")
    load.database.sql(
        "INSERT INTO agents (id, name, description, default_engine_id) VALUES (?, 'A', '', 'x')", (AGENT,)
    )
    load.ledger.heard = [[], []]
    go_on = [partial(work.follow, load, heard) for heard in load.ledger.heard]
    go_on += [partial(work.run_runs, load, nth) for nth in range(2)]
    go_on += [partial(decide, load, name, since) for name in ("approver", "approver2")]
    at_work = [guarded(load, one) for one in go_on]
    work.be_heard(load)
    begin = [partial(work.post_events, load, nth) for nth in range(3)]
    begin += [partial(work.order_runs, load), partial(work.send_files, load)]
    begin += [partial(work.ask, load, nth) for nth in range(4)]
    begin += [partial(work.call_tools, load, 10 + nth, stateless=nth > 0) for nth in range(3)]
    begin += [partial(work.drive, load, 20 + nth, folder) for nth in range(2)]
    beginning = [guarded(load, one) for one in begin]
    try:
        troubles.go_on(time.monotonic() + options.seconds, options.between)
    except Exception as problem:  # what was found until then is told
        load.ledger.failed.append(f"troubles: {problem!r:.400}")
    load.enough.set()
    deadline = time.monotonic() + CALM
    for thread in beginning:
        thread.join(max(deadline - time.monotonic(), 0))
    while faults.unsettled(found := faults.all_faults(load, troubles)) and time.monotonic() < deadline:
        time.sleep(1)
    found |= faults.damaged_files(load)
    load.over.set()
    for thread in at_work:
        thread.join(10)
    return found | faults.broken(troubles.servers)


def tell(ledger: Ledger, troubles: Troubles, seconds: float, found: faults.Found) -> None:
    """Print the figures, and the first of each kind of fault."""
    figures: dict[str, float] = {
        "seconds": round(seconds),
        **{name.replace("_", " "): times for name, times in troubles.happened.items()},
        "versions": len(troubles.versions.roots),
        "events acknowledged": len(ledger.acknowledged),
        "the longest until one was, in seconds": round(ledger.slowest, 1),
        "events that two streams heard": sum(map(len, ledger.heard)),
        "runs taken": len(ledger.taken),
        "sessions of agents that the runner drove": len(ledger.driven),
        "requests that heard their verdict": len(ledger.told),
        "tool calls that were approved or denied": len(ledger.called),
        "requests that nobody decided": len(ledger.left),
        "files": len(ledger.files),
        "answers refused and lines broken, while there was trouble": sum(
            troubles.excused(at) for at, _ in ledger.refused
        ),
        **{name: len(items) for name, items in found.items()},
    }
    print("\n| what | count |\n|---|---:|")
    for name, figure in figures.items():
        print(f"| {name} | {figure} |")
    print("\nanswers:", dict(ledger.answers.most_common()))
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, load at the end {os.getloadavg()}")
    for name, items in found.items():
        for item in items[:5]:
            print(f"{name}: {item}")


if __name__ == "__main__":
    sys.exit(main())
