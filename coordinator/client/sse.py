"""Server-sent events as they pass: cut at their ends, bounded, each as the bytes that came."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coordinator.client.message_lines import BYTE_ORDER_MARK

MOST_BYTES = 16 * 1024 * 1024
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n")
_LINES = re.compile(rb"\r\n|\n|\r")
_PLACED = re.compile(rb"(?:\A|[\r\n])(id|retry)(?:: ?([^\r\n]*))?(?=[\r\n])")
LONGEST_ID = 4096  # bytes
MAX_LINES = 10_000  # of one event: each becomes an object of Python, and JSON on one line needs one


class EventTooLong(Exception):
    """An event is longer than anybody should hold. The text says how, after "sent"."""


class EventSplitter:
    """Cuts a stream into events. An event is its bytes up to and with the empty line."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._rest = bytearray()
        self._looked = 0
        self._most = most
        self._is_first = True

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the events that end in `piece`, without a byte order mark before the first. Raises EventTooLong."""
        self._rest += piece
        if self._is_first and len(self._rest) >= len(BYTE_ORDER_MARK):
            self._is_first = False
            self._rest = self._rest.removeprefix(BYTE_ORDER_MARK)
        complete_blocks, begin = [], 0
        while (end := _END.search(self._rest, self._looked)) is not None:
            complete_blocks.append(bytes(self._rest[begin : end.end()]))
            require_event_line_count_limit(complete_blocks[-1])
            begin = self._looked = end.end()
        del self._rest[:begin]
        self._looked = max(0, len(self._rest) - 3)
        if len(self._rest) > self._most:
            raise EventTooLong(f"an event of more than {self._most} bytes")
        return complete_blocks


def require_event_line_count_limit(event: bytes) -> None:
    if event.count(b"\n") + event.count(b"\r") - event.count(b"\r\n") > MAX_LINES:
        raise EventTooLong(f"an event of more than {MAX_LINES} lines")


@dataclass(slots=True)
class StreamPosition:
    """How far a stream was read: the id after which its rest can be requested, if any, and how long to wait first."""

    last_id: bytes = b""
    retry: float = 0.0

    def update_position_from_event(self, event: bytes) -> None:
        """Take in what an event says of its place."""
        for name, value in _PLACED.findall(event):
            if name == b"id" and b"\0" not in value:
                self.last_id = value if len(value) <= LONGEST_ID else b""
            elif name == b"retry" and value.isdigit() and len(value) < 10:
                self.retry = int(value) / 1000


def extract_event_data_or_empty(event: bytes) -> bytes:
    """Return the event's data; nothing for a comment or an event without any."""
    lines = []
    for line in _LINES.split(event):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines)


def replace_event_data(event: bytes, data: bytes) -> bytes:
    """Return the event with other data (JSON on one line) in place of its own; its id and name stay."""
    other_lines = [line for line in _LINES.split(event) if line and line.partition(b":")[0] != b"data"]
    return b"\n".join([*other_lines, b"data: " + data, b"", b""])


def build_sse_message_event(data: bytes) -> bytes:
    """Return one event of a message."""
    return b"event: message\ndata: " + data + b"\n\n"
