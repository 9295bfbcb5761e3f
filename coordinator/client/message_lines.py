"""Lines of a pipe on which a program writes one JSON-RPC message a line, within a budget.

Every reader of such a pipe splits what it read with `MessageLines`: the hosts of MCP servers, discovery, the runner and
local programs of agents. How a chunk is read (blocking, asyncio, anyio) is the reader's own. Standard library alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

MAX_LINE_BYTES = 16 << 20
READ_BYTES = 1 << 16  # what a pipe holds
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LineBudgetExceeded(Exception):
    """A program wrote more than its reader takes. The message says what, for people, after "It wrote"."""


class MessageLines:
    """Splits chunks into lines. Empty lines are left out, and so is a byte order mark before the first."""

    def __init__(self, *, max_bytes: int | None = None, max_lines: int | None = None) -> None:
        self._unread_bytes, self._unread_lines = max_bytes, max_lines
        self._max_bytes, self._max_lines = max_bytes, max_lines
        self._parts: list[bytes] = []  # of the line that has not ended
        self._parts_bytes = 0
        self._is_first = True

    def feed_chunk_and_pop_lines(self, chunk: bytes) -> list[bytes]:
        """Return the lines that a chunk completes, without their ends. Raises LineBudgetExceeded."""
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts, self._parts_bytes = [], 0
        self._parts.append(rest)
        self._parts_bytes += len(rest)
        self._enforce_line_budget(len(chunk), lines)
        if lines and self._is_first:
            self._is_first = False
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
        return [line for line in lines if line.strip()]

    def pop_unterminated_line(self) -> bytes:
        """Return the text after the last line's end when the pipe was closed; nothing where that is blank."""
        rest, self._parts, self._parts_bytes = b"".join(self._parts), [], 0
        if self._is_first:
            rest = rest.removeprefix(BYTE_ORDER_MARK)
        return rest if rest.strip() else b""

    def _enforce_line_budget(self, chunk_bytes: int, lines: list[bytes]) -> None:
        if max(self._parts_bytes, *map(len, lines), 0) > MAX_LINE_BYTES:
            raise LineBudgetExceeded(f"a line of more than {MAX_LINE_BYTES >> 20} MB")
        if self._unread_bytes is not None:
            self._unread_bytes -= chunk_bytes
            if self._unread_bytes < 0:
                raise LineBudgetExceeded(f"more than {self._max_bytes} bytes")
        if self._unread_lines is not None:
            self._unread_lines -= len(lines)
            if self._unread_lines < 0:
                raise LineBudgetExceeded(f"more than {self._max_lines} lines")


def iterate_pipe_lines(pipe: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a pipe that nobody else reads, as they come. Raises LineBudgetExceeded."""
    lines = MessageLines()
    while chunk := os.read(pipe.fileno(), READ_BYTES):
        yield from lines.feed_chunk_and_pop_lines(chunk)
    if rest := lines.pop_unterminated_line():
        yield rest
