"""gunicorn's ASGI worker, which on SIGTERM lets go at once of whatever is held open.

gunicorn 27.0.1 (pinned) notices a SIGTERM up to a second late, tells the application only after its
connections have ended, and waits for idle keep-alive connections the whole grace period. A runner gives up
after three polls that failed within 3 s, so a restart has no such time. tests/edge/test_shutdown.py.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers import gasgi


class Protocol(ASGIProtocol):  # type: ignore[misc] # gunicorn has no types
    """A connection that its worker knows of, so that it can be closed while it is idle."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        worker.connections.add(self)

    def close_if_idle(self) -> None:
        """Close the connection if it waits for a next request."""
        if self._awaiting_request:
            self._keepalive_timeout()


class Worker(gasgi.ASGIWorker):  # type: ignore[misc]
    """What `manage.py serve` runs as `worker_class`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connections: weakref.WeakSet[Protocol] = weakref.WeakSet()
        self.serving: asyncio.Task[None] | None = None

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
        self.asgi.let_go()
        for connection in list(self.connections):
            connection.close_if_idle()
        await super()._shutdown()
