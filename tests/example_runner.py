"""A small runner with an agent that repeats what it is told: what a real runner says to the coordinator.

It speaks HTTP only. Try it: `python -m tests.example_runner --url http://127.0.0.1:8765 --key sbx_…`
A prompt such as `[[delay:4]] hello` makes its agent think for 4 seconds; `[[fail]]` makes it fail.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import socket
import threading
import time
import uuid
from datetime import UTC, datetime
from typing import Any

import httpx

PATIENCE = 15  # attempts, a second apart
DELAY = re.compile(r"\[\[delay:(\d+(?:\.\d+)?)\]\]")


class ExampleRunner:
    """Registers, polls, and runs each run in a thread of its own, until it is told to end."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        hostname: str | None = None,
        tags: list[str] | None = None,
        newest: bool = False,
    ) -> None:
        self.client = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=35, verify=False
        )
        self.identity = {
            "hostname": hostname or socket.gethostname(),
            "project_dir": "/home/dev/project",
            "executor_profile": "example",
        }
        self.tags = tags or []
        self.newest = newest  # its executors outlive their runs, as those of the newest version do
        self.runner_id = ""
        self.ending = threading.Event()
        self.stops: dict[str, threading.Event] = {}
        self.took: list[dict[str, Any]] = []
        self.kept: dict[str, str] = {}  # sessions whose process waits, by the run that it ran last
        self.executors: list[threading.Thread] = []
        self.thread = threading.Thread(target=self.work, daemon=True)

    def __enter__(self) -> ExampleRunner:
        self.register()
        self.thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.ending.set()
        for stop in self.stops.values():
            stop.set()
        for executor in self.executors:
            executor.join(5)
        with contextlib.suppress(httpx.TransportError):
            self.client.delete(f"/runners/{self.runner_id}", params={"self": "true"})

    def register(self) -> None:
        """Say who this is and what it offers."""
        executor: dict[str, Any] = {"type": "example", "command": "none", "config": {}}
        if self.newest:
            executor |= {"type": "autonomous", "lifecycle": "persistent"}
        body = {**self.identity, "executor": executor, "tags": self.tags}
        self.runner_id = self.call("POST", "/runner/register", body)["runner_id"]

    def work(self) -> None:
        """Poll until told to end; a coordinator that stays away ends it too."""
        failures = 0
        while not self.ending.is_set() and failures < PATIENCE:
            try:
                answer = self.client.get("/runner/runs", params={"runner_id": self.runner_id})
                answer.raise_for_status()
            except httpx.HTTPError:
                failures += 1
                self.ending.wait(1)
                continue
            failures = 0
            if answer.status_code == 200:
                self.heed(answer.json())

    def heed(self, answer: dict[str, Any]) -> None:
        """Do what a poll's answer says."""
        if self.newest and "stop_sessions" in answer:
            for session_id in answer["stop_sessions"]:
                self.end_process(session_id)
        elif "stop_runs" in answer:
            for run_id in answer["stop_runs"]:
                if run_id in self.stops:
                    self.stops[run_id].set()
        elif answer.get("deregistered"):
            self.ending.set()
        elif "run" in answer:
            run = answer["run"]
            self.took.append(run)
            self.stops[run["run_id"]] = threading.Event()
            self.report(run, "started")
            self.executors.append(threading.Thread(target=self.execute, args=(run,), daemon=True))
            self.executors[-1].start()

    def execute(self, run: dict[str, Any]) -> None:
        """Be the run's executor: bind, think, speak, end; then report what came of it."""
        if run["type"] == "start_session":
            binding = {**self.identity, "executor_session_id": str(uuid.uuid4())}
            del binding["project_dir"]
            self.call("POST", f"/sessions/{run['session_id']}/bind", binding)
        prompt = run["parameters"]["prompt"] if self.newest else run["prompt"]
        self.say(run, "user", prompt)
        delay = DELAY.search(prompt)
        if self.stops[run["run_id"]].wait(float(delay[1]) if delay else 0):
            self.report(run, "stopped", signal="SIGTERM")
        elif "[[fail]]" in prompt:
            self.report(run, "failed", error="Process exited with code 1")
        elif self.newest:
            self.say(run, "assistant", f"[EXAMPLE] Received: {prompt}")
            self.kept[run["session_id"]] = run["run_id"]
            self.report(run, "completed", status="success", session_status="idle")
        else:
            self.say(run, "assistant", f"[EXAMPLE] Received: {prompt}")
            self.event(run, "session_stop", exit_code=0, reason="completed")
            self.report(run, "completed", status="success")

    def end_process(self, session_id: str) -> None:
        """End a session's process: the one that waits in it, or the one that runs in it."""
        if self.kept.pop(session_id, None) is not None:
            body = {"runner_id": self.runner_id, "status": "finished"}
            with contextlib.suppress(httpx.HTTPError):
                self.call("POST", f"/runner/sessions/{session_id}/status", body)
        for run in self.took:
            if run["session_id"] == session_id and run["run_id"] in self.stops:
                self.stops[run["run_id"]].set()

    def say(self, run: dict[str, Any], role: str, text: str) -> None:
        """Send a message of the conversation."""
        self.event(run, "message", role=role, content=[{"type": "text", "text": text}])

    def event(self, run: dict[str, Any], event_type: str, **fields: Any) -> None:
        """Send an event."""
        body = {
            "event_type": event_type,
            "session_id": run["session_id"],
            "timestamp": datetime.now(UTC).isoformat(),
            **fields,
        }
        self.call("POST", f"/sessions/{run['session_id']}/events", body)

    def report(self, run: dict[str, Any], what: str, **fields: Any) -> None:
        """Report on a run; an error is no reason to end."""
        with contextlib.suppress(httpx.HTTPError):
            self.call("POST", f"/runner/runs/{run['run_id']}/{what}", {"runner_id": self.runner_id, **fields})

    def call(self, method: str, path: str, body: Any) -> Any:
        """Send a request, again while the coordinator restarts or is busy; return the answer. Raises for an error."""
        for attempt in range(PATIENCE):
            try:
                answer = self.client.request(method, path, json=body)
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or attempt == PATIENCE - 1:
                    break
            except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
                if attempt == PATIENCE - 1:
                    raise
            time.sleep(1)
        answer.raise_for_status()
        return answer.json()


def main() -> None:
    """Run until Ctrl-C."""
    parser = argparse.ArgumentParser(description="A small example runner.")
    parser.add_argument("--url", default="http://127.0.0.1:8765")
    parser.add_argument("--key", required=True, help="an API key with the scope runner")
    arguments = parser.parse_args()
    with ExampleRunner(arguments.url, arguments.key) as runner, contextlib.suppress(KeyboardInterrupt):
        runner.thread.join()


if __name__ == "__main__":
    main()
