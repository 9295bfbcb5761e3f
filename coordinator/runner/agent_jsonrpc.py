"""JSON-RPC over an agent's stdin and stdout, within bounds: a line may be long, wrong, or one of very many."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from coordinator.client.message_lines import READ_BYTES, LineBudgetExceeded, MessageLines
from coordinator.runner.errors import AgentFailed

MOST_GARBAGE = 4 << 20  # bytes that are no protocol, before we give up on the agent
MAX_REPORTED_GARBAGE_LINES = 20  # lines of it that are reported
TAIL = 8 << 10
UNPRINTED = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f\x7f]")


def strip_control_codes(data: bytes) -> str:
    """Return what a program wrote as people can read it: no colours, no control signs."""
    return UNPRINTED.sub("", data.decode("utf-8", "replace")).strip()


class OutputTail:
    """The end of what a program wrote."""

    def __init__(self, size: int = TAIL) -> None:
        self._size = size
        self._last_bytes = b""

    def append_to_output_tail(self, data: bytes) -> None:
        self._last_bytes = (self._last_bytes + data)[-self._size :]

    def __str__(self) -> str:
        return strip_control_codes(self._last_bytes)


class AgentJsonLineStream:
    """What `acp.connection.Connection` sends and receives through: one JSON object a line.

    `room` is awaited before each message is read, so that an agent waits while there is no room for what it says.
    `garbage` receives lines that are no protocol. `failed` is why reading ended, where it is not the pipe's end.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        wait_for_capacity: Callable[[], Awaitable[None]],
        garbage: Callable[[str], None],
        tail: OutputTail,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._wait_for_capacity = wait_for_capacity
        self._garbage = garbage
        self._tail = tail
        self._lines = MessageLines()
        self._unread_lines: list[bytes] = []
        self._garbage_lines = self._garbage_bytes = 0
        self._sending = asyncio.Lock()
        self.failed: AgentFailed | None = None

    async def send(self, message: dict[str, Any]) -> None:
        async with self._sending:
            self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        await self._wait_for_capacity()
        while True:
            line = await self._read_agent_line()
            if line is None:
                return None
            message = parse_agent_message_or_none(line)
            if message is not None:
                return message
            if not self._record_garbage_line_within_limit(line):
                return None

    async def close(self) -> None:
        self._writer.close()

    async def _read_agent_line(self) -> bytes | None:
        while not self._unread_lines:
            chunk = await self._reader.read(READ_BYTES)
            if not chunk:
                return None
            try:
                self._unread_lines = self._lines.feed_chunk_and_pop_lines(chunk)
            except LineBudgetExceeded as problem:
                self.failed = AgentFailed(f"It wrote {problem}")
                return None
        return self._unread_lines.pop(0)

    def _record_garbage_line_within_limit(self, line: bytes) -> bool:
        """Count a line that is not of the protocol; returns whether more such lines are tolerated."""
        self._garbage_bytes += len(line)
        self._garbage_lines += 1
        self._tail.append_to_output_tail(line[:READ_BYTES] + b"\n")
        if self._garbage_lines <= MAX_REPORTED_GARBAGE_LINES:
            self._garbage(strip_control_codes(line[:2000]))
        if self._garbage_bytes > MOST_GARBAGE:
            self.failed = AgentFailed(
                f"It wrote {self._garbage_bytes >> 20} MB that are not the Agent Client Protocol"
            )
            return False
        return True


def parse_agent_message_or_none(line: bytes) -> dict[str, Any] | None:
    """Return the message that a line is, None where it is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("method", ""), str):
        return None
    if not isinstance(message.get("id"), int | str | None):
        return None
    if "method" not in message and "id" not in message:
        return None
    if not isinstance(message.get("error") or {}, dict):
        return None
    return message
