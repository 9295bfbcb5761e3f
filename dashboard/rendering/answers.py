"""Asks the sandbox to draw a text, and keeps the answers of this process by what was asked."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass

from coordinator.sandbox import JobFailed, JobResult, Limits, LimitsExceeded, Overloaded, Sandbox
from dashboard.rendering import allowance

KEPT_BYTES = 16 * 1024 * 1024  # of answers in each process
ANSWER_BYTES = 4 * 1024 * 1024  # a longer answer is none: pages do not draw as much
START_SECONDS = 5.0

_sandbox = Sandbox(
    "dashboard.rendering.jobs",
    Limits(cpu_seconds=2, wall_seconds=6, memory_bytes=512 * 1024 * 1024),
)


class NoAnswer(Exception):
    """The text is shown plain."""


class TooMuch(NoAnswer):
    """It takes more time or memory than it may, whoever asks."""


class NotYet(NoAnswer):
    """There was no time left for it. It may be there the next time."""


@dataclass(frozen=True, slots=True)
class _CachedAnswer:
    body: bytes | None  # None: too much
    known: bool = True


class _Answers:
    """The newest answers of at most KEPT_BYTES, and the futures of those that are being made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, _CachedAnswer] = OrderedDict()
        self._bytes = 0
        self._making: dict[bytes, Future[JobResult]] = {}

    def get(self, key: bytes) -> _CachedAnswer | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def make(self, key: bytes, job: str, body: bytes, facts: dict[str, str]) -> Future[JobResult]:
        """Return the future of an answer; whoever asks for the same meanwhile gets the same one."""
        with self._lock:
            if (making := self._making.get(key)) is not None:
                return making
            future = self._making[key] = _sandbox.submit(job, body, **facts)
        future.add_done_callback(lambda done: self._keep(key, done))
        return future

    def _keep(self, key: bytes, future: Future[JobResult]) -> None:
        made = _outcome(future)
        with self._lock:
            self._making.pop(key, None)
            if made is None or key in self._kept:
                return
            self._kept[key] = made
            self._bytes += _size(made)
            while self._bytes > KEPT_BYTES:
                self._bytes -= _size(self._kept.popitem(last=False)[1])


def _outcome(future: Future[JobResult]) -> _CachedAnswer | None:
    """Return what is to be kept of a finished job; nothing where it was never begun."""
    problem = future.exception()
    if isinstance(problem, LimitsExceeded | JobFailed):
        return _CachedAnswer(None)
    if problem is not None:
        return None
    answer = future.result()
    too_long = len(answer.body) > ANSWER_BYTES
    return _CachedAnswer(None if too_long else answer.body, known=bool(answer.facts.get("known", True)))


def _size(made: _CachedAnswer) -> int:
    return 200 + len(made.body or b"")


_answers = _Answers()
_started = threading.Event()


def ask(job: str, body: bytes, **facts: str) -> bytes | None:
    """Return what the sandbox makes of a text, or None for code of a language that it does not know.

    Raises TooMuch, and NotYet where the allowance in force is used up.
    """
    key = hashlib.sha256("\0".join([job, *facts.values(), ""]).encode("utf-8", "replace") + body).digest()
    made = _answers.get(key)
    if made is None:
        _answers_come()
        try:
            made = _outcome_in_time(_answers.make(key, job, body, facts))
        except Overloaded:
            raise NotYet from None
    if made.body is None:
        raise TooMuch
    return made.body if made.known else None


def _outcome_in_time(future: Future[JobResult]) -> _CachedAnswer:
    try:
        allowance.current().wait_for(future)
    except TimeoutError:
        raise NotYet from None
    except (LimitsExceeded, JobFailed):
        pass
    made = _outcome(future)
    if made is None:
        raise NotYet
    return made


def _answers_come() -> None:
    """Wait for the first start of the child: no page is charged for that."""
    if not _started.is_set():
        try:
            _sandbox.submit("ready").result(START_SECONDS)
        except (TimeoutError, Overloaded, LimitsExceeded, JobFailed):
            return
        finally:
            _started.set()
