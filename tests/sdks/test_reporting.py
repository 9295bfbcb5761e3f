"""Reports that the server cannot take now come later, once and in their order, and no run waits for them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from signalbox_sdk import Connection, reporting
from signalbox_sdk.connection import ServerUnavailable
from signalbox_sdk.reporting import RunReporter, ToolCallReport, log_reporting_failures

from tests.patience import until
from tests.served import ROOT


class ReportServer(ThreadingHTTPServer):
    """A server that is away while `status` is 503, and records the keys and ids of the reports that it took."""

    status = 200
    attempts = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ReportHandler)
        self.keys: list[str] = []
        self.span_ids: list[str] = []

    @property
    def connection(self) -> Connection:
        return Connection(f"http://127.0.0.1:{self.server_port}", "sbx_x")


class ReportHandler(BaseHTTPRequestHandler):
    server: ReportServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        (span,) = body["resourceSpans"][0]["scopeSpans"][0]["spans"]
        attributes = {item["key"]: item["value"]["stringValue"] for item in span["attributes"]}
        self.server.attempts += 1
        self.server.span_ids.append(span["spanId"])
        if self.server.status == 200:
            self.server.keys.append(attributes["gen_ai.tool.call.id"])
        self.send_response(self.server.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def serving() -> Iterator[ReportServer]:
    with ReportServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def report_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReportServer]:
    monkeypatch.setattr(reporting, "RETRY_AFTER_SECONDS", 0.05)
    with serving() as server:
        yield server


def report(key: str) -> ToolCallReport:
    return ToolCallReport("delete_file", {"path": "a"}, "deleted", None, key)


def test_what_the_server_could_not_take_comes_later_in_order(report_server: ReportServer) -> None:
    reporter = RunReporter("talk-1", connection=report_server.connection)
    reporter.send_report(report("0"))
    report_server.status = 503
    for number in range(1, 5):
        reporter.send_report(report(str(number)))
    until(lambda: report_server.attempts > 4)
    report_server.status = 200
    until(lambda: len(report_server.keys) == 5)
    until(lambda: reporter._sender is None)
    reporter.send_report(report("5"))  # at once again
    assert report_server.keys == ["0", "1", "2", "3", "4", "5"]
    assert len(set(report_server.span_ids)) == 6  # each had the same id however often it came


def test_a_run_waits_for_the_first_failure_alone(
    report_server: ReportServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "RETRY_AFTER_SECONDS", 3600.0)
    monkeypatch.setattr(reporting, "MAX_QUEUED_REPORTS", 3)
    report_server.status = 503
    reporter = RunReporter("talk-1", connection=report_server.connection)
    for number in range(10):
        reporter.send_report(report(str(number)))
    assert report_server.attempts == 1
    report_server.status = 200
    reporter._send_queued_reports_at_exit()  # as at the end of the program
    assert report_server.keys == ["7", "8", "9"]


def test_what_the_server_refuses_holds_nothing_up(report_server: ReportServer) -> None:
    reporter = RunReporter("talk-1", connection=report_server.connection)
    report_server.status = 503
    reporter.send_report(report("1"))
    report_server.status = 400
    until(lambda: reporter._sender is None)
    report_server.status = 200
    reporter.send_report(report("2"))
    assert report_server.keys == ["2"]


PROGRAM = """
import asyncio, sys
from signalbox_sdk import Connection
from signalbox_sdk.reporting import RunReporter, ToolCallReport

async def main():
    reporter = RunReporter("talk-1", connection=Connection(sys.argv[1], "sbx_x"))
    for number in range(3):
        await reporter.send_report_async(ToolCallReport("delete_file", {}, None, None, str(number)))
    print("sent", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


def test_the_end_of_a_program_sends_what_waits() -> None:
    with serving() as server:
        server.status = 503
        command = [sys.executable, "-c", PROGRAM, server.connection.url]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(ROOT / "coordinator/client/sdk")},
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "sent\n"
            server.status = 200
            process.communicate("", timeout=60)
        assert server.keys == ["0", "1", "2"]


def test_a_program_whose_server_stays_away_ends_soon(report_server: ReportServer) -> None:
    report_server.status = 503
    command = [sys.executable, "-c", PROGRAM, report_server.connection.url]
    environment = {"PYTHONPATH": str(ROOT / "coordinator/client/sdk")}
    done = subprocess.run(
        command, input="", env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert "the last 3 reports of this run are lost" in done.stderr


def test_what_an_sdk_lacks_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    missing: Any = object()
    with caplog.at_level(logging.WARNING), log_reporting_failures():
        missing.usage_metadata  # noqa: B018
    assert "usage_metadata" in caplog.text
    with pytest.raises(ServerUnavailable), log_reporting_failures(ServerUnavailable):
        raise ServerUnavailable
