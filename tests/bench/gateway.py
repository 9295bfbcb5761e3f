"""`python -m tests.bench.gateway`: what a gateway adds to a call of a tool, beside the direct call and other gateways.

Starts everything itself: a quick MCP server, this program as `serve` on SQLite and (where DATABASE_URL names one) on
PostgreSQL, and other gateways from the package index, each in a virtual environment of its own. Measures them in turns,
in one run. Linux alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import django

from tests.bench import gateway_held, gateways, machine
from tests.bench.mcp_callers import Way, is_echo
from tests.bench.wire import Result, Target, load, paced
from tests.served import Served, Template, free_port

ROOT = Path(__file__).resolve().parent.parent.parent
DIRECT = "direct"
OTHERS: dict[str, Callable[[Path, str], contextlib.AbstractContextManager[Way]]] = {
    "contextforge": gateways.contextforge,
    "fastmcp": gateways.fastmcp,
}
COLUMNS = (
    "calls_per_second",
    "p50_added_ms",
    "p99_added_ms",
    "paced_p50_added_ms",
    "paced_p99_added_ms",
    "cpu_ms_per_call",
    "errors",
    "memory_mb",
)
HEAD = (
    "| way | calls/s | p50 added | p99 added | paced: p50 added | p99 added | CPU ms a call | errors | memory MB |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each load lasts")
    parser.add_argument("--rounds", type=int, default=3, help="how often the ways take turns")
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument(
        "--rate", type=float, default=320.0, help="calls a second of the paced load, all callers'"
    )
    parser.add_argument(
        "--held", type=int, default=1_000, help="calls that wait for a person at once; 0: none"
    )
    parser.add_argument(
        "--only", nargs="*", choices=OTHERS, default=list(OTHERS), help="other gateways; none: ours alone"
    )
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        boxes, ways, skipped = set_up(stack, folder, given.only)
        rows = measured(ways, skipped, given)
        held = []
        for engine, database, box in boxes if given.held else []:
            with on_engine(database):
                held.append({"engine": engine} | gateway_held.measured(box, given.held))
    told = {"machine": about_machine(), "ways": rows, "held": held, "skipped": skipped}
    show(told, given)
    if given.json:
        given.json.write_text(json.dumps(told, indent=1))


def set_up(
    stack: contextlib.ExitStack, folder: Path, others: list[str]
) -> tuple[list[tuple[str, str, Served]], list[Way], dict[str, str]]:
    """Start everything; return our servers by engine, the ways to the tool, and why others are left out."""
    from tests.gateway.agents import KEY

    upstream = stack.enter_context(echo_server())
    ways = [upstream]
    url = upstream.target.url + upstream.path
    boxes = []
    postgres = os.environ.pop("DATABASE_URL", "")
    for engine, database in (("SQLite", ""), ("PostgreSQL", postgres)):
        if database or engine == "SQLite":
            box = stack.enter_context(ours(folder, engine, database, url))
            boxes.append((engine, database, box))
            assert box.process is not None
            ways.append(
                Way(f"Signalbox, {engine}", Target(box.url, KEY), "/mcp/example", root=box.process.pid)
            )
    skipped = {}
    for name in others:
        try:
            ways.append(stack.enter_context(OTHERS[name](folder / name, url)))
        except gateways.Unusable as problem:
            skipped[name] = str(problem)
            print(f"  {name} is left out: {problem}", flush=True)
    return boxes, ways, skipped


@contextlib.contextmanager
def echo_server() -> Iterator[Way]:
    """Run the server whose tool is called."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.echo_server", str(port)], cwd=ROOT)
    try:
        url = f"http://127.0.0.1:{port}"
        gateways.until_open(port)
        yield Way(DIRECT, Target(url), "/mcp", root=process.pid)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def ours(folder: Path, engine: str, database: str, upstream: str) -> Iterator[Served]:
    """Run this program with two workers on an engine, with the server registered and open to all agents."""
    from tests.gateway.agents import furnish

    with on_engine(database):
        template = Template(folder / f"template-{engine}")
        box = Served(template, folder / engine, workers=2, env={})
    try:
        with on_engine(database):
            box.start()
            furnish(box, upstream)
        yield box
    finally:
        with on_engine(database):
            box.close()
            template.drop()


