"""Time limits of calls to servers, not counting the time spent waiting for a person."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

PAUSE_MARGIN = 15.0  # seconds in which the end of a pause is noticed


class CallTimeouts:
    """The timeouts that are running for one call. Each is pushed back while a question of the server is open."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Timeout, float] = {}
        self._pauses = 0

    @contextlib.asynccontextmanager
    async def enforce_timeout_during_block(self, seconds: float) -> AsyncIterator[None]:
        """Raise TimeoutError where the block takes longer, pauses not counted."""
        async with asyncio.timeout(seconds) as timeout:
            self._running[timeout] = seconds
            try:
                yield
            finally:
                del self._running[timeout]

    @contextlib.contextmanager
    def extend_timeouts_during_block(self, seconds: float) -> Iterator[None]:
        """Let the block take so many seconds. After the last of several pauses the server has its whole time again."""
        now = asyncio.get_running_loop().time
        self._pauses += 1
        for timeout in self._running:
            if not timeout.expired():
                timeout.reschedule(max(timeout.when() or 0.0, now() + seconds + PAUSE_MARGIN))
        try:
            yield
        finally:
            self._pauses -= 1
            for timeout, seconds_allowed in self._running.items():
                if not self._pauses and not timeout.expired():
                    timeout.reschedule(now() + seconds_allowed)
