"""The circuit breaker of a file store, which keeps the few threads that pages need from waiting for a silent store."""

from __future__ import annotations

import threading
import time

OPEN_SECONDS, MAX_OPEN_SECONDS = 5.0, 60.0  # without requests after a first failure, and at most after many


class RequestTurn:
    """The right to send a request now."""


class StoreCircuitBreaker:
    """Closed while the store answers. After a failure it opens, each time for longer, and lets one request try then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._trial_request: RequestTurn | None = None
        self._broke = False

    def acquire_request_turn_or_none(self) -> RequestTurn | None:
        """Return a turn, to be ended by `release_request_turn`; None while nothing may be sent."""
        with self._lock:
            turn = RequestTurn()
            if self._failures:
                if self._trial_request is not None or time.monotonic() < self._until:
                    return None
                self._trial_request = turn
            return turn

    def release_request_turn(self, turn: RequestTurn) -> None:
        """End a turn. After a failure the next request may try."""
        with self._lock:
            if self._trial_request is turn:
                self._trial_request = None

    def record_success(self) -> None:
        """Close the circuit breaker."""
        with self._lock:
            self._failures, self._broke = 0, False

    def open_after_missing_response(self) -> None:
        """Open the circuit breaker; of several requests that waited together the first one does."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._failures += 1
                self._until = time.monotonic() + min(
                    OPEN_SECONDS * 2 ** (self._failures - 1), MAX_OPEN_SECONDS
                )

    def record_incomplete_response(self) -> None:
        """Note that an answer ended too early. The second one in a row opens the circuit breaker."""
        with self._lock:
            before, self._broke = self._broke, True
        if before:
            self.open_after_missing_response()
