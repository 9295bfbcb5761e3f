"""The bridge to Django: an ordinary WSGI application in a small, bounded, persistent pool of threads.

Why not Django's own ASGI handler: it starts a thread and a database connection for every request and keeps
them as long as the response lasts; a few open streams then cost more than the whole site. Here the threads
are few and live as long as the worker, so a connection per thread may live as long too.

A streamed answer (a download, an export) moves to a thread of its own, its *download slot*, before its first chunk
is made: a client that reads slowly then holds a download slot, never one of the threads that pages need, and the
queries of a lazily made answer all run on one connection. A file that is known to be small (a style sheet) is
sent whole instead: a browser fetches a dozen of them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import IO, Any
from urllib.parse import unquote_to_bytes

from django.db import InterfaceError, OperationalError

from coordinator.edge.http.client_addresses import (
    FORWARDING_HEADERS,
    get_client_address_and_scheme,
    has_forwarding_headers,
    is_trusted_proxy,
)
from coordinator.edge.http.concurrency import ConcurrencyLimit
from coordinator.edge.http.downloads import GRACE, DownloadPool, DownloadReaderSpeed
from coordinator.errors import SignalboxError
from coordinator.lib.asgi import Message, Receive, Scope, Send
from coordinator.lib.fair_queue import CALLER, FairThreadPool, ThreadsClosed

NO_DATABASE = "The database is busy or cannot be reached. Nothing was done; try again."
STOPPING = "This server is stopping. Nothing was done; try again."
Who = Callable[[Scope], Awaitable[str]]
Take = Callable[[Scope, Receive], AbstractAsyncContextManager[IO[bytes]]]
WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

log = logging.getLogger(__name__)

CUT_SHORT = "The request did not arrive completely in time. Send it again."
QUEUED_PER_THREAD = 64  # requests that may wait for a thread before the next is refused with Retry-After
WHOLE_BYTES = 1024 * 1024  # a streamed answer that says it is no longer than this is sent at once


class ClientGone(Exception):
    """The client closed the connection; whatever was being made for it is dropped."""


class IncompleteBody(ClientGone):
    """The body did not arrive whole: the client is gone, or sends nothing any more."""


class DjangoBridge:
    """An ASGI callable that runs a WSGI application in `threads` threads.

    `take` returns a request's body when it has arrived whole, or refuses it. Only then the request enters the queue,
    which all callers share in turns (CALLER). A request is answered 503 with Retry-After where the queue is full, and
    429 where its caller has its share of it. A client that leaves while its request is queued costs nothing more.
    `who` returns whose share of the download slots a streamed answer takes.
    """

    def __init__(self, application: WsgiApplication, *, threads: int, take: Take, who: Who) -> None:
        self.application = application
        self.who = who
        self.take = take
        self.request_limit = ConcurrencyLimit(threads * QUEUED_PER_THREAD, "requests")
        self.pool = FairThreadPool(threads, "django")
        self.downloads = DownloadPool()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self.take(scope, receive) as body:
                await self.run_wsgi_within_request_limit(scope, body, receive, send)
        except IncompleteBody:
            await send_json_error_without_django(send, 408, CUT_SHORT, close=True)
        except (InterfaceError, OperationalError) as problem:
            # Django answers its own: this is who asks, looked up before its body is read.
            log.warning("%s met no database: %s", scope["path"], str(problem).strip())
            await send_json_error_without_django(send, 503, NO_DATABASE, retry_after=2, close=True)
        except ThreadsClosed:
            await send_json_error_without_django(send, 503, STOPPING, retry_after=1, close=True)
        except ClientGone:
            log.debug("client went away: %s", scope["path"])
        except SignalboxError as refusal:
            close = refusal.status in {408, 413}  # the rest of the body is not read
            await send_json_error_without_django(
                send, refusal.status, str(refusal.detail), retry_after=refusal.retry_after, close=close
            )

    async def run_wsgi_within_request_limit(
        self, scope: Scope, body: IO[bytes], receive: Receive, send: Send
    ) -> None:
        with self.request_limit.reserve_slot_during_block(CALLER.get()):
            await self.run_wsgi_and_send_response(scope, body, receive, send)

    async def run_wsgi_and_send_response(
        self, scope: Scope, body: IO[bytes], receive: Receive, send: Send
    ) -> None:
        exchange = WsgiExchange(self.application, build_wsgi_environ(scope, body))
        watcher = asyncio.ensure_future(exchange.watch_for_disconnect(receive))
        try:
            await self.pool.run_in_pool(exchange.run_wsgi_and_store_response, CALLER.get())
            if exchange.streaming:
                await self.stream_wsgi_response(scope, exchange, send)
            else:
                await exchange.send_complete_response(send)
        finally:
            watcher.cancel()

    async def stream_wsgi_response(self, scope: Scope, exchange: WsgiExchange, send: Send) -> None:
        """Send a streamed answer from a download slot, chunk by chunk, as fast as the client reads it."""
        loop = asyncio.get_running_loop()
        try:
            await self.downloads.run_download(
                partial(self.who, scope), partial(exchange.stream_from_thread, loop, send)
            )
        except (SignalboxError, asyncio.CancelledError):
            if not exchange.begun:
                self.pool.submit(exchange.close_response, CALLER.get())
            raise

    def close(self) -> None:
        """Let the threads end; requests that run are not waited for (the server's grace did that)."""
        self.pool.shut_down_pool()
        self.downloads.close()


class WsgiExchange:
    """One request on its way through the WSGI application. `run` and `stream` are called in threads."""

    def __init__(self, application: WsgiApplication, environ: dict[str, Any]) -> None:
        self.application = application
        self.environ = environ
        self.disconnected = threading.Event()
        self.status = 500
        self.headers: list[tuple[bytes, bytes]] = []
        self.result: Iterable[bytes] = ()
        self.body = b""
        self.streaming = False
        self.begun = False  # to be sent from a download slot, which closes it

    async def watch_for_disconnect(self, receive: Receive) -> None:
        """Notice that the client went away, until cancelled."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.disconnected.set()

    def run_wsgi_and_store_response(self) -> None:
        """Call the application; a plain answer is complete afterwards, a streamed one only begun."""
        if self.disconnected.is_set():
            raise ClientGone
        self.result = self.application(self.environ, self.start_response)
        self.streaming = bool(getattr(self.result, "streaming", False)) and not self.is_small_response
        if not self.streaming:
            try:
                self.body = b"".join(self.result)
            finally:
                self.close_response()

    def start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], object]:
        self.status = int(status.split(" ", 1)[0])
        self.headers = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in headers]
        return self.refuse_wsgi_write

    @staticmethod
    def refuse_wsgi_write(_data: bytes) -> object:
        raise NotImplementedError("Django never uses WSGI's write()")

    @property
    def is_small_response(self) -> bool:
        length = dict(self.headers).get(b"content-length", b"")
        return length.isdigit() and int(length) <= WHOLE_BYTES

    @property
    def response_start_message(self) -> Message:
        return {"type": "http.response.start", "status": self.status, "headers": self.headers}

    async def send_complete_response(self, send: Send) -> None:
        """Send an answer that is complete; to a HEAD request without its body (Django kept its length)."""
        if self.disconnected.is_set():
            return
        body = b"" if self.environ["REQUEST_METHOD"] == "HEAD" else self.body
        await send(self.response_start_message)
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def stream_from_thread(self, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        """Send the answer from this thread; end early, and always close it, when the client is gone."""

        pace, self.begun = DownloadReaderSpeed(), True

        def push_message(message: Message) -> None:
            if self.disconnected.is_set():
                raise ClientGone
            started_at = time.monotonic()
            future = asyncio.run_coroutine_threadsafe(wrap_awaitable_in_coroutine(send(message)), loop)
            try:
                future.result(GRACE)
            except (TimeoutError, OSError) as problem:
                future.cancel()
                raise ClientGone from problem
            pace.record_chunk_time(time.monotonic() - started_at, len(message.get("body", b"")))
            if pace.is_reader_too_slow:
                log.info("A reader of %s is cut off: it reads too slowly.", self.environ["PATH_INFO"])
                raise ClientGone

        try:
            push_message(self.response_start_message)
            if self.environ["REQUEST_METHOD"] != "HEAD":
                for chunk in self.iterate_response_chunks():
                    push_message({"type": "http.response.body", "body": chunk, "more_body": True})
            push_message({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.close_response()

    def iterate_response_chunks(self) -> Iterator[bytes]:
        """Yield the answer; where it cannot be gone on with, it is too late for another one, and it ends here."""
        try:
            yield from self.result
        except SignalboxError as problem:
            log.error("The answer to %s was cut off. %s", self.environ["PATH_INFO"], problem.detail)
            raise ClientGone from None

    def close_response(self) -> None:
        """Close the answer: Django sends request_finished then, which looks after its connections."""
        close = getattr(self.result, "close", None)
        if close is not None:
            close()


async def wrap_awaitable_in_coroutine(sending: Awaitable[None]) -> None:
    await sending


def build_wsgi_environ(scope: Scope, body: IO[bytes]) -> dict[str, Any]:
    """Build the WSGI environ (PEP 3333) of an ASGI HTTP scope.

    The path comes from the raw bytes, so that one that is not UTF-8 arrives as it was sent. Names with an
    underscore are dropped: `X_Forwarded_For` must not pass for `X-Forwarded-For`.
    """
    peer = get_client_address_and_scheme(scope)
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
        "wsgi.errors": WsgiErrorLog(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "signalbox.forwarded": has_forwarding_headers(scope),
        "signalbox.trace_id": scope.get("signalbox.trace_id"),
    }
    believed = is_trusted_proxy(str((scope.get("client") or ("",))[0]))
    for name, value in scope["headers"]:
        key = name.lower()
        if b"_" in key or (key in FORWARDING_HEADERS and not believed):
            continue
        add_environ_header(environ, key.decode("latin-1"), value.decode("latin-1"))
    if "CONTENT_LENGTH" not in environ:  # a chunked body: Django reads no further than this says
        environ["CONTENT_LENGTH"] = str(body.seek(0, 2))
        body.seek(0)
    return environ


def add_environ_header(environ: dict[str, Any], name: str, value: str) -> None:
    key = name.upper().replace("-", "_")
    if key not in {"CONTENT_TYPE", "CONTENT_LENGTH"}:
        key = f"HTTP_{key}"
    if key in environ:
        value = environ[key] + ("; " if key == "HTTP_COOKIE" else ",") + value
    environ[key] = value


class WsgiErrorLog:
    """What an application writes to wsgi.errors goes to the log."""

    def write(self, text: str) -> None:
        log.error("%s", text.rstrip())

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Nothing is held back."""


async def send_json_error_without_django(
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
