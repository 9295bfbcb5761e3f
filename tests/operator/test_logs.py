"""One JSON object a line, with the request's id, which the audit and the caller know too; never a secret."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.edge.http.request_log import ObservedRequest, classify_request
from coordinator.lib import logs, trace
from coordinator.secrets.masking import mask_log_line
from tests.edge.test_bridge import scope_of
from tests.live.connections import make_session
from tests.patience import PATIENCE
from tests.secrets.corpus import SECRETS
from tests.served import KEYS, Served


def lines_of(served: Served, request_id: str) -> list[dict[str, Any]]:
    """Return what was logged of a request; its last line follows the answer by a moment."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = [json.loads(line) for line in served.output().splitlines() if line.startswith("{")]
        if mine := [line for line in found if line.get("request_id") == request_id]:
            return mine
        time.sleep(0.02)
    return []


@pytest.mark.served
@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("GET", "/ui/sign-in/?next=/ui/&token=hush", "page"),
        ("GET", "/sessions", "api"),
        ("GET", "/nowhere", "api"),
        ("POST", "/sessions/ses_none/events", "ingest"),
        ("GET", "/health/ready", "health"),
    ],
)
def test_every_answer_has_an_id_and_its_line(two_workers: Served, method: str, path: str, route: str) -> None:
    answer = two_workers.client().request(method, path)
    [request_id] = answer.headers.get_list("x-request-id")
    [line] = [one for one in lines_of(two_workers, request_id) if one["logger"] == "signalbox.access"]
    assert (line["method"], line["path"]) == (method, path.partition("?")[0])
    assert (line["status"], line["route"], line["peer"]) == (answer.status_code, route, "127.0.0.1")
    assert line["ms"] > 0


@pytest.mark.served
def test_the_audit_names_the_same_id_behind_django_and_the_edge(two_workers: Served) -> None:
    make_session(two_workers, "ses_trace")
    deleted = two_workers.client("operator").delete("/sessions/ses_trace")
    refused = two_workers.client("read").post("/api/events", json=[])
    for answer, event in ((deleted, "SESSION_DELETED"), (refused, "API_KEY_OUT_OF_SCOPE")):
        trace_id = answer.headers["x-request-id"]
        rows = two_workers.sql("SELECT event_type FROM audit_logs WHERE trace_id = ?", (trace_id,))
        assert rows == [(event,)]


@pytest.mark.served
def test_no_key_is_in_the_log(two_workers: Served) -> None:
    two_workers.client().get("/sessions")
    two_workers.client(key=None).get(f"/nowhere?api_key={KEYS['all']}")
    assert "served-test-key" not in two_workers.output()


@pytest.mark.parametrize(("peer", "taken"), [("10.0.0.1", True), ("203.0.113.7", False)])
def test_only_a_trusted_proxy_brings_an_id(settings, peer: str, taken: bool) -> None:
    settings.TRUSTED_PROXIES = ["10.0.0.1"]
    scope = scope_of(headers=[(b"x-request-id", b"a-proxy-made-this")], client=peer)
    assert (ObservedRequest(scope, None).trace_id == "a-proxy-made-this") is taken  # type: ignore[arg-type]
    crooked = scope_of(headers=[(b"x-request-id", b"no\nline")], client="10.0.0.1")
    assert len(ObservedRequest(crooked, None).trace_id) == 32  # type: ignore[arg-type]
    trace.end_trace()


@pytest.mark.parametrize(
    ("kind", "status", "took", "logged"),
    [
        ("slow", 200, 0.01, False),
        ("slow", 200, 1.5, True),
        ("slow", 503, 0.01, True),
        ("all", 200, 0.01, True),
        ("off", 503, 1.5, False),
    ],
)
def test_which_requests_get_a_line(
    settings, monkeypatch, caplog, *, kind: str, status: int, took: float, logged: bool
) -> None:
    settings.ACCESS_LOG = kind
    observed = ObservedRequest(scope_of(path=b"/sessions"), None)  # type: ignore[arg-type]
    observed._status = status
    began = observed._began
    monkeypatch.setattr("coordinator.edge.http.request_log.time.perf_counter", lambda: began + took)
    with caplog.at_level(logging.INFO, "signalbox.access"):
        observed.log_request_and_end_trace()
    assert bool(caplog.records) is logged


