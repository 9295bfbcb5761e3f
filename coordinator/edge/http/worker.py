"""A gunicorn ASGI worker that on SIGTERM ends held requests and idle connections at once.

gunicorn 27.0.1 (pinned) notices a SIGTERM up to a second late, notifies the application only after its
connections have ended, and waits for idle keep-alive connections the whole grace period. A runner gives up
after three polls that failed within 3 s, so a restart has no such time. tests/edge/test_shutdown.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import queue
import signal
import socket
import weakref
from collections.abc import Callable
from typing import Any

from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers import gasgi

from coordinator.edge.http import grpc_refusal
from coordinator.lib.listening_sockets import BACKLOG
from coordinator.lib.sockets import has_unread_data

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
LINGERS = 1.0  # seconds
PAUSE = 1.0  # seconds without taking connections where none can be taken
# Seconds for which a worker leaves the next connection to the others: else an awake one took most of a burst, or all.
OTHERS_TURN = 0.001
HEADERS_WITHIN = 20.0  # seconds from connecting in which the first request's headers must arrive
SPEAKS_WITHIN = 0.5  # seconds that a stopping worker gives a new connection to send its request
LOOKS_EVERY = 0.05  # seconds between a stopping worker's looks at which connections are idle


class EdgeProtocol(ASGIProtocol):  # type: ignore[misc] # gunicorn has no types
    """A connection that its worker knows of, so that it can be closed while it is idle.

    gunicorn ends one that is silent between two requests, but waits for the first one's headers for ever.
    """

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        worker.connections.add(self)
        self.http2: bytearray | None = None  # what a client of HTTP/2 said that is still to be refused
        self.has_received = self.refused = False
        self.no_request: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, and end again where no request comes."""
        super().connection_made(transport)
        self.no_request = self.worker.loop.call_later(HEADERS_WITHIN, self.close_without_request)

    def connection_lost(self, exc: Exception | None) -> None:
        """End, and be kept by no timer."""
        if self.no_request is not None:
            self.no_request.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes. A client that begins HTTP/2 is sent the reason for its refusal (grpc_refusal)."""
        if self.http2 is not None:
            self.refuse_http2(data)
        elif self.req_count <= 1 and not self.has_received and data.startswith(grpc_refusal.PREFACE):
            self.http2 = bytearray()
            self.transport.write(grpc_refusal.build_http2_settings_frames())
            self.refuse_http2(data[len(grpc_refusal.PREFACE) :])
        else:
            self.has_received = True
            super().data_received(data)

    def refuse_http2(self, data: bytes) -> None:
        if self.http2 is None or self.refused:
            return
        self.http2 += data
        answer = grpc_refusal.grpc_refusal_if_headers_arrived(bytes(self.http2))
        if answer is not None:
            self.refused = True
            # Exporters try again and again.
            level = logging.DEBUG if self.worker.has_met_grpc else logging.WARNING
            log.log(level, "A program sends gRPC. %s", grpc_refusal.NO_GRPC)
            self.worker.has_met_grpc = True
            self.transport.write(answer)
            # What it sends on its way is still taken: closed at once, it would not read the answer.
            self.worker.loop.call_later(LINGERS, self.transport.close)

    def close_without_request(self) -> None:
        if self.req_count <= 1:
            self.close_if_idle()

    def close_if_idle(self) -> None:
        """Close the connection if it waits for a next request, and nothing of that has come yet."""
        is_waiting = self._awaiting_request and not self._request_ready.is_set()
        if is_waiting and not self.transport.is_closing() and not has_unread_data(self.transport):
            self._keepalive_timeout()


class ConnectionAcceptor:
    """Takes connections one by one from the queue of a socket that all workers share.

    Both asyncio and uvloop take as many at a time as there are, so that a few keep-alive clients may all sit on one
    worker. So each takes one, and where there are others lets them take the next. It replaces the server that
    gunicorn made.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        protocol: Callable[[], EdgeProtocol],
        ssl: Any,
        *,
        has_others: bool,
    ) -> None:
        self._loop = loop
        self._has_others = has_others
        self._listening = listening
        self._protocol = protocol
        self._ssl = ssl
        self._opening: set[asyncio.Task[Any]] = set()
        self._closed = False
        listening.setblocking(False)
        self.start_accepting_connections()

    def start_accepting_connections(self) -> None:
        if not self._closed and self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening.fileno(), self.accept_connection)

    def accept_connection(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another worker has it, or its client has gone
        except OSError as problem:  # no file is left, say
            log.error("No connection can be taken for %s s: %s", PAUSE, problem)
            self.pause_accepting(PAUSE)
            return
        if self._has_others:
            self.pause_accepting(OTHERS_TURN)
        connection.setblocking(False)
        opening = self._loop.create_task(
            self._loop.connect_accepted_socket(self._protocol, connection, ssl=self._ssl)
        )
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    def pause_accepting(self, seconds: float) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(seconds, self.start_accepting_connections)

    def close(self) -> None:
        """Take no more."""
        self._closed = True
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening.fileno())

    async def wait_closed(self) -> None:
        """Return when connections that are being opened are open: then the worker knows of them."""
        if self._opening:
            await asyncio.wait(self._opening)


