"""Is this checkout slower than another one? Measures both with the kit, in turns, and shows them side by side.

    git worktree add ../before edce5c2
    python -m tests.bench.before ../before

Each turn starts both servers anew, each with two workers and an empty database of its own: on SQLite, or on the
PostgreSQL that DATABASE_URL names. How fast a server is differs from start to start, by a twentieth and more, so a
few turns of one start would prove nothing. Within a turn they alternate at each measurement, and each waits until the
machine is idle: what a load leaves to do, as the search index, must not meet the next one. Who begins changes with
each turn. The client and its loads are this checkout's for both.

Prints the medians of all turns as one table, and the lowest and highest ratio of a turn. A ratio over 1 means that
this checkout is better. Where the turns lie on both sides of 1, neither is faster.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from tests.bench import machine
from tests.bench.measures import MEASURES, Bench, in_cell
from tests.bench.wire import Target
from tests.served import ROOT, Template, drop_database, free_port, postgres_url, run_on_postgres
from tests.served import Served as Program

MEASURED = ("idle", "dispatch", "runners", "streams", "busy", "single", "hooks", "batch")
SCOPES = ("runner", "agent", "operator", "read")
MORE_IS_BETTER = ("per_second",)
LESS_IS_BETTER = ("p50_ms", "p95_ms", "p99_ms", "kb", "cpu_percent")
Figures = dict[str, dict[str, dict[str, list[float]]]]  # by what is measured, figure and checkout


class Checkout(Program):
    """A server whose program is the one in `root`, on an empty database that it migrates itself."""

    options = ()

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder, self.workers = root, folder, 2
        folder.mkdir()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.database = f"signalbox_before_{uuid.uuid4().hex[:12]}"
        if postgres_url():
            run_on_postgres(f"CREATE DATABASE {self.database}")
        self.env = Template.environment(folder, self.database) | {
            "PYTHONPATH": str(root),  # before an editable installation of the other
            "SIGNALBOX_BIND": f"127.0.0.1:{self.port}",
            "SIGNALBOX_PUBLIC_URL": self.url,
        }
        del self.env["DJANGO_SETTINGS_MODULE"]  # the product's own
        self.log = folder / "server.log"
        self.process = None
        self.clients = []

    def key(self) -> str:
        """Make an API key with all scopes that the kit needs, and return it."""
        words = [f"--scope={scope}" for scope in SCOPES]
        made = subprocess.run(
            [sys.executable, "manage.py", "apikey", "create", "bench", *words],
            cwd=self.root,
            env=self.env,
            check=True,
            capture_output=True,
            text=True,
        )
        return next(word for word in made.stdout.split() if word.startswith("sbx_"))

    def listening(self) -> list[int]:
        """Wait until every worker listens, since one is enough for an answer; return their process ids."""
        deadline = time.monotonic() + self.ready_within
        while len(found := machine.listeners(self.port)) < self.workers:
            assert time.monotonic() < deadline, f"{len(found)} workers listen:\n{self.output()}"
            time.sleep(0.1)
        return found

    def drop(self) -> None:
        """Stop the server and remove its database."""
        self.stop()
        if postgres_url():
            drop_database(self.database)


def main() -> None:
    """Measure in turns, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.before",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("before", type=Path, help="the folder of the other checkout")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each load lasts")
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=MEASURED)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every turn's figures there")
    options = parser.parse_args()
    figures: Figures = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    roots = {"before": options.before.resolve(), "now": ROOT}
    for turn in range(options.turns):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-before-")))
            benches = {
                name: stack.enter_context(serving(root, folder / name, options.seconds))
                for name, root in roots.items()
            }
            for what in options.only:
                for name in sorted(benches, reverse=turn % 2 == 1):
                    machine.until_idle()
                    print(f"turn {turn + 1}, {name}: {what} …", flush=True)
                    measure(benches[name], name, what, figures)
    print(f"\n{table(figures)}\n")
    print(
        f"{options.turns} turns, {'PostgreSQL' if postgres_url() else 'SQLite'}, {os.cpu_count()} cores shared by"
        f" clients and servers, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} at the end"
    )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


@contextmanager
def serving(root: Path, folder: Path, seconds: float) -> Iterator[Bench]:
    """Run the server of a checkout for the length of a `with` block, and give what measures it."""
    server = Checkout(root, folder)
    try:
        server.start()
        yield Bench(Target(server.url, server.key()), seconds, server.listening())
    finally:
        server.drop()


def measure(bench: Bench, name: str, what: str, figures: Figures) -> None:
    """Take one measurement of one checkout, and keep its figures."""
    bench.rows.clear()
    MEASURES[what](bench)
    for row in bench.rows:
        for figure in (*MORE_IS_BETTER, *LESS_IS_BETTER):
            if isinstance(row.get(figure), int | float):
                figures[row["what"]][figure][name].append(row[figure])


def table(figures: Figures) -> str:
    """Return the medians, their ratios, and the turns' lowest and highest ratio, as one Markdown table."""
    lines = ["| what | figure | before | now | ratio | turns |", "|---|---|---:|---:|---:|---|"]
    for what, by_figure in figures.items():
        for figure, by_checkout in by_figure.items():
            if not (by_checkout["before"] and by_checkout["now"]):
                continue  # one of them has no such door
            before, now = (median(by_checkout[name]) for name in ("before", "now"))
            turns = [
                ratio(figure, *pair) for pair in zip(by_checkout["before"], by_checkout["now"], strict=True)
            ]
            lines.append(
                f"| {what} | {figure} | {in_cell(before)} | {in_cell(now)} | {ratio(figure, before, now):.2f}"
                f" | {min(turns):.2f} to {max(turns):.2f} |"
            )
    return "\n".join(lines)


def ratio(figure: str, before: float, now: float) -> float:
    """Return how many times better `now` is; NaN where one of them is 0."""
    better, worse = (now, before) if figure in MORE_IS_BETTER else (before, now)
    return better / worse if better and worse else math.nan


if __name__ == "__main__":
    main()
