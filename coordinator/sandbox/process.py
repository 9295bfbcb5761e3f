"""The server's side of a sandbox: starts the child, hands it jobs one after the other, ends one that is late.

Each server process has its own child, started when it is first needed and again after it ended. One thread talks
to it; whoever wants an answer waits for a future, as long as it has time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coordinator.sandbox import frames
from coordinator.sandbox.limits import ProcessLimits

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 20.0  # what a machine under load may take to start Python and import a few libraries
REST_SECONDS = 5.0  # between two attempts to start a child that cannot be started
MOST_ANSWER = 16 * 1024 * 1024  # bytes
_BOOT = """
import sys
sys.path.insert(0, sys.argv[1])
from coordinator.sandbox.child import confine_process_and_serve_jobs
from coordinator.sandbox.limits import ProcessLimits
import json
confine_process_and_serve_jobs(sys.argv[2], ProcessLimits(**json.loads(sys.argv[3])))
"""


class SandboxError(Exception):
    """A job has no answer. The kinds say whether it is worth another try."""


class LimitsExceeded(SandboxError):
    """The job used up its time or memory, and would do so again."""


class JobFailed(SandboxError):
    """The job raised an exception or ended its process: it cannot use its data."""


class Overloaded(SandboxError):
    """Too many jobs wait, or the child cannot be started. It may work later."""


@dataclass(frozen=True, slots=True)
class JobResult:
    facts: dict[str, Any]
    body: bytes


@dataclass(slots=True)
class SandboxJob:
    data: bytes
    ticket: str  # the answer must bear it: a child that says more than it was asked answers no later job
    future: Future[JobResult]


class Sandbox:
    """A child process that does the jobs of the module `module` within `limits`; child.py is its other side.

    It is started by the first job, and again after it ended. Threads may share one; after a fork it starts anew.
    """

    def __init__(self, module: str, limits: ProcessLimits, *, most_waiting: int = 64) -> None:
        self.module = module
        self.limits = limits
        self.most_waiting = most_waiting
        self._lock = threading.Lock()
        self._owner = 0  # the process whose thread and child these are; a fork has neither
        self._jobs: queue.Queue[SandboxJob] = queue.Queue()
        self._child: SandboxChild | None = None
        self._resting_until = 0.0

    def submit_sandbox_job(self, job: str, body: bytes = b"", **facts: Any) -> Future[JobResult]:
        """Hand in the job named `job` with bytes and facts (JSON), and return its answer's future.

        The future raises LimitsExceeded, JobFailed or Overloaded. Raises Overloaded where too many wait already.
        """
        with self._lock:
            if self._owner != os.getpid():
                self.reset_jobs_and_start_thread()
            if self._jobs.qsize() >= self.most_waiting:
                raise Overloaded("Too many jobs wait.")
            future: Future[JobResult] = Future()
            ticket = secrets.token_hex(16)
            self._jobs.put(
                SandboxJob(frames.pack_frame({**facts, "job": job, "ticket": ticket}, body), ticket, future)
            )
            return future

    def run_sandbox_job(self, job: str, body: bytes = b"", **facts: Any) -> JobResult:
        """Do as `submit` and wait. Raises LimitsExceeded, JobFailed or Overloaded."""
        return self.submit_sandbox_job(job, body, **facts).result()

    @property
    def child_pid(self) -> int | None:
        return self._child.process.pid if self._child else None

    def close(self) -> None:
        """End the child. A later job starts another."""
        self.end_sandbox_child()

    def reset_jobs_and_start_thread(self) -> None:
        self._owner = os.getpid()
        self._jobs = queue.Queue()
        self._child = None
        threading.Thread(
            target=self.serve_sandbox_jobs, args=(self._jobs,), name=self.module, daemon=True
        ).start()

    def serve_sandbox_jobs(self, jobs: queue.Queue[SandboxJob]) -> None:
        while True:
            job = jobs.get()
            if not job.future.set_running_or_notify_cancel():
                continue
            try:
                job.future.set_result(self.execute_sandbox_job(job))
            except SandboxError as problem:
                job.future.set_exception(problem)
            except Exception as problem:  # nobody may wait for ever, whatever went wrong
                log.exception("The sandbox %s is broken", self.module)
                self.end_sandbox_child()
                job.future.set_exception(JobFailed(str(problem)))

    def execute_sandbox_job(self, job: SandboxJob) -> JobResult:
        child = self._child or self.start_sandbox_child()
        try:
            frame = child.exchange_job_frame_or_none(job.data, self.limits.wall_seconds + 1)
        except TimeoutError:
            self.end_sandbox_child()
            raise LimitsExceeded("The job did not end in time.") from None
        except (OSError, frames.BrokenFrame):
            frame = None
        if frame is None:  # most likely the kernel ended it at one of its limits
            self.end_sandbox_child()
            raise LimitsExceeded("The job ended its process.")
        facts, body = frame
        if facts.pop("ticket", None) != job.ticket:
            self.end_sandbox_child()
            raise Overloaded("The child answered another job.")
        status = facts.pop("status", None)
        if status == "done":
            return JobResult(facts, body)
        raise (LimitsExceeded if status == "over" else JobFailed)(str(facts.get("detail", status)))

    def start_sandbox_child(self) -> SandboxChild:
        if time.monotonic() < self._resting_until:
            raise Overloaded("The sandbox could not be started a moment ago.")
        try:
            self._child = SandboxChild(self.module, self.limits)
        except (OSError, frames.BrokenFrame) as problem:
            self._resting_until = time.monotonic() + REST_SECONDS
            log.error("The sandbox %s cannot be started: %s", self.module, problem)
            raise Overloaded("The sandbox cannot be started.") from None
        return self._child

    def end_sandbox_child(self) -> None:
        if self._child is not None:
            self._child.kill_sandbox_child()
            self._child = None


class SandboxChild:
    """One running child process and the socket to it."""

    def __init__(self, module: str, limits: ProcessLimits) -> None:
        self.socket, child_socket = socket.socketpair()
        with child_socket:
            self.process = subprocess.Popen(  # noqa: S603 # our own interpreter and module
                [sys.executable, "-I", "-B", "-c", _BOOT, str(ROOT), module, encode_sandbox_limits(limits)],
                stdin=child_socket.fileno(),
                stdout=child_socket.fileno(),
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        try:
            ready = self.receive_frame_or_none(time.monotonic() + START_SECONDS)
        except OSError:
            self.kill_sandbox_child()
            raise
        if ready is None:
            self.kill_sandbox_child()
            raise frames.BrokenFrame(f"it ended at once with status {self.process.returncode}")

    def exchange_job_frame_or_none(self, data: bytes, seconds: float) -> frames.Frame | None:
        """Send a job and return its answer, or None where the child ended.

        Raises TimeoutError, OSError and BrokenFrame.
        """
        deadline = time.monotonic() + seconds
        self.socket.settimeout(seconds)
        self.socket.sendall(data)
        return self.receive_frame_or_none(deadline)

    def receive_frame_or_none(self, deadline: float) -> frames.Frame | None:
        def receive_bytes(up_to: int) -> bytes:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            return self.socket.recv(up_to)

        return frames.read_frame(receive_bytes, most=MOST_ANSWER)

    def kill_sandbox_child(self) -> None:
        """End the child and what it forked."""
        self.socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def encode_sandbox_limits(limits: ProcessLimits) -> str:
    return json.dumps(asdict(limits))
