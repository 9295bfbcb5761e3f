"""Each decision reaches the OTLP address, in order and once; a receiver that is away is asked again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.utils import timezone
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from coordinator.actions import approvals
from coordinator.actions.audit import decision_events
from coordinator.actions.upkeep.jobs import JobAttemptFailed
from coordinator.models import AuditDelivery, AuditLog, Job
from coordinator.operations.jobs import JOBS, run_and_list_due_jobs
from tests.approvals import factories

pytestmark = pytest.mark.django_db(transaction=True)


class Collector(ThreadingHTTPServer):
    """An OTLP receiver that keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.records: list[dict[str, str]] = []
        self.names: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.status == 200 and self.path == "/v1/logs":
            self.server.headers.append(dict(self.headers))
            for one in ExportLogsServiceRequest.FromString(raw).resource_logs[0].scope_logs[0].log_records:
                self.server.names.append(one.event_name)
                self.server.records.append({part.key: part.value.string_value for part in one.attributes})
        self.send_response(self.server.status)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def collector(settings: Any) -> Iterator[Collector]:
    with Collector() as server:
        settings.OTLP_ENDPOINT = f"http://127.0.0.1:{server.server_port}"
        settings.OTLP_HEADERS = {"Authorization": "Bearer words"}
        yield server
        server.shutdown()


def decide(verdict: Any, command: str) -> str:
    row = factories.asked(tool_input={"command": command}, session_id="ses_1", now=timezone.now())
    by = factories.person(f"p-{row.request_id}")
    approvals.decide_request(
        row.request_id, person=by, verdict=verdict, reason="So it is.", now=timezone.now()
    )
    return row.request_id


def test_decisions_are_told_with_who_and_what_once(collector: Collector) -> None:
    decide("approved", "before anybody listened")
    decision_events.export_new_decision_logs(timezone.now())
    assert collector.records == []
    first, second = decide("approved", "make"), decide("denied", "rm -rf /")
    decision_events.export_new_decision_logs(timezone.now())
    decision_events.export_new_decision_logs(timezone.now())
    assert collector.names == ["gen_ai.tool.call.decision"] * 2
    told = [(one["gen_ai.tool.call.decision"], one["signalbox.request_id"]) for one in collector.records]
    assert told == [("approved", first), ("denied", second)]
    assert collector.records[0]["signalbox.decided_by"] == f"user:p-{first}"
    assert collector.records[0]["gen_ai.tool.name"] == "Bash"
    assert collector.records[0]["gen_ai.conversation.id"] == "ses_1"
    assert len(collector.records[0]["signalbox.judged_sha256"]) == 64
    assert collector.headers[0]["Authorization"] == "Bearer words"


def test_a_receiver_that_is_away_gets_them_later(collector: Collector) -> None:
    decision_events.export_new_decision_logs(timezone.now())
    collector.status = 503
    decide("approved", "make")
    with pytest.raises(JobAttemptFailed, match="answered 503"):
        decision_events.export_new_decision_logs(timezone.now())
    collector.status = 200
    decide("denied", "rm")
    decision_events.export_new_decision_logs(timezone.now())
    assert [one["gen_ai.tool.call.decision"] for one in collector.records] == ["approved", "denied"]


def test_a_receiver_that_stays_away_is_asked_less_and_less_often(collector: Collector) -> None:
    exporting = [job for job in JOBS if job.name == "decisions:send"]
    now = timezone.now()
    run_and_list_due_jobs(now, exporting)
    collector.status = 503
    decide("approved", "make")
    for attempt, seconds in enumerate((5, 30, 120, 600, 600), start=1):
        now += timedelta(minutes=11)
        run_and_list_due_jobs(now, exporting)
        job = Job.objects.get(name="decisions:send")
        assert (job.attempts, job.error) == (attempt, "The receiver answered 503.")
        assert timedelta(seconds=seconds) <= job.next_at - now < timedelta(seconds=seconds + 30)
    collector.status = 200
    run_and_list_due_jobs(now + timedelta(minutes=11), exporting)
    assert len(collector.records) == 1
    assert Job.objects.get(name="decisions:send").error is None


def test_without_an_address_nothing_is_done(settings: Any) -> None:
    settings.OTLP_ENDPOINT = ""
    decide("approved", "make")
    decision_events.export_new_decision_logs(timezone.now())
    assert not AuditDelivery.objects.exists()


def test_what_another_program_wrote_is_not_told_as_a_decision(collector: Collector) -> None:
    decision_events.export_new_decision_logs(timezone.now())
    AuditLog.objects.create(
        timestamp=timezone.now(),
        event_type="PERMISSION_REQUEST_APPROVED",
        actor_id="user:boss",
        result="allowed",
    )
    decide("denied", "rm")
    decision_events.export_new_decision_logs(timezone.now())
    assert [one["gen_ai.tool.call.decision"] for one in collector.records] == ["denied"]


def test_a_redirect_is_not_followed(collector: Collector, settings: Any) -> None:
    decision_events.export_new_decision_logs(timezone.now())
    collector.status = 302
    decide("approved", "make")
    with pytest.raises(JobAttemptFailed, match="answered 302"):
        decision_events.export_new_decision_logs(timezone.now())


def test_a_worker_that_was_overtaken_moves_no_place_back(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    decision_events.export_new_decision_logs(timezone.now())
    decide("approved", "make")
    post = decision_events.export_decision_logs

    def post_slowly(records: Any) -> None:
        post(records)
        monkeypatch.setattr(decision_events, "export_decision_logs", post)
        decision_events.export_new_decision_logs(timezone.now())  # another worker, meanwhile
        decide("denied", "rm -rf /")
        decision_events.export_new_decision_logs(timezone.now())

    monkeypatch.setattr(decision_events, "export_decision_logs", post_slowly)
    decision_events.export_new_decision_logs(timezone.now())
    place = AuditDelivery.objects.get()
    sent = len(collector.records)
    decision_events.export_new_decision_logs(timezone.now())
    assert len(collector.records) == sent
    assert AuditDelivery.objects.get().tree_size == place.tree_size
    assert collector.records[-1]["gen_ai.tool.call.decision"] == "denied"
