"""Draining of the unread part of a request's body after the answer, within limits.

A connection that is closed, or used again, with unread bytes of a body is reset by the kernel, and a client that
is still sending loses the answer. A body that is short or on its way is read to its end, and the connection stays
open. For one that is long, or of unknown length, the answer says `Connection: close`; some of it is read all the
same, so that the client gets to read the answer.
"""

from __future__ import annotations

import asyncio
import contextlib

from coordinator.edge.http.messages import get_request_headers
from coordinator.lib.asgi import Message, Receive, Scope, Send

SHORT = 1024 * 1024  # bytes; a body that says it is no longer is read to its end
MOST_READ = 32 * 1024 * 1024  # bytes of a longer one
READ_SECONDS = 2.0  # seconds for all of it


class UnreadRequestBody:
    """One request's body: `receive` and `send` replace the server's; `read` is called after the answer."""

    __slots__ = ("_is_complete", "_receive", "_send", "_will_end")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        headers = get_request_headers(scope)
        length = headers.get(b"content-length", b"0")
        chunked = b"transfer-encoding" in headers
        self._is_complete = not chunked and length in {b"0", b""}
        # Who asked whether to send it (Expect) and got an answer instead may never do so.
        self._will_end = (
            b"expect" not in headers and length.isdigit() and int(length) <= SHORT and not chunked
        )

    async def receive(self) -> Message:
        """Pass a piece of the body on, and note its end."""
        message = await self._receive()
        # Python 3.11's wait_for, by which the server waits, drops a cancellation that comes together with a piece:
        # whatever limits the time of a body would be over, and the body read for ever.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            self._is_complete = True
        return message

    async def send(self, message: Message) -> None:
        """Pass a piece of the answer on, with `Connection: close` where it comes before the end of a long body."""
        early = message["type"] == "http.response.start" and not self._is_complete
        if early and not self._will_end and b"connection" not in dict(message["headers"]):
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await self._send(message)

    async def discard_remaining_body(self) -> None:
        """Read and drop what is left, up to the bounds. Costs nothing where the body was read."""
        if self._is_complete:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READ_SECONDS):
                size = 0
                while not self._is_complete and size <= MOST_READ:
                    size += len((await self.receive()).get("body", b""))
