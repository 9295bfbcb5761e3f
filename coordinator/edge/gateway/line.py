"""The way back to a client: one JSON body, or a stream of events once somebody has to wait."""

from __future__ import annotations

import contextlib

from coordinator.gateway import sse
from coordinator.lib.asgi import Send

JSON, EVENTS = b"application/json", b"text/event-stream"
Extra = list[tuple[bytes, bytes]]
KEY_ENDED = b'{"detail":"This API key was revoked, or has expired."}'


class Line:
    """One answer. It is opened as a stream, or given in one piece; after its end nothing more goes out."""

    __slots__ = ("_is_ended", "_send", "extra", "is_over", "is_stream")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.extra: Extra = []
        self.is_stream = False
        self.is_over = False
        self._is_ended = False

    async def open(self, status: int = 200) -> None:
        """Begin a stream of events, unless it is begun."""
        if self.is_stream or self.is_over:
            return
        self.is_stream = True
        headers = [
            (b"content-type", EVENTS),
            (b"cache-control", b"no-cache, no-transform"),
            (b"x-accel-buffering", b"no"),
            *self.extra,
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def event(self, raw: bytes) -> None:
        """Send an event, as the bytes that it is."""
        if self.is_stream and not self.is_over:
            await self._send({"type": "http.response.body", "body": raw, "more_body": True})

    async def end(self) -> None:
        """End the stream."""
        if self.is_stream and not self.is_over:
            self.is_over = self._is_ended = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def answer(self, body: bytes, status: int = 200) -> None:
        """Send a message as the whole answer, or as the last event of the stream."""
        if self.is_over:
            return
        if self.is_stream:
            await self.event(sse.event(body))
            await self.end()
            return
        self.is_over = self._is_ended = True
        headers = [(b"content-type", JSON), (b"content-length", str(len(body)).encode()), *self.extra]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def empty(self, status: int) -> None:
        """Answer with a status alone."""
        if not self.is_over and not self.is_stream:
            self.is_over = self._is_ended = True
            headers = [(b"content-length", b"0"), *self.extra] if status not in {204, 304} else self.extra
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def let_go(self) -> None:
        """Answer with nothing: the client does not wait for the answer any more."""
        await self.end()
        await self.empty(202)

    async def cut(self) -> None:
        """Tell a client that it may not stay, or end its stream: its key has been revoked, or has expired."""
        is_open, self.is_over = self.is_stream, False
        if self._is_ended:
            return
        if is_open:
            await self.end()
        else:
            await self.answer(KEY_ENDED, 401)

    async def try_event(self, raw: bytes) -> None:
        """Send a sign of life to a client that may be gone."""
        with contextlib.suppress(OSError, RuntimeError):
            await self.event(raw)
