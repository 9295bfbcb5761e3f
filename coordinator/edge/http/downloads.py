"""Download slots for streamed answers: a share for each sender, and none for a client that hardly reads.

A streamed answer (a download, an export) runs in a thread of its own, its slot, of which there are few. One key or
person holds at most some of them; its further downloads wait their turn without a slot. A client so slow that it
would hold a slot for ever is disconnected; an attachment can be resumed by Range.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from coordinator.errors import ServiceBusy, TooManyRequests
from coordinator.lib.fair_queue import ThreadsClosed

LANES = 8  # streamed answers at one time per worker
LANES_EACH = 3  # … of one key, person or address
WAITING_EACH = 24  # that may wait for these; a page of a chat asks for a dozen pictures at once
WAITING = 400  # … in all
GRACE = 30.0  # seconds of waiting for a reader after which its pace is looked at
SLOWEST = 16 * 1024  # bytes a second

Who = Callable[[], Awaitable[str]]


@dataclass(slots=True)
class SenderDownloads:
    """One sender's downloads, including the waiting ones, and its turns."""

    count: int = 0
    semaphore: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LANES_EACH))


class DownloadPool:
    def __init__(self) -> None:
        self._lanes = ThreadPoolExecutor(LANES, thread_name_prefix="lane")
        self._downloads_by_sender: dict[str, SenderDownloads] = {}
        self.count = 0

    async def run_download(self, who: Who, work: Callable[[], None]) -> None:
        """Call `work` in a download slot, when it is the sender's turn.

        Raises TooManyRequests, ServiceBusy and ThreadsClosed before it is called.
        """
        if self.count >= WAITING:
            raise ServiceBusy("Too many downloads at once. Try again soon.", retry_after=5)
        self.count += 1
        try:
            await self.run_download_in_turn(await who(), work)
        finally:
            self.count -= 1

    async def run_download_in_turn(self, sender: str, work: Callable[[], None]) -> None:
        share = self._downloads_by_sender.setdefault(sender, SenderDownloads())
        if share.count >= LANES_EACH + WAITING_EACH:
            raise TooManyRequests(
                "You have too many downloads open. Try again when one of them has ended.", retry_after=5
            )
        share.count += 1
        try:
            async with share.semaphore:
                await asyncio.wrap_future(self.submit_download(work))
        finally:
            share.count -= 1
            if not share.count:
                self._downloads_by_sender.pop(sender, None)

    def submit_download(self, work: Callable[[], None]) -> Future[None]:
        try:
            return self._lanes.submit(work)
        except RuntimeError:  # the threads have been shut down
            raise ThreadsClosed from None

    def close(self) -> None:
        self._lanes.shutdown(wait=False, cancel_futures=True)


class DownloadReaderSpeed:
    """How fast one reader reads, counted only while we wait for it."""

    def __init__(self) -> None:
        self._waited = 0.0
        self._sent = 0

    def record_chunk_time(self, seconds: float, size: int) -> None:
        """Note that the reader took `seconds` for `size` bytes."""
        self._waited += seconds
        self._sent += size

    @property
    def is_reader_too_slow(self) -> bool:
        return self._waited > GRACE and self._sent < SLOWEST * self._waited
