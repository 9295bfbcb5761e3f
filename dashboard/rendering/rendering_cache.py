"""Asks the sandbox to draw a text, and keeps the answers of this process by what was asked."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass

from coordinator.sandbox import JobFailed, JobResult, LimitsExceeded, Overloaded, ProcessLimits, Sandbox
from dashboard.rendering import allowance

KEPT_BYTES = 16 * 1024 * 1024  # of answers in each process
ANSWER_BYTES = 4 * 1024 * 1024  # a longer answer is none: pages do not draw as much
START_SECONDS = 5.0

_sandbox = Sandbox(
    "dashboard.rendering.jobs",
    ProcessLimits(cpu_seconds=2, wall_seconds=6, memory_bytes=512 * 1024 * 1024),
)


class RenderingUnavailable(Exception):
    """The text is shown plain."""


class RenderingTooExpensive(RenderingUnavailable):
    """It takes more time or memory than it may, whoever asks."""


class RenderingNotReady(RenderingUnavailable):
    """There was no time left for it. It may be there the next time."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    body: bytes | None  # None: too much
    is_known: bool = True


class RenderingCache:
    """The newest answers of at most KEPT_BYTES, and the futures of those that are being made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cached_answers: OrderedDict[bytes, CachedAnswer] = OrderedDict()
        self._bytes = 0
        self._making: dict[bytes, Future[JobResult]] = {}

    def get(self, key: bytes) -> CachedAnswer | None:
        with self._lock:
            if key in self._cached_answers:
                self._cached_answers.move_to_end(key)
            return self._cached_answers.get(key)

    def submit_or_join_rendering_job(
        self, key: bytes, job: str, body: bytes, facts: dict[str, str]
    ) -> Future[JobResult]:
        """Return the future of an answer; whoever asks for the same meanwhile gets the same one."""
        with self._lock:
            if (making := self._making.get(key)) is not None:
                return making
            future = self._making[key] = _sandbox.submit_sandbox_job(job, body, **facts)
        future.add_done_callback(lambda done: self._store_answer(key, done))
        return future

    def _store_answer(self, key: bytes, future: Future[JobResult]) -> None:
        job_outcome = cacheable_answer_of_finished_job(future)
        with self._lock:
            self._making.pop(key, None)
            if job_outcome is None or key in self._cached_answers:
                return
            self._cached_answers[key] = job_outcome
            self._bytes += answer_size(job_outcome)
            while self._bytes > KEPT_BYTES:
                self._bytes -= answer_size(self._cached_answers.popitem(last=False)[1])


def cacheable_answer_of_finished_job(future: Future[JobResult]) -> CachedAnswer | None:
    """Return what is to be kept of a finished job; nothing where it was never begun."""
    problem = future.exception()
    if isinstance(problem, LimitsExceeded | JobFailed):
        return CachedAnswer(None)
    if problem is not None:
        return None
    answer = future.result()
    too_long = len(answer.body) > ANSWER_BYTES
    return CachedAnswer(None if too_long else answer.body, is_known=bool(answer.facts.get("known", True)))


def answer_size(cached_answer: CachedAnswer) -> int:
    return 200 + len(cached_answer.body or b"")


_answers = RenderingCache()
_started = threading.Event()


def render_in_sandbox(job: str, body: bytes, **facts: str) -> bytes | None:
    """Return what the sandbox makes of a text, or None for code of a language that it does not know.

    Raises RenderingTooExpensive, and RenderingNotReady where the allowance in force is used up.
    """
    key = hashlib.sha256("\0".join([job, *facts.values(), ""]).encode("utf-8", "replace") + body).digest()
    cached_result = _answers.get(key)
    if cached_result is None:
        wait_for_sandbox_start()
        try:
            cached_result = wait_for_rendering_job_answer(
                _answers.submit_or_join_rendering_job(key, job, body, facts)
            )
        except Overloaded:
            raise RenderingNotReady from None
    if cached_result.body is None:
        raise RenderingTooExpensive
    return cached_result.body if cached_result.is_known else None


def wait_for_rendering_job_answer(future: Future[JobResult]) -> CachedAnswer:
    try:
        allowance.current_allowance().wait_for(future)
    except TimeoutError:
        raise RenderingNotReady from None
    except (LimitsExceeded, JobFailed):
        pass
    job_outcome = cacheable_answer_of_finished_job(future)
    if job_outcome is None:
        raise RenderingNotReady
    return job_outcome


def wait_for_sandbox_start() -> None:
    """Wait for the first start of the child: no page is charged for that."""
    if not _started.is_set():
        try:
            _sandbox.submit_sandbox_job("ready").result(START_SECONDS)
        except (TimeoutError, Overloaded, LimitsExceeded, JobFailed):
            return
        finally:
            _started.set()
