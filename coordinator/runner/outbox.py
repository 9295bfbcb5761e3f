"""A session's updates, kept until the server has them: in order, numbered, sent again when in doubt."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from coordinator.runner.errors import ServerRefused
from coordinator.runner.merging import joined
from coordinator.runner.orders import Order
from coordinator.runner.server import Server

BETWEEN = 0.05  # seconds between two sends: what comes meanwhile goes together
MOST_SENT, LARGEST_SENT = 200, 512 << 10
TOO_LARGE = {400, 413, 422, 500}  # answers that are about what was sent, not about who sends


class Room:
    """How much may wait in all outboxes together; agents are not read while it is full.

    `lines`: how many of them send at once. Whoever waits for one merges meanwhile: a busy server has less to do.
    """

    def __init__(self, size: int = 16 << 20, lines: int = 4) -> None:
        self.lines = asyncio.Semaphore(lines)
        self._left = size
        self._free = asyncio.Event()
        self._free.set()

    async def wait(self) -> None:
        await self._free.wait()

    def take(self, size: int) -> None:
        self._left -= size
        if self._left <= 0:
            self._free.clear()

    def give(self, size: int) -> None:
        self._left += size
        if self._left > 0:
            self._free.set()


@dataclass(slots=True)
class Entry:
    """One update that waits. `size` is about how many bytes it takes."""

    run_id: str
    at: str
    update: dict[str, Any]
    size: int


class Outbox:
    """The updates of one session that the server has not confirmed. `refused` is called when it accepts no more."""

    def __init__(
        self,
        server: Server,
        order: Order,
        room: Room,
        refused: Callable[[ServerRefused], None] = lambda _problem: None,
    ) -> None:
        self._server = server
        self._session_id = order.session_id
        self._run_id = order.run_id
        self._room = room
        self._waiting: deque[Entry] = deque()
        self._on_the_way = 0  # the first so many of those may not change any more
        self._first = order.next_number  # the number of the first that waits; 0: not known yet
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._sender = asyncio.create_task(self._send())
        self._is_refused = refused
        self.refused: ServerRefused | None = None  # why nothing is sent any more

    def put(self, run_id: str, update: dict[str, Any]) -> None:
        """Have an update sent; a chunk joins the one before it that still waits."""
        if self.refused is not None or self._merged(run_id, update):
            return
        size = size_of(update)
        self._room.take(size)
        self._waiting.append(Entry(run_id, datetime.now(UTC).isoformat(), update, size))
        self._empty.clear()
        self._more.set()

    async def drained(self, patience: float | None = None) -> bool:
        """Wait until the server has everything; returns whether it has, where `patience` seconds are the most."""
        try:
            await asyncio.wait_for(self._empty.wait(), patience)
        except TimeoutError:
            return False
        return self.refused is None

    async def close(self) -> None:
        """Send nothing more; what waits is given up."""
        self._sender.cancel()
        await asyncio.wait({self._sender})
        self._give_up()

    def _merged(self, run_id: str, update: dict[str, Any]) -> bool:
        """Join an update to the last that waits, where the two can be one."""
        if len(self._waiting) <= self._on_the_way:
            return False
        last = self._waiting[-1]
        both = joined(last.update, update) if last.run_id == run_id else None
        if both is None:
            return False
        before, last.update, last.size = last.size, both, size_of(both)
        self._room.take(last.size - before)
        return True

    async def _send(self) -> None:
        try:
            if self._first < 1:
                await self._learn_number()
            sent_at = 0.0
            while True:
                await self._more.wait()
                await asyncio.sleep(max(0.0, sent_at + BETWEEN - time.monotonic()))
                sent_at = time.monotonic()
                await self._send_some()
        except ServerRefused as problem:
            self.refused = problem
            self._give_up()
            self._is_refused(problem)

    async def _learn_number(self) -> None:
        answer = await self._post(self._run_id, [])
        self._first = _number(answer, "next", 1)

    async def _send_some(self) -> None:
        async with self._room.lines:
            batch = self._batch()
            self._on_the_way = len(batch)
            try:
                await self._send_batch(batch)
            finally:
                self._on_the_way = 0
        if not self._waiting:
            self._more.clear()
            self._empty.set()

    async def _send_batch(self, batch: list[Entry]) -> None:
        try:
            answer = await self._post(batch[0].run_id, batch)
        except ServerRefused as problem:
            if problem.status not in TOO_LARGE:
                raise
            if len(batch) > 1:
                await self._send_batch(batch[:1])
                return
            self._replace(f"An update could not be kept ({problem.status}: {problem.detail[:300]}).")
            answer = await self._post(batch[0].run_id, [self._waiting[0]])
        following = _number(answer, "next", self._first + len(batch))
        taken = following - self._first
        # Fewer than none: a database that was restored; it is counted as it counts.
        for _ in range(min(taken, self._on_the_way)):
            self._room.give(self._waiting.popleft().size)
        self._first = following

    def _replace(self, message: str) -> None:
        """Put a short note in the place of an update that the server does not take."""
        first = self._waiting[0]
        self._room.give(first.size)
        first.update, first.size = {"sessionUpdate": "signalbox/unknown", "message": message}, 0

    def _batch(self) -> list[Entry]:
        batch: list[Entry] = []
        size = 0
        for entry in self._waiting:
            size += entry.size
            if batch and (entry.run_id != batch[0].run_id or size > LARGEST_SENT or len(batch) == MOST_SENT):
                break
            batch.append(entry)
        return batch

    async def _post(self, run_id: str, batch: list[Entry]) -> dict[str, Any]:
        updates = [
            {"n": self._first + place, "at": entry.at, "update": entry.update}
            for place, entry in enumerate(batch)
        ]
        return await self._server.for_session(
            self._session_id, "updates", run_id=run_id or None, updates=updates
        )

    def _give_up(self) -> None:
        while self._waiting:
            self._room.give(self._waiting.popleft().size)
        self._on_the_way = 0
        self._empty.set()


def _number(answer: dict[str, Any], name: str, usual: int) -> int:
    value = answer.get(name)
    return value if isinstance(value, int) and value > 0 else usual


def size_of(update: dict[str, Any]) -> int:
    """Return about how many bytes an update takes."""
    return len(json.dumps(update, ensure_ascii=False)) + 100