def test_what_is_held_open_is_not_slow(settings, monkeypatch, caplog) -> None:
    settings.ACCESS_LOG = "slow"
    observed = ObservedRequest(scope_of(path=b"/sse/sessions"), None)  # type: ignore[arg-type]
    observed._status = 200
    began = observed._began
    monkeypatch.setattr("coordinator.edge.http.request_log.time.perf_counter", lambda: began + 3600)
    with caplog.at_level(logging.INFO, "signalbox.access"):
        observed.log_request_and_end_trace()
    assert not caplog.records


@pytest.mark.parametrize(
    "text",
    [
        "key sbx_hush-hush-hush refused",
        "cannot reach postgres://me:hush-hush@db:5432/name",
        "header Authorization: Bearer hush-hush-hush",
        "GET /x?api_key=hush-hush&y=1",
        "{'password': 'hush-hush'}",
    ],
)
def test_secrets_are_masked_in_messages_and_tracebacks(text: str) -> None:
    record = logging.LogRecord("x", logging.ERROR, __file__, 1, "%s", (text,), None)
    try:
        raise ValueError(text)
    except ValueError as problem:
        record.exc_info = (ValueError, problem, problem.__traceback__)
    for form in (logs.ReadableFormatter(mask_log_line), logs.JsonFormatter(mask_log_line)):
        said = form.format(record)
        assert "hush-hush" not in said
        assert "***" in said or "[masked: " in said


def test_paths_that_nobody_knows_are_masked_too() -> None:
    """A link with a key in it that leads nowhere must not put the key into the log."""
    path = f"/repos/{SECRETS['github']}/x"
    record = logging.LogRecord("x", logging.WARNING, __file__, 1, "Not Found: %s", (path,), None)
    record.fields = {"path": path, "status": 404}
    for form in (logs.ReadableFormatter(mask_log_line), logs.JsonFormatter(mask_log_line)):
        said = form.format(record)
        assert SECRETS["github"] not in said
        assert "/repos/[masked: GitHub token " in said


def test_routes_are_few_whatever_is_asked_for() -> None:
    assert {classify_request("GET", f"/made/up/{n}") for n in range(50)} == {"api"}
    assert classify_request("GET", "/sessions/ses_1/events") == "api"
    assert classify_request("GET", "/api/permission-requests/x/wait") == "poll"


FORGED = "/x\n2026-11-22 12:00:00,000 INFO signalbox.access \x1b[2J\x9b31m\u202e\r\x00"


def test_foreign_text_in_a_line_is_one_line_and_says_nothing_to_a_terminal() -> None:
    record = logging.LogRecord("x", logging.ERROR, __file__, 1, "%s", (FORGED,), None)
    try:
        raise ValueError(FORGED)
    except ValueError as problem:
        record.exc_info = (ValueError, problem, problem.__traceback__)
    first, *rest = logs.ReadableFormatter(mask_log_line).format(record).split("\n")
    assert r"/x\n2026" in first
    assert r"\x1b[2J\x9b31m\u202e\r\x00" in first
    assert all(line.startswith("    ") for line in rest)
    assert all(line.isprintable() for line in (first, *rest))
    [line] = logs.JsonFormatter(mask_log_line).format(record).splitlines()
    assert line.isprintable()


@pytest.mark.served
def test_an_address_with_a_line_break_cannot_forge_a_line_of_the_access_log(
    serve: Callable[..., Served],
) -> None:
    served = serve(workers=1, SIGNALBOX_ACCESS_LOG="all")
    path = "/nowhere%0a2026-11-22%2012:00:00%20INFO%20forged%1b%5b2J"
    assert served.client().get(path).status_code == 404
    assert "INFO forged" in served.output()
    assert "\x1b" not in served.output()
    assert not [line for line in served.output().splitlines() if line.startswith("2026-11-22 12:00:00 INFO")]