@contextlib.contextmanager
def on_engine(database: str) -> Iterator[None]:
    """Have tests.served work on a database for the length of the block; "" is SQLite."""
    before = os.environ.pop("DATABASE_URL", None)
    if database:
        os.environ["DATABASE_URL"] = database
    try:
        yield
    finally:
        os.environ.pop("DATABASE_URL", None)
        if before is not None:
            os.environ["DATABASE_URL"] = before


def measured(ways: list[Way], skipped: dict[str, str], given: argparse.Namespace) -> list[dict[str, Any]]:
    """Let the ways take turns; return the middle figures of all rounds, and the times over the direct call.

    One that lets no caller in is moved to `skipped`.
    """
    for way in list(ways):
        try:
            way.begin(given.callers)
            one_round(way, given, seconds=1.0)  # warm
        except OSError as problem:
            ways.remove(way)
            skipped[way.name] = str(problem)
    rounds: dict[str, list[dict[str, float]]] = {way.name: [] for way in ways}
    for number in range(given.rounds):
        direct: dict[str, float] = {}
        for way in ways:
            found = one_round(way, given, given.seconds)
            direct = direct or found
            found |= {f"{name}_added_ms": found[name] - direct[name] for name in TIMES}
            rounds[way.name].append(found)
            print(f"  {number + 1}. {way.name}: {rounded(found)}", flush=True)
    return [
        {"way": name} | {key: median(one[key] for one in found) for key in found[0]}
        for name, found in rounds.items()
    ]


TIMES = ("p50", "p99", "paced_p50", "paced_p99")


def one_round(way: Way, given: argparse.Namespace, seconds: float) -> dict[str, float]:
    """Have all callers call as fast as they can, and then at a pace; return the figures in milliseconds and MB."""
    pids = machine.tree(way.root) if way.root else []
    before = machine.processor_seconds(pids)
    options: dict[str, Any] = {"connections": given.callers, "seconds": seconds, "good": is_echo}
    fast = load(way.target, lambda number: way.requests[number], **options)
    spent = machine.processor_seconds(pids) - before
    time.sleep(1.0)  # what was put off is done
    found = {
        "calls_per_second": fast.rate(),
        "p50": fast.percentile(0.5),
        "p99": fast.percentile(0.99),
        "cpu_ms_per_call": spent * 1000 / max(answers(fast), 1),
        "errors": float(fast.errors),
        "memory_mb": machine.memory_kb(pids) / 1024,
    }
    for name in ("paced_p50", "paced_p99"):
        found[name] = math.inf  # the pace is more than it can take: whoever waits waits ever longer
    if fast.rate() > given.rate:
        slow = paced(way.target, lambda n: way.requests[n % given.callers], rate=given.rate, **options)
        found["paced_p50"], found["paced_p99"] = slow.percentile(0.5), slow.percentile(0.99)
        found["errors"] += slow.errors
    return found


def answers(result: Result) -> int:
    """Return how many answers came, good or not."""
    return sum(result.statuses.values())


def about_machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    return {
        "cores": os.cpu_count(),
        "model": models[0] if models else platform.machine(),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
    }


def rounded(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures as people read them."""
    return {name: short(value) for name, value in figures.items()}


def short(value: Any) -> Any:
    """Return a figure as people read it."""
    if not isinstance(value, float):
        return value
    if math.isinf(value):
        return "too fast for it"
    return round(value) if abs(value) >= 100 else round(value, 2)


def show(told: dict[str, Any], given: argparse.Namespace) -> None:
    """Print the tables."""
    about = told["machine"]
    print(
        f"\n{about['cores']} cores of {about['model']}, Python {about['python']}, commit {about['commit']}."
    )
    print(f"{given.callers} callers; paced: {given.rate:.0f} calls a second in all. Times in milliseconds.\n")
    print(HEAD)
    for row in told["ways"]:
        print(f"| {row['way']} | " + " | ".join(str(rounded(row)[name]) for name in COLUMNS) + " |")
    for name, why in told["skipped"].items():
        print(f"| {name} | left out: {why} |" + " |" * (len(COLUMNS) - 1))
    for row in told["held"]:
        print("\n" + ", ".join(f"{name} {value}" for name, value in rounded(row).items()))


if __name__ == "__main__":
    main()
