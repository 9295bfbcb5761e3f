"""The response to a client: one JSON body, or an event stream once the client has to wait."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from coordinator.client import sse
from coordinator.lib.asgi import Send
from coordinator.lib.byte_budget import ByteBudget
from coordinator.lib.fair_queue import CALLER
from coordinator.mcp.protocol.http_client import UpstreamFailed

JSON, EVENTS = b"application/json", b"text/event-stream"
Extra = list[tuple[bytes, bytes]]
KEY_ENDED = b'{"detail":"This API key was revoked, or has expired."}'
MAX_UNREAD_BYTES = 192 * 1024 * 1024  # of answers that clients have not read yet, in one process
PIECE = 256 * 1024  # bytes that are handed over at a time: what is not read is copied while it waits

_unread = ByteBudget()


@contextlib.contextmanager
def reserve_unread_bytes_during_block(body: bytes) -> Iterator[None]:
    """Count a body as unread while it is sent. Raises UpstreamFailed where its caller leaves too much unread."""
    caller = CALLER.get()
    if not _unread.try_reserve_sender_bytes(caller, len(body), size=0, total=MAX_UNREAD_BYTES):
        refusal_text = "answered, but its client has not read other large answers yet"
        raise UpstreamFailed(refusal_text, may_have_run=True)
    try:
        yield
    finally:
        _unread.release_bytes_of_sender(caller, len(body))


class ResponseStream:
    """One answer. It is opened as a stream, or given in one piece; after its end nothing more goes out."""

    __slots__ = ("_is_ended", "_send", "extra", "is_over", "is_stream")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.extra: Extra = []
        self.is_stream = False
        self.is_over = False
        self._is_ended = False

    async def open_event_stream(self, status: int = 200) -> None:
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

    async def send_event(self, raw: bytes) -> None:
        """Send an event, as the bytes that it is."""
        if self.is_stream and not self.is_over:
            with reserve_unread_bytes_during_block(raw):
                await self.send_body_chunks(raw, more=True)

    async def end_event_stream(self) -> None:
        """End the stream."""
        if self.is_stream and not self.is_over:
            self.is_over = self._is_ended = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send_answer(self, body: bytes, status: int = 200) -> None:
        """Send a message as the whole answer, or as the last event of the stream."""
        if self.is_over:
            return
        if self.is_stream:
            await self.send_event(sse.build_sse_message_event(body))
            await self.end_event_stream()
            return
        with reserve_unread_bytes_during_block(body):
            self.is_over = self._is_ended = True
            headers = [(b"content-type", JSON), (b"content-length", str(len(body)).encode()), *self.extra]
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self.send_body_chunks(body, more=False)

    async def send_body_chunks(self, body: bytes, *, more: bool) -> None:
        """Send a part of the answer's body; it is the last one without `more`."""
        for begin in range(0, len(body) - PIECE, PIECE):
            await self._send(
                {"type": "http.response.body", "body": body[begin : begin + PIECE], "more_body": True}
            )
        rest = body[max(0, (len(body) - 1) // PIECE * PIECE) :]
        await self._send({"type": "http.response.body", "body": rest, "more_body": more})

    async def send_status_without_body(self, status: int) -> None:
        """Answer with a status alone."""
        if not self.is_over and not self.is_stream:
            self.is_over = self._is_ended = True
            headers = [(b"content-length", b"0"), *self.extra] if status not in {204, 304} else self.extra
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def end_response_without_answer(self) -> None:
        """Answer with nothing: the client does not wait for the answer any more."""
        await self.end_event_stream()
        await self.send_status_without_body(202)

    async def send_key_revoked_and_end(self) -> None:
        """Send a client the error that its key was revoked or has expired, or end its stream."""
        is_open, self.is_over = self.is_stream, False
        if self._is_ended:
            return
        if is_open:
            await self.end_event_stream()
        else:
            await self.send_answer(KEY_ENDED, 401)

    async def send_event_ignoring_disconnect(self, raw: bytes) -> None:
        """Send a sign of life to a client that may be gone."""
        with contextlib.suppress(OSError, RuntimeError):
            await self.send_event(raw)
