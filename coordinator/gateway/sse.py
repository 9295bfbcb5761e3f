"""Server-sent events as they pass: cut at their ends, bounded, each as the bytes that came."""

from __future__ import annotations

import re

MOST_BYTES = 16 * 1024 * 1024
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n")
_LINES = re.compile(rb"\r\n|\n|\r")


class TooLong(Exception):
    """An event is longer than anybody should hold."""


class Splitter:
    """Cuts a stream into events. An event is its bytes up to and with the empty line."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._rest = bytearray()
        self._looked = 0
        self._most = most

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the events that end in `piece`. Raises TooLong."""
        self._rest += piece
        found = []
        while (end := _END.search(self._rest, self._looked)) is not None:
            found.append(bytes(self._rest[: end.end()]))
            del self._rest[: end.end()]
            self._looked = 0
        self._looked = max(0, len(self._rest) - 3)
        if len(self._rest) > self._most:
            raise TooLong
        return found


def data_of(event: bytes) -> bytes:
    """Return the event's data; nothing for a comment or an event without any."""
    lines = []
    for line in _LINES.split(event):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines)


def with_data(event: bytes, data: bytes) -> bytes:
    """Return the event with other data (JSON on one line) in place of its own; its id and name stay."""
    kept = [line for line in _LINES.split(event) if line and line.partition(b":")[0] != b"data"]
    return b"\n".join([*kept, b"data: " + data, b"", b""])


def event(data: bytes) -> bytes:
    """Return one event of a message."""
    return b"event: message\ndata: " + data + b"\n\n"
