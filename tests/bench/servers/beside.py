"""Three servers beside one, on one PostgreSQL behind one balancer: what does an event, a stream, a runner get of it?

    python -m tests.bench.servers.beside

Takes turns: one server, three servers, and again, each with a new database. Every server has two workers. PostgreSQL is
one that is started here, or the one that DATABASE_URL names. Prints the medians of all turns as one table. Client,
servers, balancer and PostgreSQL share this machine's cores: with two, three servers cannot be faster than one, and the
table tells what they cost.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.measures import MEASURES, Bench, in_cell
from tests.bench.servers.balancer import KINDS, Balancer
from tests.bench.servers.installation import SERVERS, WORKERS, serving
from tests.bench.servers.postgres import Pair
from tests.bench.wire import Target
from tests.served import KEYS, Template, free_port, postgres_url

MEASURED = ("dispatch", "streams", "single", "batch", "busy")
FIGURES = ("per_second", "p50_ms", "p99_ms")
Rows = dict[str, dict[int, dict[str, list[float]]]]  # by what is measured, number of servers and figure


def main() -> None:
    """Measure in turns, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.servers.beside",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each load lasts")
    parser.add_argument("--proxy", choices=KINDS, default="haproxy")
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=MEASURED)
    options = parser.parse_args()
    rows: Rows = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    loads = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="signalbox-beside-")))
        if postgres_url() is None:
            folder.chmod(0o755)  # PostgreSQL works in it as a user of its own
            alone = Pair(folder / "postgresql", standby=False)
            stack.callback(alone.close)
            os.environ["DATABASE_URL"] = alone.url
        (folder / "template").mkdir(mode=0o700)
        template = Template(folder / "template")
        stack.callback(template.drop)
        for turn in range(options.turns):
            for number in (1, SERVERS):
                print(f"turn {turn + 1}, {number} servers", flush=True)
                loads.append(os.getloadavg()[0])
                measure(template, folder / f"{turn}-{number}", number, options, rows)
    print(f"\n{table(rows)}\n")
    print(
        f"{options.turns} turns, {WORKERS} workers a server, {options.proxy}, {os.cpu_count()} cores,"
        f" Python {platform.python_version()}; load when turns began: {min(loads):.1f} to {max(loads):.1f}"
    )


def measure(template: Template, folder: Path, number: int, options: argparse.Namespace, rows: Rows) -> None:
    """Run so many servers and take down what each measurement says of them."""
    folder.mkdir()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with serving(template, folder, number, url, {}) as servers:
        balancer = Balancer(options.proxy, folder, port, servers)
        try:
            bench = Bench(Target(url, KEYS["all"]), options.seconds)
            for name in options.only:
                MEASURES[name](bench)
        finally:
            balancer.stop()
    for row in bench.rows:
        for figure in FIGURES:
            if figure in row:
                rows[row["what"]][number][figure].append(row[figure])


def table(rows: Rows) -> str:
    """Return the medians as one Markdown table."""
    names = [figure.replace("_", " ") for figure in FIGURES]
    head = ["what", *(f"{number}: {name}" for number in ("one server", "three servers") for name in names)]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for what, by_number in rows.items():
        cells = [_short(by_number[number].get(figure)) for number in (1, SERVERS) for figure in FIGURES]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _short(values: Any) -> str:
    if not values:
        return ""
    return in_cell(median(values))


if __name__ == "__main__":
    main()
