"""Passes HTTP on to a served gateway with an agent's key in it, for clients whose requests cannot carry one."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import cast
from urllib.parse import urlsplit

HEAD_END = b"\r\n\r\n"


class _Forwarder(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    target: tuple[str, int]
    path: str
    key: str


class _Handler(socketserver.BaseRequestHandler):
    """One request of one connection, whose answer ends it; bytes pass as they are."""

    def handle(self) -> None:
        server = cast(_Forwarder, self.server)
        head = b""
        while HEAD_END not in head:
            more = self.request.recv(65_536)
            if not more:
                return
            head += more
        head, _, body = head.partition(HEAD_END)
        method, _, version = head.split(b"\r\n")[0].split(b" ", 2)
        kept = [one for one in head.split(b"\r\n")[1:] if not one.lower().startswith(b"connection:")]
        added = [f"Authorization: Bearer {server.key}".encode(), b"Connection: close"]
        with socket.create_connection(server.target) as behind:
            first = b" ".join((method, server.path.encode(), version))
            behind.sendall(b"\r\n".join([first, *kept, *added]) + HEAD_END + body)
            with contextlib.suppress(OSError):
                self._pass_both_ways(behind)

    def _pass_both_ways(self, behind: socket.socket) -> None:
        """Pass bytes on until one of the two leaves."""
        other = {self.request: behind, behind: self.request}
        while True:
            for one in select.select(list(other), [], [])[0]:
                told = one.recv(65_536)
                if not told:
                    return
                other[one].sendall(told)


@contextlib.contextmanager
def forwarding(url: str, key: str) -> Iterator[str]:
    """Pass what comes in on to `url` for the length of the block; yields the address to use in its place."""
    parts = urlsplit(url)
    with _Forwarder(("127.0.0.1", 0), _Handler) as server:
        server.target, server.path, server.key = (str(parts.hostname), parts.port or 80), parts.path, key
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            server.shutdown()
