"""The host's door: each stdio server as streamable HTTP, for the gateway alone (a socket that only this user opens)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

from coordinator.errors import BadRequest, NotFound, SignalboxError, TooLarge
from coordinator.hosting import envelopes
from coordinator.hosting.backend import INITIALIZE, Backend, Session
from coordinator.hosting.envelopes import Envelope
from coordinator.hosting.pool import Pool
from coordinator.hosting.process import LONGEST_LINE
from coordinator.hosting.streams import Stream, TooSlow
from coordinator.mcp.stdio_host import ASKER, CALLER, STARTED, WHEN_READY

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
SESSION = "mcp-session-id"
ALIVE_EVERY = 15.0  # seconds of silence after which a stream says that it is there
_PATH = re.compile(r"/servers/([^/]+)/mcp")


class Host:
    """The ASGI application."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            await self._answer(scope, receive, send)
        except SignalboxError as problem:
            extra = [(b"retry-after", b"%d" % problem.retry_after)] if problem.retry_after else []
            await _send_json(send, problem.status, {"detail": problem.detail}, extra)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _PATH.fullmatch(scope.get("raw_path", b"").decode("ascii", "replace").partition("?")[0])
        if found is None:
            raise NotFound("There is nothing here.")
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        backend = await self._pool.find(unquote(found[1]), headers.get(CALLER, ""))
        session_id = headers.get(SESSION)
        session = backend.session(session_id) if session_id else None
        if scope["method"] == "POST":
            post = _Post(backend, session, headers.get(ASKER, ""), receive, send)
            await post.answer(when_ready=WHEN_READY in headers)
        elif scope["method"] == "GET" and session is not None:
            await _listen(session, receive, send)
        elif scope["method"] == "DELETE" and session is not None:
            backend.end(session)
            await _send_empty(send, 204)
        else:
            await _send_empty(send, 405)


class _Post:
    """One message of a client, and what comes of it."""

    def __init__(
        self, backend: Backend, session: Session | None, asker: str, receive: Receive, send: Send
    ) -> None:
        self._backend, self._session, self._asker = backend, session, asker
        self._receive, self._send = receive, send

    async def answer(self, *, when_ready: bool) -> None:
        """Pass the message on and answer it; with `when_ready` only to a server that need not be started first."""
        message = await self._read()
        if when_ready and not self._backend.is_ready(self._session):
            await self._backend.get_ready(self._session)
            words = {"detail": "The server was started. Send the call again."}
            await _send_json(self._send, STARTED, words, [])
        elif message.method == INITIALIZE and message.id is not None:
            await self._begin(message)
        elif message.is_request:
            await self._ask(message)
        else:
            await self._backend.say(message, self._session)
            await _send_empty(self._send, 202)

    async def _read(self) -> Envelope:
        body = bytearray()
        while True:
            part = await self._receive()
            if part["type"] == "http.disconnect":
                raise BadRequest("The client went away.")
            body += part.get("body", b"")
            if len(body) > LONGEST_LINE:
                raise TooLarge("The message is too large.")
            if not part.get("more_body"):
                break
        try:
            return envelopes.read(bytes(body))
        except envelopes.NoMessage:
            raise BadRequest("The body is not a JSON-RPC message.") from None

    async def _begin(self, message: Envelope) -> None:
        params = bytes(message.fields.get("params", b"{}"))
        session, greeting = await self._backend.begin(params, self._asker)
        answer = envelopes.result(message.id or b"null", greeting)
        await _send_body(self._send, 200, answer, [(SESSION.encode(), session.id.encode())])

    async def _ask(self, message: Envelope) -> None:
        number, stream = await self._backend.ask(message, self._session)
        gone = asyncio.ensure_future(_gone(self._receive))
        told = asyncio.ensure_future(self._tell(stream))
        try:
            await asyncio.wait({gone, told}, return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                told.result()
        finally:
            gone.cancel()
            told.cancel()
            self._backend.give_up(number)

    async def _tell(self, stream: Stream) -> None:
        """Send the answer as JSON where nothing comes before it, else all of it as a stream of events."""
        message, last = await stream.get()
        if last:
            await (_send_body(self._send, 200, message) if message else _send_empty(self._send, 202))
            return
        await _start_events(self._send)
        await _send_event(self._send, message)
        async for following in _events(stream):
            await _send_event(self._send, following)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def _listen(session: Session, receive: Receive, send: Send) -> None:
    """Send a session's news for as long as its client listens; a newer listener takes an older one's place."""
    if session.news is not None:
        session.news.put(b"", last=True)
    stream = session.news = Stream()
    await _start_events(send)
    gone, told = asyncio.ensure_future(_gone(receive)), asyncio.ensure_future(_tell_news(stream, send))
    try:
        await asyncio.wait({gone, told}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        told.cancel()
        if session.news is stream:
            session.news = None


async def _tell_news(stream: Stream, send: Send) -> None:
    async for message in _events(stream):
        await _send_event(send, message)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _events(stream: Stream) -> AsyncIterator[bytes]:
    """Yield messages to the last, and nothing now and then, as a sign of life."""
    while True:
        try:
            async with asyncio.timeout(ALIVE_EVERY):
                message, last = await stream.get()
        except TimeoutError:
            yield b""
            continue
        except TooSlow:
            return
        if message:
            yield message
        if last:
            return


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _start_events(send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _send_event(send: Send, message: bytes) -> None:
    event = b"event: message\ndata: " + message + b"\n\n" if message else b": alive\n\n"
    await send({"type": "http.response.body", "body": event, "more_body": True})


async def _send_json(send: Send, status: int, value: Any, extra: list[tuple[bytes, bytes]]) -> None:
    await _send_body(send, status, json.dumps(value).encode(), extra)


async def _send_body(
    send: Send, status: int, body: bytes, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *(extra or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_empty(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
