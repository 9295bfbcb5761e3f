"""Streams to a server's caller: the answer to one request with the messages before it, or a session's notifications."""

from __future__ import annotations

import asyncio
from collections import deque

MOST_BYTES = 32 * 1024 * 1024  # that wait for a slow reader


class ReaderTooSlow(Exception):
    """The reader did not keep up, and its stream was cut."""


class MessageStream:
    """Messages on their way to one reader. The last one ends it."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[bytes, bool]] = deque()
        self._bytes = 0
        self._has_messages = asyncio.Event()
        self._cut = False

    def put(self, message: bytes, *, last: bool = False) -> None:
        self._bytes += len(message)
        if self._bytes > MOST_BYTES and not last:
            self._cut = True
        else:
            self._waiting.append((message, last))
        self._has_messages.set()

    async def get(self) -> tuple[bytes, bool]:
        """Return the next message, and whether it is the last. Raises ReaderTooSlow."""
        while not self._waiting:
            if self._cut:
                raise ReaderTooSlow
            self._has_messages.clear()
            await self._has_messages.wait()
        message, last = self._waiting.popleft()
        self._bytes -= len(message)
        return message, last
