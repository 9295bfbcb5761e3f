"""Many open event streams in one process, and how late what is posted reaches them."""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import time
from typing import Any

from tests.bench.wire import Target

MARK = b"probe:"
PROBE = re.compile(rb"probe:(\d+):")


class Streams:
    """`count` open streams of /sse/sessions. `latencies` are in milliseconds, one a probe and stream."""

    def __init__(self, target: Target, count: int, *, session_id: str | None = None) -> None:
        self.latencies: list[float] = []
        self.refused = 0
        self.bytes = 0
        self._selector = selectors.DefaultSelector()
        self._buffer = bytearray(1 << 20)
        only = f"&session_id={session_id}" if session_id else ""
        request = target.request(
            "GET", f"/sse/sessions?include_init=false{only}", b"", "Accept: text/event-stream"
        )
        for _ in range(count):
            sock = target.connect()
            sock.sendall(request)
            self._selector.register(sock, selectors.EVENT_READ, bytearray())
        self.open = count

    def settle(self, seconds: float) -> None:
        """Read answers' heads, and forget what came until now."""
        deadline = time.monotonic() + seconds
        waiting = {key.fd for key in self._selector.get_map().values()}
        while waiting and time.monotonic() < deadline:
            for key, _ in self._selector.select(0.2):
                data = key.fileobj.recv(65_536)  # type: ignore[union-attr]
                begins = key.fd in waiting  # what follows an answer's head may come by itself
                waiting.discard(key.fd)
                if not data or (begins and not data.startswith(b"HTTP/1.1 200")):
                    self.refused += 1
                    self._drop(key.fileobj)
        self.latencies.clear()

    def read(self, seconds: float) -> None:
        """Read what comes for so long."""
        deadline = time.perf_counter() + seconds
        while (left := deadline - time.perf_counter()) > 0:
            for key, _ in self._selector.select(left):
                self._take(key)

    def _take(self, key: selectors.SelectorKey) -> None:
        sock: Any = key.fileobj
        size = 0
        with contextlib.suppress(OSError):
            size = sock.recv_into(self._buffer)
        now = time.perf_counter_ns()
        if not size:
            self._drop(sock)
            return
        self.bytes += size
        tail: bytearray = key.data
        seen: bytes | bytearray = self._buffer
        if tail:
            seen, size = bytes(tail) + bytes(self._buffer[:size]), size + len(tail)
        at = seen.find(MARK, 0, size)
        done = 0
        while at >= 0 and (match := PROBE.match(seen, at, size)):
            self.latencies.append((now - int(match[1])) / 1e6)
            done = match.end()
            at = seen.find(MARK, done, size)
        # What a read's end may have cut in two is looked at again with the next.
        cut = at if at >= 0 else max(done, size - len(MARK) + 1)
        tail[:] = seen[cut:size] if at >= 0 or MARK[:1] in seen[cut:size] else b""

    def _drop(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        sock.close()
        self.open -= 1

    def close(self) -> None:
        """Close all streams."""
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()


def probe(session_id: str) -> bytes:
    """Return the body of an event that carries the time at which it was sent."""
    return (
        b'{"event_type":"message","session_id":"%b","timestamp":"2026-01-01T00:00:00+00:00","role":"assistant",'
        b'"content":[{"type":"text","text":"probe:%d:"}]}' % (session_id.encode(), time.perf_counter_ns())
    )
