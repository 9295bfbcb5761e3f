"""Receivers of messages on this machine."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tests.patience import PATIENCE


class Receiver:
    """A webhook's receiver on this machine: keeps what came and answers `status`."""

    def __init__(self) -> None:
        self.status, self.came = 200, []
        self._more = threading.Semaphore(0)
        self.wait: threading.Event | None = None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.came.append((dict(self.headers), body))
                receiver._more.release()
                if receiver.wait is not None:
                    receiver.wait.wait(PATIENCE)
                self.send_response(receiver.status)
                self.send_header("Location", f"{receiver.url}elsewhere")
                self.end_headers()

            def do_GET(self) -> None:
                receiver.came.append((dict(self.headers), b"followed"))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_args: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def wait_for(self, number: int) -> None:
        """Wait until so many have come in all."""
        while len(self.came) < number:
            assert self._more.acquire(timeout=PATIENCE), f"{len(self.came)} of {number} came"
