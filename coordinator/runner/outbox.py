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
from coordinator.runner.merging import merge_two_updates_or_none
from coordinator.runner.orders import RunnerOrder
from coordinator.runner.server import SignalboxServer

BETWEEN = 0.05  # seconds between two sends: what comes meanwhile goes together
MOST_SENT, LARGEST_SENT = 200, 512 << 10
TOO_LARGE = {400, 413, 422, 500}  # answers that are about what was sent, not about who sends


class OutboxCapacity:
    """How much may wait in all outboxes together; agents are not read while it is full.

    `lines`: how many of them send at once. An outbox that waits for one merges meanwhile: a busy server has less to do.
    """

    def __init__(self, size: int = 16 << 20, lines: int = 4) -> None:
        self.lines = asyncio.Semaphore(lines)
        self._left = size
        self._free = asyncio.Event()
        self._free.set()

    async def wait_for_capacity(self) -> None:
        await self._free.wait()

    def reserve_bytes_even_if_full(self, size: int) -> None:
        self._left -= size
        if self._left <= 0:
            self._free.clear()

    def release_outbox_bytes(self, size: int) -> None:
        self._left += size
        if self._left > 0:
            self._free.set()


@dataclass(slots=True)
class QueuedUpdate:
    """One update that waits. `size` is about how many bytes it takes."""

    run_id: str
    at: str
    update: dict[str, Any]
    size: int


class UpdateOutbox:
    """The updates of one session that the server has not confirmed. `refused` is called when it accepts no more."""

    def __init__(
        self,
        server: SignalboxServer,
        order: RunnerOrder,
        capacity: OutboxCapacity,
        refused: Callable[[ServerRefused], None] = lambda _problem: None,
    ) -> None:
        self._server = server
        self._session_id = order.session_id
        self._run_id = order.run_id
        self._capacity = capacity
        self._waiting: deque[QueuedUpdate] = deque()
        self._on_the_way = 0  # the first so many of those may not change any more
        self._first = order.next_number  # the number of the first that waits; 0: not known yet
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._sender = asyncio.create_task(self._run_update_sender())
        self._is_refused = refused
        self.refused: ServerRefused | None = None  # why nothing is sent any more

    def queue_or_merge_update(self, run_id: str, update: dict[str, Any]) -> None:
        """Have an update sent; a chunk joins the one before it that still waits."""
        if self.refused is not None or self._try_merging_into_queued_update(run_id, update):
            return
        size = estimate_update_size(update)
        self._capacity.reserve_bytes_even_if_full(size)
        self._waiting.append(QueuedUpdate(run_id, datetime.now(UTC).isoformat(), update, size))
        self._empty.clear()
        self._more.set()

    async def wait_and_check_outbox_sent(self, patience: float | None = None) -> bool:
        """Wait until the server has everything; returns whether it has, where `patience` seconds are the most."""
        try:
            await asyncio.wait_for(self._empty.wait(), patience)
        except TimeoutError:
            return False
        return self.refused is None

    async def close_outbox_and_drop_updates(self) -> None:
        """Send nothing more; what waits is given up."""
        self._sender.cancel()
        await asyncio.wait({self._sender})
        self._drop_queued_updates()

    def _try_merging_into_queued_update(self, run_id: str, update: dict[str, Any]) -> bool:
        """Join an update to the last that waits, where the two can be one."""
        if len(self._waiting) <= self._on_the_way:
            return False
        last = self._waiting[-1]
        updates = merge_two_updates_or_none(last.update, update) if last.run_id == run_id else None
        if updates is None:
            return False
        before, last.update, last.size = last.size, updates, estimate_update_size(updates)
        self._capacity.reserve_bytes_even_if_full(last.size - before)
        return True

    async def _run_update_sender(self) -> None:
        try:
            if self._first < 1:
                await self._fetch_and_store_next_number()
            sent_at = 0.0
            while True:
                await self._more.wait()
                await asyncio.sleep(max(0.0, sent_at + BETWEEN - time.monotonic()))
                sent_at = time.monotonic()
                await self._send_next_batch()
        except ServerRefused as problem:
            self.refused = problem
            self._drop_queued_updates()
            self._is_refused(problem)

    async def _fetch_and_store_next_number(self) -> None:
        answer = await self._post_batch_without_dequeuing(self._run_id, [])
        self._first = positive_number_or_default(answer, "next", 1)

    async def _send_next_batch(self) -> None:
        async with self._capacity.lines:
            batch = self.peek_next_update_batch()
            self._on_the_way = len(batch)
            try:
                await self._send_and_dequeue_batch(batch)
            finally:
                self._on_the_way = 0
        if not self._waiting:
            self._more.clear()
            self._empty.set()

    async def _send_and_dequeue_batch(self, batch: list[QueuedUpdate]) -> None:
        try:
            answer = await self._post_batch_without_dequeuing(batch[0].run_id, batch)
        except ServerRefused as problem:
            if problem.status not in TOO_LARGE:
                raise
            if len(batch) > 1:
                await self._send_and_dequeue_batch(batch[:1])
                return
            self._replace_rejected_update(
                f"An update could not be kept ({problem.status}: {problem.detail[:300]})."
            )
            answer = await self._post_batch_without_dequeuing(batch[0].run_id, [self._waiting[0]])
        following = positive_number_or_default(answer, "next", self._first + len(batch))
        taken_count = following - self._first
        # Fewer than none: a database that was restored; it is counted as it counts.
        for _ in range(min(taken_count, self._on_the_way)):
            self._capacity.release_outbox_bytes(self._waiting.popleft().size)
        self._first = following

    def _replace_rejected_update(self, message: str) -> None:
        """Put a short note in the place of an update that the server does not take."""
        first = self._waiting[0]
        self._capacity.release_outbox_bytes(first.size)
        first.update, first.size = {"sessionUpdate": "signalbox/unknown", "message": message}, 0

    def peek_next_update_batch(self) -> list[QueuedUpdate]:
        batch: list[QueuedUpdate] = []
        size = 0
        for entry in self._waiting:
            size += entry.size
            if batch and (entry.run_id != batch[0].run_id or size > LARGEST_SENT or len(batch) == MOST_SENT):
                break
            batch.append(entry)
        return batch

    async def _post_batch_without_dequeuing(self, run_id: str, batch: list[QueuedUpdate]) -> dict[str, Any]:
        updates = [
            {"n": self._first + place, "at": entry.at, "update": entry.update}
            for place, entry in enumerate(batch)
        ]
        return await self._server.post_to_session_endpoint(
            self._session_id, "updates", run_id=run_id or None, updates=updates
        )

    def _drop_queued_updates(self) -> None:
        while self._waiting:
            self._capacity.release_outbox_bytes(self._waiting.popleft().size)
        self._on_the_way = 0
        self._empty.set()


def positive_number_or_default(answer: dict[str, Any], name: str, usual: int) -> int:
    value = answer.get(name)
    return value if isinstance(value, int) and value > 0 else usual


def estimate_update_size(update: dict[str, Any]) -> int:
    """Return about how many bytes an update takes."""
    return len(json.dumps(update, ensure_ascii=False)) + 100
