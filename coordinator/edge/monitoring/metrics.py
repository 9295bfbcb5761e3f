"""`GET /metrics`: counters of all workers of this machine and figures from the database, for Prometheus.

Each worker writes its figures to a file of its own every second; the worker that is asked adds the files up. Counters
of a worker that is gone still count, its gauges do not. The files are deleted when the server starts.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import Error as DatabaseError
from django.db.models import Count
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator.api.auth import parse_api_key_or_none, require_local_caller
from coordinator.edge.http.auth import Authenticator
from coordinator.edge.http.client_addresses import has_forwarding_headers, is_trusted_proxy
from coordinator.edge.http.messages import (
    get_edge_operation_of_request,
    get_request_headers,
    header_texts_by_name,
)
from coordinator.engine.size import database_size_bytes
from coordinator.errors import SignalboxError
from coordinator.lib import process_metrics as meters
from coordinator.lib import worker_metrics as figures
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.listening_sockets import is_loopback
from coordinator.lib.threads import EdgeThreads
from coordinator.lib.worker_metrics import Figures
from coordinator.models import PermissionRequest, Run, Runner, Session
from coordinator.transparency import state as transparency

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between two snapshots
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

Gauges = Mapping[str, Callable[[], float]]
GAUGES = {
    "signalbox_writer_queue_events": "Events that wait to be written",
    "signalbox_streams_open": "Live streams that are open",
    "signalbox_polls_held": "Long polls that are held",
}
MEMORY = "signalbox_worker_memory_bytes"


class MetricsReporter:
    """The thread that writes this worker's figures down. `gauges` are read when it does."""

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges
        self._stop = threading.Event()
        self._path = figures.new_worker_metrics_path()
        self._thread = threading.Thread(target=self.run_metrics_loop, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write the last figures, then end the thread."""
        self._stop.set()
        self._thread.join(1)

    def write_worker_metrics(self) -> None:
        """Write the figures as they are now."""
        try:
            figures.write_metrics_file(
                self._path,
                {name: read() for name, read in self._gauges.items()} | {MEMORY: measure_memory_bytes()},
            )
        except OSError as problem:
            log.warning("The worker's figures cannot be written to %s: %s", self._path, problem.strerror)

    def run_metrics_loop(self) -> None:
        self.write_worker_metrics()
        while not self._stop.wait(EVERY):
            self.write_worker_metrics()
        self.write_worker_metrics()


def measure_memory_bytes() -> int:
    """Return how many bytes of memory this process holds (0 where the system does not report it)."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


class MetricsEndpoint:
    """Answers a scrape: with a key of scope `read` or `operator`, or without one from this very machine."""

    def __init__(self, auth: Authenticator, reporter: MetricsReporter, threads: EdgeThreads) -> None:
        self._auth, self._reporter, self._threads = auth, reporter, threads

    async def answer_metrics_scrape(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """`GET /metrics`. Raises Unauthorized or Forbidden."""
        headers = get_request_headers(scope)
        offered = parse_api_key_or_none(
            headers.get(b"authorization", b"").decode("latin-1"),
            headers.get(b"x-api-key", b"").decode("latin-1"),
        )
        if offered or not is_local_scrape(scope, headers):
            await self._auth.authenticate_api_key_caller(
                scope, headers, *get_edge_operation_of_request(scope).scopes
            )
        body = await self._threads.run_in_thread(self.render_metrics)
        start = [(b"content-type", CONTENT_TYPE), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": start})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def render_metrics(self) -> bytes:
        self._reporter.write_worker_metrics()
        return collect_and_render_metrics(figures.read_all_metrics_files())


def is_local_scrape(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Say whether a program on this machine asks, with no proxy between that might pass others on.

    A proxy on this machine that adds no header looks like a program, so where TLS ends in front of us
    or a proxy on loopback is trusted, nobody is local.
    """
    address = str((scope.get("client") or ("",))[0])
    if (
        not is_loopback(address)
        or is_trusted_proxy(address)
        or urlsplit(settings.PUBLIC_URL).scheme == "https"
    ):
        return False
    try:
        plain_headers = header_texts_by_name(headers)
        require_local_caller(plain_headers.get("host", ""), plain_headers, has_forwarding_headers(scope))
    except SignalboxError:
        return False
    return True


def collect_and_render_metrics(figures: Sequence[Figures]) -> bytes:
    """Return the figures of all workers and of the database in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(MetricFamilies([*iterate_worker_metrics(figures), *collect_database_metrics()]))
    return generate_latest(registry)


class MetricFamilies(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def iterate_worker_metrics(all_figures: Sequence[Figures]) -> Iterator[Metric]:
    for counter in meters.COUNTERS:
        counted = CounterMetricFamily(counter.name, counter.help, labels=counter.labels)
        total: dict[tuple[str, ...], float] = {} if counter.labels else {(): 0.0}
        for labels, value in iterate_labelled_metric_values(all_figures, "counters", counter.name):
            total[labels] = total.get(labels, 0) + value
        for labels, value in sorted(total.items()):
            counted.add_metric(labels, value)
        yield counted
    for histogram in meters.HISTOGRAMS:
        yield sum_worker_histograms(histogram, all_figures)
    for name, description in GAUGES.items():
        yield GaugeMetricFamily(name, description, value=figures.sum_worker_gauge(list(all_figures), name))
    resident = GaugeMetricFamily(MEMORY, "Resident memory of each worker", labels=("worker",))
    alive = [worker for worker in all_figures if worker["gauges"]]
    for worker in alive:
        resident.add_metric((str(worker["pid"]),), worker["gauges"][MEMORY])
    yield resident
    yield GaugeMetricFamily("signalbox_workers", "Workers that run on this machine", value=len(alive))


def sum_worker_histograms(histogram: meters.Histogram, figures: Sequence[Figures]) -> Metric:
    family = HistogramMetricFamily(histogram.name, histogram.help, labels=histogram.labels)
    total: dict[tuple[str, ...], list[float]] = {}
    for labels, row in iterate_labelled_metric_values(figures, "histograms", histogram.name):
        total[labels] = [a + b for a, b in zip(total[labels], row, strict=True)] if labels in total else row
    bounds = [str(bound) for bound in histogram.bounds] + ["+Inf"]
    for labels, row in sorted(total.items()):
        buckets = list(zip(bounds, accumulate(row[:-1]), strict=True))
        family.add_metric(labels, buckets=buckets, sum_value=row[-1])
    return family


def iterate_labelled_metric_values(
    figures: Sequence[Figures], kind: str, name: str
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for worker in figures:
        for labels, value in worker[kind].get(name, ()):
            yield tuple(labels), value


def collect_database_metrics() -> list[Metric]:
    """Return the metrics from the tables, and `signalbox_database_up`, also when the database does not answer."""
    try:
        families = list(iterate_database_metrics())
    except DatabaseError as problem:
        log.warning("The database's figures cannot be read: %s", str(problem).strip())
        families = []
    return [
        GaugeMetricFamily(
            "signalbox_database_up", "1 if the database answered, else 0", value=bool(families)
        ),
        *families,
    ]


def iterate_database_metrics() -> Iterator[Metric]:
    """Yield the metrics from the tables, by a few small queries, none of which reads the events."""
    waiting = PermissionRequest.objects.awaiting_decision(timezone.now()).count()
    yield GaugeMetricFamily(
        "signalbox_approvals_pending", "Permission requests that wait for a person", value=waiting
    )
    yield load_status_count_metric(
        "signalbox_permission_requests", "Permission requests kept, by status", PermissionRequest
    )
    yield load_status_count_metric("signalbox_sessions", "Sessions kept, by status", Session)
    yield load_status_count_metric("signalbox_runs", "Runs kept, by status", Run)
    log_state = transparency.load_log_state(timezone.now())
    yield GaugeMetricFamily(
        "signalbox_audit_entries", "Entries in the audit log's tree", value=log_state.size
    )
    yield GaugeMetricFamily(
        "signalbox_audit_sealed_entries",
        "Entries that a signed checkpoint covers",
        value=log_state.sealed_count,
    )
    yield GaugeMetricFamily("signalbox_runners", "Runners registered", value=Runner.objects.count())
    yield GaugeMetricFamily("signalbox_database_bytes", "Size of the database", value=database_size_bytes())


def load_status_count_metric(name: str, description: str, model: Any) -> Metric:
    family = GaugeMetricFamily(name, description, labels=("status",))
    for status, count in model.objects.order_by("status").values_list("status").annotate(Count("pk")):
        family.add_metric((str(status),), count)
    return family
