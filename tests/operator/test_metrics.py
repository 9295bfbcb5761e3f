"""Figures are the sum of all workers', outlive the worker that counted them, and are not everybody's to read."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from django.db import OperationalError
from prometheus_client.parser import text_string_to_metric_families

from coordinator.edge.monitoring import metrics
from coordinator.lib import worker_metrics as figures
from tests.live.connections import connect, make_session, post
from tests.patience import PATIENCE
from tests.served import KEYS, Served

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    """A server of its own: what these tests do to it would show in others."""
    return serve()


EVENT = {"event_type": "message", "session_id": "ses_m", "timestamp": "2026-03-01T00:00:00Z"}


def scrape(served: Served) -> Figures:
    answer = served.client().get("/metrics")
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value(found: Figures, name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0.0)


def soon(served: Served, holds: Callable[[Figures], bool]) -> Figures:
    """Scrape until it holds: the other workers write their figures once a second."""
    deadline, found = time.monotonic() + PATIENCE, Figures()
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):  # the kernel had given it to a worker that was killed
            if holds(found := scrape(served)):
                return found
        time.sleep(0.1)
    raise AssertionError(found)


@pytest.mark.served
def test_every_worker_counts_and_a_dead_one_is_not_forgotten(serve: Callable[..., Served]) -> None:
    served = serve()
    make_session(served, "ses_m")
    pids = served.all_worker_pids()
    for times, pid in enumerate(pids, start=1):
        connection = connect(served, to=pid)
        for _ in range(times):
            assert post(connection, "/sessions/ses_m/events", EVENT)[0] == 201
        assert post(connection, "/api/events", [EVENT] * 10)[1]["accepted"] == 10
    found = soon(served, lambda now: value(now, "signalbox_events_ingested_total") == 23)
    assert value(found, "signalbox_requests_total", route="ingest", status="201") == 3
    assert value(found, "signalbox_request_seconds_count", route="ingest") == 5
    assert value(found, "signalbox_request_seconds_bucket", route="ingest", le="+Inf") == 5
    assert value(found, "signalbox_ingest_batch_events_sum") == 20
    assert value(found, "signalbox_feed_lag_seconds_count") > 0
    assert value(found, "signalbox_workers") == 2
    assert value(found, "signalbox_database_up") == 1
    assert all(value(found, "signalbox_worker_memory_bytes", worker=str(pid)) > 10_000_000 for pid in pids)

    killed = served.kill_worker()
    found = soon(served, lambda now: not value(now, "signalbox_worker_memory_bytes", worker=str(killed)))
    assert value(found, "signalbox_events_ingested_total") == 23
    served.stop()
    served.start()
    assert value(scrape(served), "signalbox_events_ingested_total") == 0


@pytest.mark.served
def test_what_is_held_and_what_waits(two_workers: Served) -> None:
    with two_workers.client().stream("GET", "/sse/sessions") as stream:
        next(stream.iter_lines())
        soon(two_workers, lambda now: value(now, "signalbox_streams_open") == 1)
    soon(two_workers, lambda now: value(now, "signalbox_streams_open") == 0)
    ask = {"plugin_id": "p", "permission_type": "NetworkAccess", "target_resource": "x", "justification": "y"}
    request_id = two_workers.client("agent").post("/api/permission-requests", json=ask).json()["request_id"]
    assert value(scrape(two_workers), "signalbox_approvals_pending") == 1
    person = two_workers.sign_in("approver")
    person.post("/ui/approvals/decide/", data={"ids": [request_id], "verdict": "denied"})
    found = soon(two_workers, lambda now: value(now, "signalbox_decisions_total", verdict="denied") == 1)
    assert value(found, "signalbox_decision_seconds_count", verdict="denied") == 1
    assert value(found, "signalbox_approvals_pending") == 0


@pytest.mark.served
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"X-Forwarded-For": "203.0.113.7"}, 401),
        ({"Forwarded": "for=203.0.113.7"}, 401),
        ({"Host": "metrics.example.org"}, 401),
        ({"Origin": "https://elsewhere.example"}, 401),
        ({"Authorization": f"Bearer {KEYS['read']}", "X-Forwarded-For": "203.0.113.7"}, 200),
        ({"Authorization": f"Bearer {KEYS['runner']}"}, 403),
        ({"Authorization": "Bearer sbx_no-such-key"}, 401),
    ],
)
def test_figures_are_for_this_machine_and_for_keys_that_read(
    two_workers: Served, headers: dict[str, str], status: int
) -> None:
    assert httpx.get(f"{two_workers.url}/metrics", headers=headers).status_code == status


@pytest.mark.served
def test_behind_tls_nobody_is_local(serve: Callable[..., Served]) -> None:
    served = serve(
        workers=1, SIGNALBOX_PUBLIC_URL="https://box.example", SIGNALBOX_TRUSTED_PROXIES="10.0.0.1"
    )
    assert httpx.get(f"{served.url}/metrics").status_code == 401


def test_a_database_that_is_down_hides_no_other_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    def down() -> int:
        raise OperationalError("no")

    monkeypatch.setattr(metrics, "iterate_database_metrics", down)
    told = metrics.collect_and_render_metrics([]).decode()
    assert "signalbox_database_up 0.0" in told
    assert "signalbox_events_ingested_total 0.0" in told


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path, settings) -> None:
    settings.DATA_DIR = tmp_path
    figures.write_metrics_file(figures.new_worker_metrics_path(), {"signalbox_streams_open": 3})
    (tmp_path / "metrics" / "1-broken.json").write_text("{")
    gone = json.loads(next(figures.metrics_folder().glob(f"{os.getpid()}-*")).read_text()) | {
        "pid": 2**22 - 1
    }
    (tmp_path / "metrics" / "2-gone.json").write_text(json.dumps(gone))
    assert figures.sum_worker_gauge(figures.read_all_metrics_files(), "signalbox_streams_open") == 3
    figures.remove_all_worker_metrics()
    assert figures.read_all_metrics_files() == []
