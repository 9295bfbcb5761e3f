"""Whether the server on this machine works: asked at its own address, and by its workers' metrics."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

from django.conf import settings

from coordinator.lib import figures
from coordinator.operations.doctor import Check, fail, ok, warn

ANSWER_WAIT_SECONDS = 5.0
# Our own address is never behind the proxy that the environment may name.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
LONG_QUEUE = 10_000  # events; the writer takes some 25,000 a second


def examine(address: str) -> Iterator[Check]:
    """Yield how the server at `address` is; one check where none runs."""
    try:
        with _opener.open(f"{address}/health/ready", timeout=ANSWER_WAIT_SECONDS):
            yield ok("server", f"ready at {address}")
    except urllib.error.HTTPError as answer:
        yield fail("server", f"Not ready: {_reasons(answer)}", "Read its log. Restart it if this persists.")
    except OSError as problem:
        why = getattr(problem, "reason", problem)
        yield warn("server", f"No server answers at {address}: {why}.", "python manage.py serve")
        return
    yield from _figures()


def is_running(checks: list[Check]) -> bool:
    """Say whether `examine` found a server."""
    return len(checks) > 1


def _reasons(answer: urllib.error.HTTPError) -> str:
    try:
        return " ".join(json.loads(answer.read(10_000))["reasons"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.code}"


def _figures() -> Iterator[Check]:
    found = figures.read()
    workers = sum(bool(one["gauges"]) for one in found)
    if not workers:
        yield warn(
            "workers",
            f"No worker has written metrics to {figures.folder()}.",
            "The server uses another data folder, or runs on another machine.",
        )
        return
    waiting = figures.held(found, "signalbox_writer_queue_events")
    if waiting > LONG_QUEUE:
        yield warn(
            "writer",
            f"{waiting:.0f} events wait to be written.",
            "The disk is too slow for the incoming events.",
        )
    else:
        yield ok("writer", f"{waiting:.0f} events wait in {workers} workers")
    streams, most = figures.held(found, "signalbox_streams_open"), workers * settings.MAX_STREAMS
    if streams > 0.8 * most:
        yield warn(
            "streams", f"{streams:.0f} of {most} are open.", "Raise SIGNALBOX_MAX_STREAMS or add workers."
        )
    else:
        yield ok("streams", f"{streams:.0f} of {most} open")
