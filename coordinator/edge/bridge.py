"""Django behind the edge: an ordinary WSGI application in a small, bounded, persistent pool of threads.

Why not Django's own ASGI handler: it starts a thread and a database connection for every request and keeps
them as long as the response lasts; a few open streams then cost more than the whole site. Here the threads
are few and live as long as the worker, so a connection per thread may live as long too.

A streamed answer (a download, an export) moves to a thread of its own, its *lane*, before its first chunk is
made: a client that reads slowly then holds a lane, never one of the threads that pages need, and the
queries of a lazily made answer all run on one connection. A file that is known to be small (a style sheet) is
sent whole instead: a browser fetches a dozen of them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any
from urllib.parse import unquote_to_bytes

from coordinator.edge.peers import FORWARDING_HEADERS, is_forwarded, is_trusted_proxy, peer_of

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

log = logging.getLogger(__name__)

SPOOL_BYTES = 1024 * 1024  # a larger body waits on disk, not in memory
QUEUED_PER_THREAD = 64  # requests that may wait for a thread before the next is told to come back
LANES = 8  # streamed answers at one time per worker
QUEUED_STREAMS = 32  # that may wait for a lane
WHOLE_BYTES = 1024 * 1024  # a streamed answer that says it is no longer than this is sent at once
SEND_TIMEOUT = 60.0  # seconds a client may take to accept one chunk of a streamed answer


class ClientGone(Exception):
    """The client closed the connection; whatever was being made for it is dropped."""


class BodyCutShort(ClientGone):
    """The body did not arrive whole: the client is gone, or sends nothing any more."""


class BodyTooLarge(Exception):
    """The body is over the limit; nothing was handed to Django."""


class DjangoBridge:
    """An ASGI callable that runs a WSGI application in `threads` threads.

    `max_body` is in bytes (413 beyond it, before a thread is taken). A request that finds the queue full is
    answered 503 with Retry-After. A client that goes away while its request is queued costs nothing more.
    """

    def __init__(self, application: WsgiApplication, *, threads: int, max_body: int) -> None:
        self.application = application
        self.max_body = max_body
        self.capacity = threads * QUEUED_PER_THREAD
        self.queued = 0
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="django")
        self.lanes = ThreadPoolExecutor(LANES, thread_name_prefix="lane")
        self.streaming = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if self.queued >= self.capacity:
            await send_plain(send, 503, "All workers are busy. Try again in a second.", retry_after=1)
            return
        self.queued += 1
        try:
            await self._answer(scope, receive, send)
        except BodyCutShort:
            await send_plain(
                send, 408, "The request did not arrive whole in time. Send it again.", close=True
            )
        except ClientGone:
            log.debug("client went away: %s", scope["path"])
        except BodyTooLarge:
            await send_plain(send, 413, f"The body is larger than {self.max_body} bytes.", close=True)
        finally:
            self.queued -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        with await read_body(scope, receive, self.max_body) as body:
            exchange = Exchange(self.application, environ_of(scope, body))
            watcher = asyncio.ensure_future(exchange.watch(receive))
            try:
                await asyncio.get_running_loop().run_in_executor(self.pool, exchange.run)
                if exchange.streaming:
                    await self._stream(exchange, send)
                else:
                    await exchange.send_whole(send)
            finally:
                watcher.cancel()

    async def _stream(self, exchange: Exchange, send: Send) -> None:
        """Send a streamed answer from a lane, chunk by chunk, as fast as the client takes it."""
        loop = asyncio.get_running_loop()
        if self.streaming >= LANES + QUEUED_STREAMS:
            await loop.run_in_executor(self.pool, exchange.close)
            await send_plain(send, 503, "Too many downloads at once. Try again soon.", retry_after=5)
            return
        self.streaming += 1
        try:
            await loop.run_in_executor(self.lanes, exchange.stream, loop, send)
        finally:
            self.streaming -= 1

    def close(self) -> None:
        """Let the threads end; requests that run are not waited for (the server's grace did that)."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.lanes.shutdown(wait=False, cancel_futures=True)


class Exchange:
    """One request on its way through the WSGI application. `run` and `stream` are called in threads."""

    def __init__(self, application: WsgiApplication, environ: dict[str, Any]) -> None:
        self.application = application
        self.environ = environ
        self.gone = threading.Event()
        self.status = 500
        self.headers: list[tuple[bytes, bytes]] = []
        self.result: Iterable[bytes] = ()
        self.body = b""
        self.streaming = False

    async def watch(self, receive: Receive) -> None:
        """Notice that the client went away, until cancelled."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    def run(self) -> None:
        """Call the application; a plain answer is complete afterwards, a streamed one only begun."""
        if self.gone.is_set():
            raise ClientGone
        self.result = self.application(self.environ, self._start_response)
        self.streaming = bool(getattr(self.result, "streaming", False)) and not self._is_small
        if not self.streaming:
            try:
                self.body = b"".join(self.result)
            finally:
                self.close()

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], object]:
        self.status = int(status.split(" ", 1)[0])
        self.headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in headers]
        return self._no_write

    @staticmethod
    def _no_write(_data: bytes) -> object:
        raise NotImplementedError("Django never uses WSGI's write()")

    @property
    def _is_small(self) -> bool:
        length = dict(self.headers).get(b"content-length", b"")
        return length.isdigit() and int(length) <= WHOLE_BYTES

    @property
    def start(self) -> Message:
        """The ASGI message that opens the answer."""
        return {"type": "http.response.start", "status": self.status, "headers": self.headers}

    async def send_whole(self, send: Send) -> None:
        """Send an answer that is complete; to a HEAD request without its body (Django kept its length)."""
        if self.gone.is_set():
            return
        body = b"" if self.environ["REQUEST_METHOD"] == "HEAD" else self.body
        await send(self.start)
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def stream(self, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        """Send the answer from this thread; end early, and always close it, when the client is gone."""

        def push(message: Message) -> None:
            if self.gone.is_set():
                raise ClientGone
            future = asyncio.run_coroutine_threadsafe(_awaited(send(message)), loop)
            try:
                future.result(SEND_TIMEOUT)
            except (TimeoutError, OSError) as problem:
                future.cancel()
                raise ClientGone from problem

        try:
            push(self.start)
            if self.environ["REQUEST_METHOD"] != "HEAD":
                for chunk in self.result:
                    push({"type": "http.response.body", "body": chunk, "more_body": True})
            push({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.close()

    def close(self) -> None:
        """Close the answer: Django sends request_finished then, which looks after its connections."""
        close = getattr(self.result, "close", None)
        if close is not None:
            close()


async def _awaited(sending: Awaitable[None]) -> None:
    await sending


async def read_body(scope: Scope, receive: Receive, limit: int) -> IO[bytes]:
    """Read the whole body into a spooled file, positioned at its start.

    Raises BodyTooLarge (also on a Content-Length that says so, unread) and BodyCutShort.
    """
    if _content_length(scope) > limit:
        raise BodyTooLarge
    body = tempfile.SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115 - the caller closes it
    try:
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise BodyCutShort
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise BodyTooLarge
            body.write(chunk)
            more = message.get("more_body", False)
    except BaseException:
        body.close()
        raise
    body.seek(0)
    return body


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name.lower() == b"content-length" and value.isdigit():
            return int(value)
    return 0


def environ_of(scope: Scope, body: IO[bytes]) -> dict[str, Any]:
    """Build the WSGI environ (PEP 3333) of an ASGI HTTP scope.

    The path comes from the raw bytes, so that one that is not UTF-8 arrives as it was sent. Names with an
    underscore are dropped: `X_Forwarded_For` must not pass for `X-Forwarded-For`.
    """
    peer = peer_of(scope)
    server = scope.get("server") or ("localhost", 80)
    raw_path = scope.get("raw_path") or scope["path"].encode("utf-8")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": scope.get("root_path", ""),
        "PATH_INFO": unquote_to_bytes(raw_path.split(b"?", 1)[0]).decode("latin-1"),
        "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope.get('http_version', '1.1')}",
        "SERVER_NAME": str(server[0]),
        "SERVER_PORT": str(server[1] or 80),
        "REMOTE_ADDR": peer.address,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": peer.scheme,
        "wsgi.input": body,
        "wsgi.errors": _ErrorLog(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "signalbox.forwarded": is_forwarded(scope),
        "signalbox.trace_id": scope.get("signalbox.trace_id"),
    }
    believed = is_trusted_proxy(str((scope.get("client") or ("",))[0]))
    for name, value in scope["headers"]:
        key = name.lower()
        if b"_" in key or (key in FORWARDING_HEADERS and not believed):
            continue
        _add_header(environ, key.decode("latin-1"), value.decode("latin-1"))
    if "CONTENT_LENGTH" not in environ:  # a chunked body: Django reads no further than this says
        environ["CONTENT_LENGTH"] = str(body.seek(0, 2))
        body.seek(0)
    return environ


def _add_header(environ: dict[str, Any], name: str, value: str) -> None:
    key = name.upper().replace("-", "_")
    if key not in {"CONTENT_TYPE", "CONTENT_LENGTH"}:
        key = f"HTTP_{key}"
    if key in environ:
        value = environ[key] + ("; " if key == "HTTP_COOKIE" else ",") + value
    environ[key] = value


class _ErrorLog:
    """What an application writes to wsgi.errors goes to the log."""

    def write(self, text: str) -> None:
        log.error("%s", text.rstrip())

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Nothing is held back."""


async def send_plain(
    send: Send, status: int, detail: str, *, retry_after: int | None = None, close: bool = False
) -> None:
    """Answer `{"detail": detail}` without Django. The text is ours: it needs no escaping beyond quotes."""
    body = b'{"detail":"' + detail.replace('"', "'").encode() + b'"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if retry_after is not None:
        headers.append((b"retry-after", str(retry_after).encode()))
    if close:
        headers.append((b"connection", b"close"))
    with contextlib.suppress(OSError):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})
