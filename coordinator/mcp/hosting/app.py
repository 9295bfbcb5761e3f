"""The host's endpoint: stdio servers over streamable HTTP, for the gateway alone, on a socket of this user only."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

from coordinator.client.message_lines import MAX_LINE_BYTES
from coordinator.errors import BadRequest, NotFound, RequestTooLarge, SignalboxError
from coordinator.mcp.hosting.backend import INITIALIZE, StdioBackend, StdioSession
from coordinator.mcp.hosting.pool import BackendPool
from coordinator.mcp.hosting.streams import MessageStream, ReaderTooSlow
from coordinator.mcp.protocol import envelopes
from coordinator.mcp.protocol.envelopes import Envelope
from coordinator.mcp.servers.stdio_host import ASKER, CALLER, STARTED, WHEN_READY

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
SESSION = "mcp-session-id"
ALIVE_EVERY = 15.0  # seconds of silence after which a stream says that it is there
_PATH = re.compile(r"/servers/([^/]+)/mcp")


class StdioHost:
    """The ASGI application."""

    def __init__(self, pool: BackendPool) -> None:
        self._pool = pool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            await self.route_host_request(scope, receive, send)
        except SignalboxError as problem:
            extra = [(b"retry-after", b"%d" % problem.retry_after)] if problem.retry_after else []
            await send_asgi_json_response(send, problem.status, {"detail": problem.detail}, extra)

    async def route_host_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = _PATH.fullmatch(scope.get("raw_path", b"").decode("ascii", "replace").partition("?")[0])
        if match is None:
            raise NotFound("There is nothing here.")
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        backend = await self._pool.get_or_create_backend(unquote(match[1]), headers.get(CALLER, ""))
        session_id = headers.get(SESSION)
        session = backend.require_and_touch_stdio_session(session_id) if session_id else None
        if scope["method"] == "POST":
            post = ClientPost(backend, session, headers.get(ASKER, ""), receive, send)
            await post.answer_posted_message(when_ready=WHEN_READY in headers)
        elif scope["method"] == "GET" and session is not None:
            await stream_session_updates(session, receive, send)
        elif scope["method"] == "DELETE" and session is not None:
            backend.end_session_and_cancel_requests(session)
            await send_asgi_empty_response(send, 204)
        else:
            await send_asgi_empty_response(send, 405)


class ClientPost:
    """One message of a client, and what comes of it."""

    def __init__(
        self, backend: StdioBackend, session: StdioSession | None, asker: str, receive: Receive, send: Send
    ) -> None:
        self._backend, self._session, self._asker = backend, session, asker
        self._receive, self._send = receive, send

    async def answer_posted_message(self, *, when_ready: bool) -> None:
        """Pass the message on and answer it; with `when_ready` only to a server that need not be started first."""
        message = await self.require_posted_envelope()
        if when_ready and not self._backend.can_forward_request_now(self._session):
            await self._backend.ensure_process_initialized(self._session)
            retry_answer = {"detail": "The server was started. Send the call again."}
            await send_asgi_json_response(self._send, STARTED, retry_answer, [])
        elif message.method == INITIALIZE and message.id is not None:
            await self.answer_initialize_with_session(message)
        elif message.is_request:
            await self.forward_request_and_send_answer(message)
        else:
            await self._backend.forward_client_message(message, self._session)
            await send_asgi_empty_response(self._send, 202)

    async def require_posted_envelope(self) -> Envelope:
        body = bytearray()
        while True:
            part = await self._receive()
            if part["type"] == "http.disconnect":
                raise BadRequest("The client went away.")
            body += part.get("body", b"")
            if len(body) > MAX_LINE_BYTES:
                raise RequestTooLarge("The message is too large.")
            if not part.get("more_body"):
                break
        try:
            return envelopes.parse_envelope(bytes(body))
        except envelopes.InvalidEnvelope:
            raise BadRequest("The body is not a JSON-RPC message.") from None

    async def answer_initialize_with_session(self, message: Envelope) -> None:
        params = bytes(message.fields.get("params", b"{}"))
        session, greeting = await self._backend.begin_session_with_initialize_answer(params, self._asker)
        answer = envelopes.build_result_line(message.id or b"null", greeting)
        await send_asgi_response_body(self._send, 200, answer, [(SESSION.encode(), session.id.encode())])

    async def forward_request_and_send_answer(self, message: Envelope) -> None:
        number, stream = await self._backend.send_request_and_open_stream(message, self._session)
        client_gone = asyncio.ensure_future(wait_until_client_gone(self._receive))
        sending = asyncio.ensure_future(self.send_answer_as_json_or_sse(stream))
        try:
            await asyncio.wait({client_gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            client_gone.cancel()
            sending.cancel()
            self._backend.cancel_pending_request(number)

    async def send_answer_as_json_or_sse(self, stream: MessageStream) -> None:
        """Send the answer as JSON where nothing comes before it, else all of it as a stream of events."""
        message, last = await stream.get()
        if last:
            await (
                send_asgi_response_body(self._send, 200, message)
                if message
                else send_asgi_empty_response(self._send, 202)
            )
            return
        await start_event_stream(self._send)
        await send_stream_event(self._send, message)
        async for following in iterate_messages_with_keep_alives(stream):
            await send_stream_event(self._send, following)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def stream_session_updates(session: StdioSession, receive: Receive, send: Send) -> None:
    """Send a session's notifications while its client listens; a newer listener replaces an older one."""
    if session.message_stream is not None:
        session.message_stream.put(b"", last=True)
    stream = session.message_stream = MessageStream()
    await start_event_stream(send)
    client_gone, sending = (
        asyncio.ensure_future(wait_until_client_gone(receive)),
        asyncio.ensure_future(send_session_updates(stream, send)),
    )
    try:
        await asyncio.wait({client_gone, sending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        client_gone.cancel()
        sending.cancel()
        if session.message_stream is stream:
            session.message_stream = None


async def send_session_updates(stream: MessageStream, send: Send) -> None:
    async for message in iterate_messages_with_keep_alives(stream):
        await send_stream_event(send, message)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def iterate_messages_with_keep_alives(stream: MessageStream) -> AsyncIterator[bytes]:
    """Yield messages to the last, and nothing now and then, as a sign of life."""
    while True:
        try:
            async with asyncio.timeout(ALIVE_EVERY):
                message, last = await stream.get()
        except TimeoutError:
            yield b""
            continue
        except ReaderTooSlow:
            return
        if message:
            yield message
        if last:
            return


async def wait_until_client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def start_event_stream(send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def send_stream_event(send: Send, message: bytes) -> None:
    event = b"event: message\ndata: " + message + b"\n\n" if message else b": alive\n\n"
    await send({"type": "http.response.body", "body": event, "more_body": True})


async def send_asgi_json_response(
    send: Send, status: int, value: Any, extra: list[tuple[bytes, bytes]]
) -> None:
    await send_asgi_response_body(send, status, json.dumps(value).encode(), extra)


async def send_asgi_response_body(
    send: Send, status: int, body: bytes, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *(extra or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_asgi_empty_response(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
