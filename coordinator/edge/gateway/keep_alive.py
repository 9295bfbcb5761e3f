"""Keep-alives for waiting clients: one timer for all, sent as progress notifications where requested."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator

from coordinator.client import sse
from coordinator.edge.gateway.exchange import Exchange
from coordinator.mcp.gateway import answers

EVERY = 5.0  # seconds
FIRST_AFTER = 0.05  # seconds until the first keep-alive of a new client
SILENT = b": waits\n\n"


class ClientKeepAlive:
    """Sends keep-alives to the clients whose calls wait. One a process."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[Exchange, str, int]] = {}
        self._numbers = itertools.count()
        self._clock: asyncio.Task[None] | None = None
        self._keep_alive_tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def send_keep_alives_during_block(self, exchange: Exchange, text: str) -> Iterator[None]:
        """Send the client keep-alives with `text` at intervals while the block runs."""
        if not exchange.line.is_stream:
            yield
            return
        number = next(self._numbers)
        self._waiting[number] = exchange, text, 0
        if self._clock is None or self._clock.done():
            self._clock = asyncio.ensure_future(self.send_keep_alives_periodically())
        first = asyncio.get_running_loop().call_later(FIRST_AFTER, self.start_one_keep_alive_task, number)
        try:
            yield
        finally:
            first.cancel()
            del self._waiting[number]

    def start_one_keep_alive_task(self, index: int) -> None:
        task = asyncio.ensure_future(self.send_keep_alive(index))
        self._keep_alive_tasks.add(task)
        task.add_done_callback(self._keep_alive_tasks.discard)

    async def send_keep_alives_periodically(self) -> None:
        while self._waiting:
            await asyncio.sleep(EVERY)
            for number in list(self._waiting):
                await self.send_keep_alive(number)

    async def send_keep_alive(self, index: int) -> None:
        if index in self._waiting:
            exchange, progress_message, count = self._waiting[index]
            self._waiting[index] = exchange, progress_message, count + 1
            await exchange.line.send_event_ignoring_disconnect(
                build_keep_alive(exchange, progress_message, count + 1)
            )


def build_keep_alive(exchange: Exchange, text: str, count: int) -> bytes:
    token = exchange.message.progress_token
    if token is None:
        return SILENT
    # The server's own progress comes after ours, begins at nothing, and must not fall behind.
    progress_params = {"progressToken": token, "progress": count / 1_000_000, "message": text}
    return sse.build_sse_message_event(answers.encode_notification("notifications/progress", progress_params))
