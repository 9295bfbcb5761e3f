"""Servers that are none: each connection is answered by a script, or by nothing."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Script = Callable[[socket.socket, bytes], None]


@dataclass
class Lines:
    """A port, and what was sent to it: one request a connection, as it came."""

    port: int
    requests: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def saying(answer: bytes) -> Script:
    """Answer each request with these bytes, and hang up."""
    return lambda line, _request: line.sendall(answer)


def http(status: int, body: bytes = b"", **headers: str) -> bytes:
    """Return an answer's bytes."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def of_the_hook(request: bytes) -> str:
    """Return the id that a request came with."""
    return request.split(b"X-Signalbox-Hook-Id: ", 1)[1].split(b"\r\n", 1)[0].decode()


@contextlib.contextmanager
def listening(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[Lines]:
    """Listen until the block ends; each connection gets a thread and `script(line, request)`."""
    with socket.create_server(("127.0.0.1", 0)) as port:
        found = Lines(port.getsockname()[1])

        def serve() -> None:
            while True:
                try:
                    line, _ = port.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(line,), daemon=True).start()

        def answer(plain: socket.socket) -> None:
            with contextlib.suppress(OSError), plain:
                line = tls.wrap_socket(plain, server_side=True) if tls else plain
                request = _request(line)
                found.requests.append(request)
                script(line, request)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield found
        finally:
            port.shutdown(socket.SHUT_RDWR)


def _request(line: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        more = line.recv(65_536)
        if not more:
            return got
        got += more
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(
        (int(one.split(b":")[1]) for one in head.split(b"\r\n") if one.lower().startswith(b"content-length")),
        0,
    )
    while len(body) < length:
        body += line.recv(65_536)
    return head + b"\r\n\r\n" + body
