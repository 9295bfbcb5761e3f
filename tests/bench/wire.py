"""HTTP by raw sockets, cheap enough that a measurement on two cores measures the server and not its client."""

from __future__ import annotations

import json
import re
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
Good = Callable[[bytes], bool] | None


@dataclass(frozen=True)
class Target:
    """The server to measure, and the key to show it (None: it asks for none)."""

    url: str
    key: str | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where to connect."""
        parts = urlsplit(self.url)
        return parts.hostname or "127.0.0.1", parts.port or 80

    def request(self, method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
        """Return the bytes of one request."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.address[0]}:{self.address[1]}", *headers]
        if self.key:
            lines.append(f"Authorization: Bearer {self.key}")
        if body or method in {"POST", "PUT", "PATCH"}:
            lines.append(f"Content-Length: {len(body)}")
            if not any(line.lower().startswith("content-type") for line in lines):
                lines.append("Content-Type: application/json")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def connect(self) -> socket.socket:
        """Return a connected socket."""
        sock = socket.create_connection(self.address, timeout=60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def call(self, method: str, path: str, value: Any = None, *headers: str) -> tuple[int, Any]:
        """Make one request on a connection of its own; return status and decoded body."""
        body = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
        with self.connect() as sock:
            sock.sendall(self.request(method, path, body, *headers, "Connection: close"))
            status, text = read_answer(sock)
        try:
            return status, json.loads(text) if text else None
        except ValueError:
            return status, None


def read_answer(sock: socket.socket) -> tuple[int, bytes]:
    """Read one whole answer from a blocking socket."""
    data = b""
    while (size := whole(data)) is None:
        chunk = sock.recv(262_144)
        if not chunk:
            break
        data += chunk
    if not data:
        raise ConnectionError("the server closed the connection")
    return int(data[9:12]), data[data.index(b"\r\n\r\n") + 4 : size]


def whole(data: bytes) -> int | None:
    """Return the length of the answer that `data` begins with, or None while it is not complete."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    length = LENGTH.search(data, 0, end + 2)
    if length is None:
        if b"chunked" in data[:end].lower():
            return len(data) if data.endswith(b"0\r\n\r\n") else None
        return end + 4 if data[9:12] in (b"204", b"304") else None
    total = end + 4 + int(length[1])
    return total if len(data) >= total else None


@dataclass
class Result:
    """What a load did: milliseconds of each good answer, and how many answers had which status."""

    took: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    def rate(self, per_answer: int = 1) -> float:
        """Return good answers (or what `per_answer` of them stand for) a second."""
        return len(self.latencies) * per_answer / self.took if self.took else 0.0

    def percentile(self, share: float) -> float:
        """Return the latency that `share` of the answers did not exceed."""
        return percentile(self.latencies, share)

    @property
    def errors(self) -> int:
        """How many answers were no success."""
        return sum(count for status, count in self.statuses.items() if not 200 <= status < 300)


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value that `share` of `values` do not exceed; 0 where there are none."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


def load(
    target: Target, make: Callable[[int], bytes], *, connections: int, seconds: float, good: Good = None
) -> Result:
    """Keep `connections` busy for `seconds`: each sends its next request when answered.

    `make(number)` is a request of the connection `number`. An answer of which `good` says no counts as status 0.
    """
    selector = selectors.DefaultSelector()
    for number in range(connections):
        sock = target.connect()
        selector.register(sock, selectors.EVENT_READ, _Slot(number))
    result, clock = Result(), time.perf_counter
    began = clock()
    until = began + seconds
    for key in selector.get_map().values():
        _send(key.fileobj, key.data, make, clock)
    busy = connections
    while busy:
        for key, _ in selector.select(timeout=30) or _stalled():
            slot: _Slot = key.data
            slot.data += _received(key.fileobj)
            if whole(slot.data) is None:
                continue
            status = _status(slot.data, good)
            result.statuses[status] = result.statuses.get(status, 0) + 1
            if 200 <= status < 300:
                result.latencies.append((clock() - slot.sent) * 1000)
            slot.data = b""
            if clock() < until:
                _send(key.fileobj, slot, make, clock)
            else:
                busy -= 1
    result.took = clock() - began
    for key in list(selector.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    return result


def paced(
    target: Target,
    make: Callable[[int], bytes],
    *,
    connections: int,
    rate: float,
    seconds: float,
    good: Good = None,
) -> Result:
    """Send `rate` requests a second, whether or not the server keeps up, in turn on each of `connections`.

    Request number n is `make(n)`. One whose turn comes while its connection still waits for an answer waits, too,
    and that counts: a latency is measured from when the request was due.
    """
    result, clock, selector = Result(), time.perf_counter, selectors.DefaultSelector()
    slots = [_Slot() for _ in range(connections)]
    for slot in slots:
        slot.sock = target.connect()
        selector.register(slot.sock, selectors.EVENT_READ, slot)
    number, answered, total = 0, 0, int(rate * seconds)
    began = clock()
    while answered < total:
        while number < total and (due := began + number / rate) <= clock():
            slot = slots[number % connections]
            slot.waiting.append((due, number))
            slot.go_on(make)
            number += 1
        pause = max(0.0, began + number / rate - clock()) if number < total else 30.0
        for key, _ in selector.select(pause) or (_stalled() if number == total else ()):
            slot = key.data
            slot.data += _received(slot.sock)
            if whole(slot.data) is None:
                continue
            status = _status(slot.data, good)
            result.statuses[status] = result.statuses.get(status, 0) + 1
            if 200 <= status < 300:
                result.latencies.append((clock() - slot.sent) * 1000)
            answered += 1
            slot.data, slot.busy = b"", False
            slot.go_on(make)
    result.took = clock() - began
    for slot in slots:
        slot.sock.close()
    return result


class _Slot:
    """What one connection of a load is about. `waiting` holds when each of a paced load's requests was due."""

    __slots__ = ("busy", "data", "number", "sent", "sock", "waiting")

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.data = b""
        self.sent = 0.0
        self.busy = False
        self.sock: Any = None
        self.waiting: deque[tuple[float, int]] = deque()

    def go_on(self, make: Callable[[int], bytes]) -> None:
        """Send the next request that is due, unless an answer is still awaited."""
        if self.waiting and not self.busy:
            self.sent, number = self.waiting.popleft()
            self.busy = True
            self.sock.sendall(make(number))


def _received(sock: Any) -> bytes:
    piece: bytes = sock.recv(65_536)
    if not piece:
        raise ConnectionError("the server closed a connection before it answered")
    return piece


def _status(answer: bytes, good: Good) -> int:
    return int(answer[9:12]) if good is None or good(answer) else 0


def _send(sock: Any, slot: _Slot, make: Callable[[int], bytes], clock: Callable[[], float]) -> None:
    request = make(slot.number)
    slot.sent = clock()
    sock.sendall(request)


def _stalled() -> Any:
    raise TimeoutError("the server has not answered for 30 s")
