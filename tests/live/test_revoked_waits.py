"""Held requests do not outlive their key: they end with it, at once, and are told nothing more."""

from __future__ import annotations

import contextlib
import functools
import http.client
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from coordinator.edge.hooks.pending_hooks import KEY_OVER
from tests.claude_code.double import Claude
from tests.live.connections import bearer, connect
from tests.patience import AT_ONCE, PATIENCE, until
from tests.served import Served

pytestmark = pytest.mark.served

IDENTITY = {
    "hostname": "revoked-host", "project_dir": "/x", "executor_profile": "p",
    "executor": {"type": "t", "command": "c", "config": {}},
}  # fmt: skip
ASK = {"plugin_id": "mind.x", "permission_type": "NetworkAccess", "justification": "To look something up"}
CHECK = {"agent_id": "agent.a", "server_id": "s", "tool_name": "t", "wait": 15}


@contextlib.contextmanager
def revoked(served: Served, name: str) -> Iterator[None]:
    """Revoke a test's key for the length of the block; every worker takes it again at the end."""
    at = "2026-03-01T00:00:00.000000+00:00"
    served.sql("UPDATE api_keys SET revoked_at = ? WHERE name = ?", (at, name))
    try:
        yield
    finally:
        served.sql("UPDATE api_keys SET revoked_at = NULL WHERE name = ?", (name,))
        for pid in served.all_worker_pids():
            until(functools.partial(_takes, connect(served, to=pid), bearer(name.removeprefix("test-"))))


def _takes(worker: http.client.HTTPConnection, key: dict[str, str]) -> bool:
    worker.request("GET", "/sessions", headers=key)
    answer = worker.getresponse()
    answer.read()
    return answer.status != 401


@pytest.fixture(scope="module")
def runner(shared: Served) -> str:
    return str(shared.client("runner").post("/runner/register", json=IDENTITY).json()["runner_id"])


@contextlib.contextmanager
def held(served: Served, key: str, method: str, path: str, body: Any = None) -> Iterator[Any]:
    """Hold a request for the length of the block; yield what becomes its answer."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(served.client(key).request, method, path, json=body)
        time.sleep(
            0.3
        )  # nothing tells from outside that a call is held; too short only makes the test easier
        assert not answer.done()
        yield answer


def refused(answer: httpx.Response) -> bool:
    return answer.status_code == 401 and "revoked" in answer.json()["detail"]


def ends_with(served: Served, key: str, method: str, path: str, body: Any = None) -> None:
    """Assert that the held request is refused as soon as its key is revoked."""
    with held(served, key, method, path, body) as answer, revoked(served, f"test-{key}"):
        began = time.monotonic()
        assert refused(answer.result(PATIENCE))
        assert time.monotonic() - began < AT_ONCE


def test_a_runners_poll_ends_at_once_with_its_key(shared: Served, runner: str) -> None:
    ends_with(shared, "runner", "GET", f"/runner/runs?runner_id={runner}")


def test_a_wait_for_a_verdict_ends_at_once_with_its_key(shared: Served) -> None:
    request_id = shared.client("agent").post("/api/permission-requests", json=ASK).json()["request_id"]
    ends_with(shared, "agent", "GET", f"/api/permission-requests/{request_id}/wait?timeout=100")


def test_a_wait_for_a_message_ends_at_once_with_its_key(shared: Served) -> None:
    ends_with(shared, "operator", "GET", "/api/chat/agent.cloto_default/messages/wait?timeout=100")


def test_a_wait_for_a_grant_ends_at_once_with_its_key(shared: Served) -> None:
    ends_with(shared, "agent", "POST", "/api/access/check", CHECK)


def test_a_hook_that_waits_ends_at_once_with_its_key_and_closes_its_card(shared: Served) -> None:
    claude = Claude(shared)
    asks = claude.fields("PermissionRequest", tool_name="Bash", tool_input={"command": "ls"})
    ends_with(shared, "agent", "POST", "/hooks/claude-code?wait=100", asks)
    (row,) = shared.sql(
        "SELECT r.status, c.reason FROM permission_requests r JOIN permission_context c"
        " ON c.request_id = r.request_id JOIN sessions s ON s.session_id = c.session_id"
        " WHERE s.executor_session_id = ?",
        (claude.session,),
    )
    assert row == ("withdrawn", KEY_OVER)


def test_a_runner_whose_key_was_revoked_claims_nothing_more(shared: Served, runner: str) -> None:
    order = {
        "type": "start_session",
        "prompt": "a secret",
        "additional_demands": {"hostname": "revoked-host"},
    }
    with (
        held(shared, "runner", "GET", f"/runner/runs?runner_id={runner}") as answer,
        revoked(shared, "test-runner"),
    ):
        ordered = shared.client("operator").post("/runs", json=order).json()
        assert refused(answer.result(PATIENCE))
        assert shared.sql("SELECT status FROM runs WHERE run_id = ?", (ordered["run_id"],)) == [("pending",)]