def create_event_loop(*, workers: int) -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop where that is installed (extra `[speed]`), else asyncio's; both with Acceptors.

    `workers`: how many take connections from one socket.
    """
    try:
        base = importlib.import_module("uvloop").Loop
    except ImportError:
        base = asyncio.SelectorEventLoop
    loop: asyncio.AbstractEventLoop = type("Loop", (AcceptorLoopMixin, base), {"has_others": workers > 1})()
    return loop


class AcceptorLoopMixin:
    """A part of an event loop: how it serves."""

    has_others = False  # workers that take connections from the same socket

    async def create_server(
        self, protocol: Callable[[], EdgeProtocol], *, sock: socket.socket, **more: Any
    ) -> ConnectionAcceptor:
        """Serve on a socket that listens already."""
        sock.listen(BACKLOG)
        assert isinstance(self, asyncio.AbstractEventLoop)
        return ConnectionAcceptor(self, sock, protocol, more.get("ssl"), has_others=self.has_others)


class Worker(gasgi.ASGIWorker):  # type: ignore[misc]
    """What `manage.py serve` runs as `worker_class`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connections: weakref.WeakSet[EdgeProtocol] = weakref.WeakSet()
        self.serving: asyncio.Task[None] | None = None
        self.has_met_grpc = False
        self.early_signals: list[int] = []

    def _setup_event_loop(self) -> None:
        self.loop = create_event_loop(workers=self.cfg.workers)
        asyncio.set_event_loop(self.loop)

    def install_early_signal_recorder(self, already: queue.SimpleQueue[int]) -> None:
        """Keep stop signals until this worker's loop runs: before that, uvloop loses them.

        `already` holds the signals that the server's own handler, which a fresh worker still has, received.
        """
        for number in STOP_SIGNALS:
            signal.signal(number, lambda signal_number, _frame: self.early_signals.append(signal_number))
        with contextlib.suppress(queue.Empty):
            while True:
                self.early_signals.append(already.get_nowait())

    def init_signals(self) -> None:
        """Do nothing yet: `note_signals` has, and `_serve` does the rest."""

    def install_signal_handlers(self) -> None:
        """Leave SIGHUP to the main process: a terminal that closes sends it to everybody."""
        super().init_signals()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for early_signal in self.early_signals:
            if early_signal in STOP_SIGNALS:
                os.kill(os.getpid(), early_signal)

    def handle_exit_signal(self) -> None:
        """SIGTERM: begin to stop now, not when the heartbeat's second is over."""
        super().handle_exit_signal()
        if self.serving is not None and self.servers:
            self.serving.cancel()  # ends the heartbeat's sleep, which leads into _shutdown

    async def _serve(self) -> None:
        self.serving = asyncio.current_task()
        self.install_signal_handlers()
        gasgi.ASGIProtocol = EdgeProtocol
        await super()._serve()

    async def _shutdown(self) -> None:
        self.serving = None
        for server in self.servers:
            server.close()
        self.asgi.end_waiting_polls_and_streams()
        closing = self.loop.create_task(self.close_connections_as_they_idle())
        await super()._shutdown()
        closing.cancel()

    async def close_connections_as_they_idle(self) -> None:
        """Close each connection once it waits for a next request; who has not asked yet may for SPEAKS_WITHIN."""
        until = self.loop.time() + SPEAKS_WITHIN
        while True:
            for connection in list(self.connections):
                if connection.req_count > 1 or self.loop.time() >= until:
                    connection.close_if_idle()
            await asyncio.sleep(LOOKS_EVERY)
