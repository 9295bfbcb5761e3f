"""Checks that the server on this machine works: asked at its own address, and by its workers' metrics."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

from django.conf import settings

from coordinator.lib import worker_metrics as figures
from coordinator.operations.doctor import CheckResult, failed_check, passed_check, warning_check

ANSWER_WAIT_SECONDS = 5.0
# Our own address is never behind the proxy that the environment may name.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
LONG_QUEUE = 10_000  # events; the writer takes some 25,000 a second


def iterate_server_checks(address: str) -> Iterator[CheckResult]:
    """Yield how the server at `address` is; one check where none runs."""
    try:
        with _opener.open(f"{address}/health/ready", timeout=ANSWER_WAIT_SECONDS):
            yield passed_check("server", f"ready at {address}")
    except urllib.error.HTTPError as answer:
        yield failed_check(
            "server",
            f"Not ready: {unready_reasons_or_status_text(answer)}",
            "Read its log. Restart it if this persists.",
        )
    except OSError as problem:
        reason = getattr(problem, "reason", problem)
        yield warning_check("server", f"No server answers at {address}: {reason}.", "signalbox serve")
        return
    yield from iterate_server_metrics_checks()


def has_check_results_of_running_server(checks: list[CheckResult]) -> bool:
    """Say whether `iterate_server_checks` found a server."""
    return len(checks) > 1


def unready_reasons_or_status_text(answer: urllib.error.HTTPError) -> str:
    try:
        return " ".join(json.loads(answer.read(10_000))["reasons"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.code}"


def iterate_server_metrics_checks() -> Iterator[CheckResult]:
    all_metrics_files = figures.read_all_metrics_files()
    workers = sum(bool(worker["gauges"]) for worker in all_metrics_files)
    if not workers:
        yield warning_check(
            "workers",
            f"No worker has written metrics to {figures.metrics_folder()}.",
            "The server uses another data folder, or runs on another machine.",
        )
        return
    waiting = figures.sum_worker_gauge(all_metrics_files, "signalbox_writer_queue_events")
    if waiting > LONG_QUEUE:
        yield warning_check(
            "writer",
            f"{waiting:.0f} events wait to be written.",
            "The disk is too slow for the incoming events.",
        )
    else:
        yield passed_check("writer", f"{waiting:.0f} events wait in {workers} workers")
    streams, most = (
        figures.sum_worker_gauge(all_metrics_files, "signalbox_streams_open"),
        workers * settings.MAX_STREAMS,
    )
    if streams > 0.8 * most:
        yield warning_check(
            "streams", f"{streams:.0f} of {most} are open.", "Raise SIGNALBOX_MAX_STREAMS or add workers."
        )
    else:
        yield passed_check("streams", f"{streams:.0f} of {most} open")
