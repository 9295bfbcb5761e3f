"""`python -m tests.bench.soak --url … --key sbx_…`: hold half the maximum for ten minutes, and see what gives.

First the most that the server takes with the streams open is measured; then half of it is posted steadily while
the streams stay open. One row a minute says how late events reached the streams, how late answers were (from the
time at which each request was due, so a stall counts for all that had to wait), errors, and the server's memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import selectors
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.bench import machine
from tests.bench.__main__ import table, write
from tests.bench.measures import Bench, Poster, opened
from tests.bench.wire import Result, Target, load, percentile, whole

CONNECTIONS = 8
FINDING_OUT = 20.0  # seconds at full speed
PROBES_EVERY = 0.2  # seconds


def main() -> None:
    """Run what the command line asks for."""
    options = arguments()
    target = Target(options.url.rstrip("/"), options.key)
    pids = machine.listeners(urlsplit(options.url).port or 80) if sys.platform == "linux" else []
    bench = Bench(target, FINDING_OUT, pids)
    soak(bench, streams=options.streams, minutes=options.minutes)
    print()
    print(table(bench.rows))
    if options.json:
        options.seconds = options.minutes * 60
        write(Path(options.json), options, bench.rows)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8765")
    parser.add_argument("--key", default=os.environ.get("SIGNALBOX_BENCH_KEY"), help="with all scopes")
    parser.add_argument("--streams", type=int, default=200, help="streams that are told of everything")
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    return parser.parse_args()


def soak(bench: Bench, *, streams: int, minutes: int) -> None:
    """Measure the maximum with `streams` open, then hold half of it for `minutes`; adds one row a minute."""
    request, probed = bench.event(bench.new_session()), bench.new_session()
    with opened(bench, streams) as crowd, multiprocessing.Pool(1) as pool:
        flat_out = pool.apply_async(_flat_out, (bench.target, request))
        crowd.read(FINDING_OUT + 1)
        most: Result = flat_out.get(60)
        bench.add(f"the most with {streams} streams", per_second=most.rate(), errors=most.errors)
        crowd.read(3)
        rate = most.rate() / 2
        poster = Poster(bench, probed, every=PROBES_EVERY)
        lags: list[float] = []
        answers: list[float] = []
        for minute in range(1, minutes + 1):
            crowd.latencies.clear()
            steady = pool.apply_async(paced, (bench.target, request, CONNECTIONS, rate, 60.0))
            crowd.read(60.0)
            result: Result = steady.get(120)
            lags += crowd.latencies
            answers += result.latencies
            bench.add(
                f"minute {minute}", **_minute(bench, result, crowd.latencies), cut_off=streams - crowd.open
            )
        poster.stop()
    lag = {f"lag_p{share}_ms": percentile(lags, share / 100) for share in (50, 99)}
    bench.add(
        f"all {minutes} minutes",
        per_second=len(answers) / minutes / 60,
        p50_ms=percentile(answers, 0.5),
        p99_ms=percentile(answers, 0.99),
        max_ms=max(answers, default=0.0),
        errors=sum(row["errors"] for row in bench.rows),
        lag_max_ms=max(lags, default=0.0),
        **lag,
    )


def _flat_out(target: Target, request: bytes) -> Result:
    return load(target, lambda _: request, connections=CONNECTIONS, seconds=FINDING_OUT)


def _minute(bench: Bench, result: Result, lags: list[float]) -> dict[str, Any]:
    return {
        "per_second": result.rate(),
        "p50_ms": result.percentile(0.5),
        "p99_ms": result.percentile(0.99),
        "max_ms": result.percentile(1.0),
        "errors": result.errors,
        "lag_p50_ms": percentile(lags, 0.5),
        "lag_p99_ms": percentile(lags, 0.99),
        "memory_mb": machine.memory_kb(bench.pids) / 1024 if bench.pids else "",
    }


def paced(target: Target, request: bytes, connections: int, rate: float, seconds: float) -> Result:
    """Post `rate` requests a second for `seconds`, each on a free connection; latencies count from when it was due."""
    selector = selectors.DefaultSelector()
    free = [target.connect() for _ in range(connections)]
    everyone = list(free)
    due_of: dict[Any, float] = {}
    heard: dict[Any, bytes] = {}
    result, clock = Result(), time.perf_counter
    began, sent, total = clock(), 0, int(rate * seconds)
    while sent < total or due_of:
        while free and sent < total and (due := began + sent / rate) <= clock():
            sock = free.pop()
            sock.sendall(request)
            due_of[sock], heard[sock] = due, b""
            selector.register(sock, selectors.EVENT_READ)
            sent += 1
        pause = max(began + sent / rate - clock(), 0.0) if free and sent < total else 30.0
        if not due_of:
            time.sleep(pause)
            continue
        for key, _ in selector.select(pause):
            sock: Any = key.fileobj
            heard[sock] += sock.recv(65_536)
            if whole(heard[sock]) is None:
                continue
            status = int(heard[sock][9:12])
            result.statuses[status] = result.statuses.get(status, 0) + 1
            if 200 <= status < 300:
                result.latencies.append((clock() - due_of[sock]) * 1000)
            selector.unregister(sock)
            del due_of[sock]
            free.append(sock)
    result.took = clock() - began
    for sock in everyone:
        sock.close()
    return result


if __name__ == "__main__":
    main()
