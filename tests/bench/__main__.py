"""`python -m tests.bench --url http://127.0.0.1:8765 --key sbx_…`: measure a server, print one table, write JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.bench import machine
from tests.bench.measures import MEASURES, Bench, fill, lists
from tests.bench.wire import Target

COLUMNS = ("per_second", "p50_ms", "p99_ms", "max_ms", "errors")


def main() -> None:
    """Run what the command line asks for."""
    options = arguments()
    target = Target(options.url.rstrip("/"), options.key)
    pids = machine.listeners(urlsplit(options.url).port or 80) if sys.platform == "linux" else []
    bench = Bench(target, options.seconds, pids)
    began = time.monotonic()
    for name in options.only or MEASURES:
        print(f"{name} …", flush=True)
        MEASURES[name](bench)
    if options.full:
        long_id = fill(bench, sessions=10_000, long_session=100_000, events=1_000_000)
        _, newest = target.call("GET", f"/sessions/{long_id}/events?limit=1")
        first = newest["events"][0]["id"]
        paths = {
            "GET /sessions, 10,000 sessions": "/sessions",
            "GET /sessions?limit=50": "/sessions?limit=50",
            "first 100 of 100,000 events": f"/sessions/{long_id}/events",
            "100 events from the middle of 100,000": f"/sessions/{long_id}/events?after={first + 50_000}",
        }
        lists(bench, paths)
        MEASURES["runners"](bench)
    print()
    print(table(bench.rows))
    print(f"\n{time.monotonic() - began:.0f} s in all, {os.cpu_count()} cores shared by client and server.")
    if options.json:
        write(Path(options.json), options, bench.rows)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--url", default="http://127.0.0.1:8765", help="the server, on this machine or another"
    )
    parser.add_argument(
        "--key", default=os.environ.get("SIGNALBOX_BENCH_KEY"), help="an API key with all scopes"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each load lasts")
    parser.add_argument("--only", nargs="+", choices=list(MEASURES), help="some measurements only")
    parser.add_argument(
        "--full",
        action="store_true",
        help="also fill in 10,000 sessions and 1,000,000 events and measure lists",
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    return parser.parse_args()


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as one Markdown table."""
    lines = [
        "| what | per second | p50 ms | p99 ms | max ms | errors | more |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        more = ", ".join(f"{name} {value}" for name, value in row.items() if name not in ("what", *COLUMNS))
        cells = [str(row.get(column, "")) for column in COLUMNS]
        lines.append(f"| {row['what']} | {' | '.join(cells)} | {more} |")
    return "\n".join(lines)


def write(path: Path, options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Write the figures with what they were measured on."""
    about = {
        "url": options.url,
        "seconds": options.seconds,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    path.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
