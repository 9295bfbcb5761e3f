"""gunicorn's ASGI worker, which on SIGTERM lets go at once of whatever is held open.

gunicorn 27.0.1 (pinned) notices a SIGTERM up to a second late, tells the application only after its
connections have ended, and waits for idle keep-alive connections the whole grace period. A runner gives up
after three polls that failed within 3 s, so a restart has no such time. tests/edge/test_shutdown.py.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import weakref
from typing import Any

from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers import gasgi

from coordinator.edge import grpc_refusal
from coordinator.lib import supervisor
from coordinator.lib.addresses import BACKLOG

log = logging.getLogger(__name__)

LINGERS = 1.0  # seconds
HEADERS_WITHIN = 20.0  # seconds from connecting in which the first request's headers must arrive


class Protocol(ASGIProtocol):  # type: ignore[misc] # gunicorn has no types
    """A connection that its worker knows of, so that it can be closed while it is idle.

    gunicorn ends one that is silent between two requests, but waits for the first one's headers for ever.
    """

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        worker.connections.add(self)
        self.http2: bytearray | None = None  # what a client of HTTP/2 said that is still to be refused
        self.heard = self.refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, and end again where no request comes."""
        super().connection_made(transport)
        self.worker.loop.call_later(HEADERS_WITHIN, self._close_if_no_request_came)

    def data_received(self, data: bytes) -> None:
        """Take what came. A client that begins to speak HTTP/2 is told why it is not served (edge.grpc_refusal)."""
        if self.http2 is not None:
            self._refuse_http2(data)
        elif self.req_count <= 1 and not self.heard and data.startswith(grpc_refusal.PREFACE):
            self.http2 = bytearray()
            self.transport.write(grpc_refusal.greeting())
            self._refuse_http2(data[len(grpc_refusal.PREFACE) :])
        else:
            self.heard = True
            super().data_received(data)

    def _refuse_http2(self, data: bytes) -> None:
        if self.http2 is None or self.refused:
            return
        self.http2 += data
        answer = grpc_refusal.refusal(bytes(self.http2))
        if answer is not None:
            self.refused = True
            level = (
                logging.DEBUG if self.worker.has_met_grpc else logging.WARNING
            )  # exporters try again and again
            log.log(level, "A program sends gRPC. %s", grpc_refusal.NO_GRPC)
            self.worker.has_met_grpc = True
            self.transport.write(answer)
            # What it sends on its way is still taken: closed at once, it would not read the answer.
            self.worker.loop.call_later(LINGERS, self.transport.close)

    def _close_if_no_request_came(self) -> None:
        if self.req_count <= 1:
            self.close_if_idle()

    def close_if_idle(self) -> None:
        """Close the connection if it waits for a next request."""
        if self._awaiting_request:
            self._keepalive_timeout()


class Loop(asyncio.SelectorEventLoop):
    """An event loop that takes connections one by one from the queue that all workers share.

    asyncio's own takes a hundred at a time, so that a few keep-alive clients may all sit on one worker.
    """

    async def create_server(self, *args: Any, **kwargs: Any) -> asyncio.Server:
        """Serve as asked, and put the queue's length back, which is the same number to asyncio."""
        server = await super().create_server(*args, **{**kwargs, "backlog": 1})
        kwargs["sock"].listen(BACKLOG)
        return server


class Worker(gasgi.ASGIWorker):  # type: ignore[misc]
    """What `manage.py serve` runs as `worker_class`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connections: weakref.WeakSet[Protocol] = weakref.WeakSet()
        self.serving: asyncio.Task[None] | None = None
        self.is_ready = self.has_met_grpc = False

    def _setup_event_loop(self) -> None:
        self.loop = Loop()
        asyncio.set_event_loop(self.loop)

    def notify(self) -> None:
        """Tell the master every second that this worker lives; the first time, that it serves."""
        super().notify()
        if not self.is_ready:
            self.is_ready = True
            supervisor.tell_ready()

    def init_signals(self) -> None:
        """Leave SIGHUP to the supervisor: a terminal that closes sends it to everybody."""
        super().init_signals()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def run(self) -> None:
        """Serve until told to stop, and then be gone: without the collector's last walk through all that lives."""
        super().run()
        gc.freeze()

    def handle_exit_signal(self) -> None:
        """SIGTERM: begin to stop now, not when the heartbeat's second is over."""
        super().handle_exit_signal()
        if self.serving is not None and self.servers:
            self.serving.cancel()  # ends the heartbeat's sleep, which leads into _shutdown

    async def _serve(self) -> None:
        self.serving = asyncio.current_task()
        gasgi.ASGIProtocol = Protocol
        await super()._serve()

    async def _shutdown(self) -> None:
        self.serving = None
        for server in self.servers:
            server.close()
        self.asgi.release_held_requests()
        for connection in list(self.connections):
            connection.close_if_idle()
        await super()._shutdown()
