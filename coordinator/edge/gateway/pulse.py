"""Signs of life for clients that wait: one clock for all of them, progress where they asked for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from coordinator.edge.gateway.exchange import Exchange
from coordinator.gateway import answers, sse

EVERY = 5.0  # seconds
SILENT = b": waits\n\n"


class Pulse:
    """Who is told that their call still waits. One a process."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[Exchange, str, int]] = {}
        self._clock: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def beating(self, x: Exchange, words: str) -> Iterator[None]:
        """Tell the client that it waits, with `words`, now and then, as long as the block lasts."""
        if not x.line.is_stream:
            yield
            return
        place = id(x)
        self._waiting[place] = x, words, 0
        if self._clock is None or self._clock.done():
            self._clock = asyncio.ensure_future(self._run())
        try:
            yield
        finally:
            del self._waiting[place]

    async def _run(self) -> None:
        pause = 0.05  # who has just come is told soon
        while self._waiting:
            await asyncio.sleep(pause)
            pause = EVERY
            for place, (x, words, count) in list(self._waiting.items()):
                if place in self._waiting:
                    self._waiting[place] = x, words, count + 1
                    await x.line.try_event(_sign(x, words, count + 1))


def _sign(x: Exchange, words: str, count: int) -> bytes:
    token = x.message.progress_token
    if token is None:
        return SILENT
    # The server's own progress comes after ours, begins at nothing, and must not fall behind.
    told = {"progressToken": token, "progress": count / 1_000_000, "message": words}
    return sse.event(answers.notification("notifications/progress", told))
