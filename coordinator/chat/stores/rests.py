"""When a place that fell silent is asked again: what waits for it are the few threads that pages need too."""

from __future__ import annotations

import threading
import time

REST, MOST_REST = 5.0, 60.0  # seconds for which nothing is asked after a first failure, and after many


class RequestTurn:
    """The right to ask now."""


class StoreCircuitBreaker:
    """While a place answers, everybody may ask. Once it is silent, one at a time, after rests that grow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._trial_request: RequestTurn | None = None
        self._broke = False

    def begin_request(self) -> RequestTurn | None:
        """Return a turn, to be given back by `leave`; None while nothing may be asked."""
        with self._lock:
            turn = RequestTurn()
            if self._failures:
                if self._trial_request is not None or time.monotonic() < self._until:
                    return None
                self._trial_request = turn
            return turn

    def end_request(self, turn: RequestTurn) -> None:
        """Let the next one ask."""
        with self._lock:
            if self._trial_request is turn:
                self._trial_request = None

    def record_success(self) -> None:
        """Note that all is well."""
        with self._lock:
            self._failures, self._broke = 0, False

    def record_silence(self) -> None:
        """Begin a rest; of several who waited together the first does."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._failures += 1
                self._until = time.monotonic() + min(REST * 2 ** (self._failures - 1), MOST_REST)

    def record_broken_answer(self) -> None:
        """Note that an answer ended too early: once may happen, with the second in a row a rest begins."""
        with self._lock:
            before, self._broke = self._broke, True
        if before:
            self.record_silence()
