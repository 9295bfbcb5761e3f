"""A test through every hop: the very command in an agent's settings, run as the agent would run it."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coordinator.client.connecting import http_requests
from coordinator.client.connecting.connectable_agents import QUICK, ConnectableAgent, HookInvocation

SESSION_WAIT_SECONDS = 10.0  # seconds for a session to appear
TRIAL_SESSION_PREFIX = "signalbox-test-"  # begins the ids of sessions that a trial makes


@dataclass(frozen=True, slots=True)
class TrialStep:
    """A hop that was tried: what, whether it works, and what came of it."""

    what: str
    works: bool
    words: str
    ms: float


def iterate_connection_test_steps(
    agent: ConnectableAgent, call: HookInvocation, url: str, key: str
) -> Iterator[TrialStep]:
    """Try each hop from the agent's hook to a session on the server; stop at the first that fails.

    The session is not deleted: it is where people see that this machine reports.
    """
    mark = f"{TRIAL_SESSION_PREFIX}{uuid.uuid4()}"
    step = run_timed_test_step("Reach the server with the key", lambda: require_server_accepts_key(url, key))
    yield step
    if step.works and agent.trial is not None:
        payloads = agent.trial(mark, os.getcwd())
        step = run_timed_test_step(
            "Run the hook's command", lambda: run_hook_and_return_command(agent, call, payloads)
        )
        yield step
        if step.works:
            yield run_timed_test_step(
                "Find it as a session", lambda: wait_and_describe_test_session(url, key, mark)
            )


def run_timed_test_step(label: str, work: Any) -> TrialStep:
    started_at = time.perf_counter()
    try:
        step_text, works = work(), True
    except (http_requests.ServerRequestFailed, OSError, subprocess.SubprocessError, ValueError) as problem:
        step_text, works = str(problem), False
    return TrialStep(label, works, step_text, (time.perf_counter() - started_at) * 1000)


def require_server_accepts_key(url: str, key: str) -> str:
    http_requests.require_working_key(url, key)
    return url


def run_hook_and_return_command(
    agent: ConnectableAgent, call: HookInvocation, payloads: list[dict[str, Any]]
) -> str:
    for payload in payloads:
        ran = subprocess.run(  # noqa: S602 - agents run hooks in a shell, too
            call.hook_command(agent.name, QUICK),
            shell=True,
            input=json.dumps(payload).encode(),
            capture_output=True,
            timeout=2 * QUICK,
            check=False,
        )
        if ran.returncode:
            error_tail = ran.stderr.decode("utf-8", "replace").strip()[-300:]
            raise ValueError(f"It ended with {ran.returncode}: {error_tail}")
    return call.hook_command(agent.name, QUICK)


def wait_and_describe_test_session(url: str, key: str, mark: str) -> str:
    deadline = time.monotonic() + SESSION_WAIT_SECONDS
    while time.monotonic() < deadline:
        reported_session = http_requests.request_session_id_from_server(url, key, mark)
        if reported_session is not None:
            return f"{reported_session}. It stays in the list of sessions."
        time.sleep(0.1)
    raise http_requests.ServerRequestFailed("The hook was accepted, but its session did not appear.")
