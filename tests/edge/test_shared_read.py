"""One read for all who ask before it begins (lib.threads)."""

from __future__ import annotations

import asyncio
import threading

import pytest

from coordinator.lib.threads import EdgeThreads, SharedRead


def test_who_asks_before_a_read_begins_shares_it_and_who_asks_later_gets_the_next() -> None:
    begun, go_on = threading.Event(), threading.Event()
    reads: list[int] = []

    def read() -> int:
        reads.append(len(reads))
        begun.set()
        assert go_on.wait(10)
        return reads[-1]

    async def ask() -> None:
        threads = EdgeThreads(1)
        shared = SharedRead(threads, read)
        try:
            first = asyncio.create_task(shared.get_fresh_value())
            await asyncio.to_thread(begun.wait, 10)
            later = [
                asyncio.create_task(shared.get_fresh_value()) for _ in range(50)
            ]  # they wait for the one thread
            while not all(task.get_coro().cr_await for task in later):  # type: ignore[union-attr]
                await asyncio.sleep(0)
            go_on.set()
            assert await first == 0
            assert set(await asyncio.gather(*later)) == {1}
        finally:
            go_on.set()
            threads.shut_down_threads()

    asyncio.run(ask())
    assert len(reads) == 2


def test_what_a_shared_read_raises_is_raised_to_all_and_the_next_reads_anew() -> None:
    reads: list[int] = []

    def read() -> int:
        reads.append(1)
        if len(reads) == 1:
            raise ValueError("not now")
        return 7

    async def ask() -> None:
        threads = EdgeThreads(1)
        shared = SharedRead(threads, read)
        try:
            for outcome in await asyncio.gather(
                shared.get_fresh_value(), shared.get_fresh_value(), return_exceptions=True
            ):
                assert isinstance(outcome, ValueError)
            assert await shared.get_fresh_value() == 7
        finally:
            threads.shut_down_threads()

    asyncio.run(ask())
    assert len(reads) == 2


def test_one_who_gives_up_takes_the_read_from_nobody() -> None:
    go_on = threading.Event()

    def read() -> str:
        assert go_on.wait(10)
        return "read"

    async def ask() -> None:
        threads = EdgeThreads(1)
        shared = SharedRead(threads, read)
        try:
            impatient, patient = (
                asyncio.create_task(shared.get_fresh_value()),
                asyncio.create_task(shared.get_fresh_value()),
            )
            await asyncio.sleep(0)
            impatient.cancel()
            with pytest.raises(asyncio.CancelledError):
                await impatient
            go_on.set()
            assert await patient == "read"
        finally:
            go_on.set()
            threads.shut_down_threads()

    asyncio.run(ask())


class TakenAsItIsSeen(SharedRead[int]):
    """One whose thread begins to read right after somebody has seen that the read is queued."""

    queued: asyncio.Task[int] | None = None

    @property
    def _queued(self) -> asyncio.Task[int] | None:
        queued, self.queued = self.queued, None
        return queued

    @_queued.setter
    def _queued(self, task: asyncio.Task[int] | None) -> None:
        self.queued = task


def test_who_asks_as_the_read_begins_gets_what_is_read() -> None:
    async def ask() -> None:
        threads = EdgeThreads(1)
        shared = TakenAsItIsSeen(threads, lambda: 7)
        try:
            assert await asyncio.gather(*(shared.get_fresh_value() for _ in range(4))) == [7] * 4
        finally:
            threads.shut_down_threads()

    asyncio.run(ask())
