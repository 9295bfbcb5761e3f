"""One caller's flood makes others wait for one piece of its work, not for all of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.utils import timezone

from coordinator.edge.http.bodies import RequestBodies
from coordinator.edge.ingest import write_queue as writing
from coordinator.edge.ingest.write_queue import GroupWriter, WriteJob
from coordinator.errors import ServiceBusy
from coordinator.lib.fair_queue import CALLER, FairQueue, FairThreadPool, clear_current_caller
from coordinator.lib.threads import EdgeThreads
from coordinator.models import Session
from coordinator.sessions.events import NewEvent
from tests.patience import PATIENCE


def turns_of(*callers: str) -> FairQueue[str]:
    """Items of these callers, each with its number."""
    turns: FairQueue[str] = FairQueue()
    for number, caller in enumerate(callers):
        turns.put(caller, f"{caller}{number}")
    return turns


async def called_by(caller: str, work: Callable[[], Awaitable[Any]]) -> Any:
    """Await `work` as this caller."""
    CALLER.set(caller)
    return await work()


def test_callers_take_turns_and_keep_their_own_order() -> None:
    turns = turns_of("a", "a", "a", "b", "c", "b")
    assert [turns.pop_next_item() for _ in range(6)] == ["a0", "b3", "c4", "a1", "b5", "a2"]
    assert len(turns) == 0


def test_who_does_not_fit_is_first_the_next_time() -> None:
    turns = turns_of("a", "large", "b", "a")

    def size(item: str) -> int:
        return 100 if "large" in item else 1

    assert turns.pop_next_batch(10, size) == ["a0", "b2", "a3"]
    turns.put("a", "a4")
    assert turns.pop_next_batch(10, size) == ["large1"]
    assert turns.pop_next_batch(10, size) == ["a4"]


@pytest.mark.parametrize("pool", ["edge", "decode"])
def test_a_flood_of_slow_work_lets_the_next_caller_through(pool: str) -> None:
    free, done = threading.Event(), []
    threads, bodies = EdgeThreads(1), RequestBodies()
    run: Callable[..., Awaitable[Any]] = threads.run_in_thread if pool == "edge" else bodies.decode_in_thread

    def slow() -> None:
        free.wait(PATIENCE)
        done.append("flood")

    async def main() -> None:
        flood = [asyncio.ensure_future(called_by("key:1", lambda: run(slow))) for _ in range(50)]
        await asyncio.sleep(0)
        other = asyncio.ensure_future(called_by("key:2", lambda: run(done.append, "other")))
        await asyncio.sleep(0)
        free.set()
        await asyncio.gather(*flood, other)

    asyncio.run(main())
    threads.shut_down_threads()
    bodies.close()
    assert done.index("other") <= 3


def test_what_is_done_for_all_does_not_stand_in_its_starters_line() -> None:
    async def shared() -> str:
        clear_current_caller()
        return CALLER.get()

    async def main() -> tuple[str, str]:
        CALLER.set("key:1")
        return await asyncio.ensure_future(shared()), CALLER.get()

    assert asyncio.run(main()) == ("", "key:1")


def test_work_that_nobody_waits_for_any_more_is_passed_over() -> None:
    free, done = threading.Event(), []
    threads = FairThreadPool(1, "test")
    first = threads.submit(lambda: free.wait(PATIENCE), "a")
    gone = threads.submit(lambda: done.append("gone"), "a")
    last = threads.submit(lambda: done.append("last"), "a")
    assert gone.cancel()
    free.set()
    assert first.result(PATIENCE)
    last.result(PATIENCE)
    threads.shut_down_pool()
    assert done == ["last"]


def test_closing_cancels_what_is_queued() -> None:
    free = threading.Event()
    threads = FairThreadPool(1, "test")
    threads.submit(lambda: free.wait(PATIENCE), "a")
    queued = threads.submit(lambda: None, "a")
    threads.shut_down_pool()
    free.set()
    assert queued.cancelled()


def job_of(caller: str, events: int, loop: asyncio.AbstractEventLoop) -> WriteJob:
    items = [NewEvent(event_type="note", session_id="s1", timestamp="t") for _ in range(events)]
    return WriteJob(items, time.monotonic() + 3, 100 * events, loop, loop.create_future(), caller=caller)


def test_one_callers_events_never_fill_the_writers_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "QUEUE_EVENTS", 100)
    loop, writer = asyncio.new_event_loop(), GroupWriter(lambda: None)  # its thread is not started

    def taken(caller: str) -> int:
        for number in range(1_000):
            try:
                writer.enqueue_job(job_of(caller, 1, loop))
            except ServiceBusy:
                return number
        raise AssertionError("nothing was refused")

    assert [taken(caller) for caller in ("key:1", "key:2", "key:3")] == [50, 25, 12]
    while writer.waiting_event_count:
        writer.dequeue_next_job_group()
    assert taken("key:1") == 50
    loop.close()


def test_a_single_event_is_in_the_next_group_behind_a_queue_of_batches() -> None:
    loop, writer = asyncio.new_event_loop(), GroupWriter(lambda: None)
    for caller, events in (("key:1", 10_000), ("key:1", 10_000), ("key:2", 1), ("key:2", 1)):
        writer.enqueue_job(job_of(caller, events, loop))
    groups = [[job.caller for job in writer.dequeue_next_job_group()] for _ in range(3)]
    assert groups == [["key:1"], ["key:2", "key:2"], ["key:1"]]
    loop.close()


@pytest.mark.django_db(transaction=True)
def test_the_writer_takes_events_in_turns_of_their_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    Session.objects.create(session_id="s1", status="running", created_at=timezone.now())
    written: list[str] = []
    real = GroupWriter.write_group
    monkeypatch.setattr(
        GroupWriter,
        "write_group",
        lambda self, group: (written.extend(job.caller for job in group), real(self, group)),
    )
    monkeypatch.setattr(writing, "GROUP_EVENTS", 1)

    async def main() -> None:
        writer = GroupWriter(lambda: None)
        event = NewEvent(event_type="note", session_id="s1", timestamp="t")

        async def send() -> Any:
            return await writer.submit_events([event], deadline=time.monotonic() + PATIENCE, size=100)

        flood = [asyncio.ensure_future(called_by("key:1", send)) for _ in range(20)]
        await asyncio.sleep(0)
        other = asyncio.ensure_future(called_by("key:2", send))
        await asyncio.sleep(0)
        writer.start()
        await asyncio.gather(*flood, other)
        writer.stop()

    asyncio.run(main())
    assert written.index("key:2") == 1
