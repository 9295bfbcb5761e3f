"""Render texts in the sandbox, and cache the answers in this process by the job and its input."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass

from coordinator.sandbox import JobFailed, JobResult, LimitsExceeded, Overloaded, ProcessLimits, Sandbox
from dashboard.rendering import allowance

MAX_CACHED_BYTES = 16 * 1024 * 1024  # of cached answers in each process
ANSWER_BYTES = 4 * 1024 * 1024  # a longer answer counts as too expensive: pages do not show as much
START_SECONDS = 5.0

_sandbox = Sandbox(
    "dashboard.rendering.jobs",
    ProcessLimits(cpu_seconds=2, wall_seconds=6, memory_bytes=512 * 1024 * 1024),
)


class RenderingUnavailable(Exception):
    """There is no rendering of a text, so it is shown plain."""


class RenderingTooExpensive(RenderingUnavailable):
    """Rendering a text exceeds the limits on time or memory, and would do so again."""


class RenderingNotReady(RenderingUnavailable):
    """The time ran out before the rendering was ready. A later request may find it in the cache."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    body: bytes | None  # None if the job exceeded its limits or failed
    is_known: bool = True


class RenderingCache:
    """A cache of the latest answers, at most MAX_CACHED_BYTES, with the futures of jobs in progress."""

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
        """Return the future of a job. Requests for the same key share the job in progress."""
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
            while self._bytes > MAX_CACHED_BYTES:
                self._bytes -= answer_size(self._cached_answers.popitem(last=False)[1])


def cacheable_answer_of_finished_job(future: Future[JobResult]) -> CachedAnswer | None:
    """Return the answer to cache for a finished job, or None if the job was never run.

    A job that failed or exceeded its limits is cached without a body, so that it does not run again.
    """
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
    """Return the sandbox's answer for a text, or None for code in an unknown language.

    Raises RenderingTooExpensive, and RenderingNotReady when the current allowance is used up.
    """
    key = hashlib.sha256("\0".join([job, *facts.values(), ""]).encode("utf-8", "replace") + body).digest()
    cached_result = _answers.get(key)
    if cached_result is None:
        wait_for_sandbox_start()
        try:
            cached_result = require_rendering_job_answer(
                _answers.submit_or_join_rendering_job(key, job, body, facts)
            )
        except Overloaded:
            raise RenderingNotReady from None
    if cached_result.body is None:
        raise RenderingTooExpensive
    return cached_result.body if cached_result.is_known else None


def require_rendering_job_answer(future: Future[JobResult]) -> CachedAnswer:
    try:
        allowance.allowance_of_block_or_new().wait_for(future)
    except TimeoutError:
        raise RenderingNotReady from None
    except (LimitsExceeded, JobFailed):
        pass
    job_outcome = cacheable_answer_of_finished_job(future)
    if job_outcome is None:
        raise RenderingNotReady
    return job_outcome


def wait_for_sandbox_start() -> None:
    """Wait until the child process has started, once in each process and at most START_SECONDS.

    This time does not count against a page's allowance.
    """
    if not _started.is_set():
        try:
            _sandbox.submit_sandbox_job("ready").result(START_SECONDS)
        except (TimeoutError, Overloaded, LimitsExceeded, JobFailed):
            return
        finally:
            _started.set()
