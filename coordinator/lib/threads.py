"""Threads in which the edge uses the database: a few, so that no ORM call ever runs on the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from django.db import connections

from coordinator.lib.fair_queue import CALLER, FairThreadPool, clear_current_caller

P = ParamSpec("P")
T = TypeVar("T")


class EdgeThreads:
    """A bounded pool whose threads keep their database connections and replace those that broke.

    Callers (turns.CALLER) take turns.
    """

    def __init__(self, count: int) -> None:
        self._pool = FairThreadPool(count, "edge")

    async def run_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work` in a thread, with the request's trace id, and return what it returns or raise what it raises."""
        context, call = (
            contextvars.copy_context(),
            functools.partial(call_after_closing_broken_connections, work, *args, **kwargs),
        )
        return await self._pool.run_in_pool(functools.partial(context.run, call), CALLER.get())

    def shut_down_threads(self) -> None:
        """Let the threads end; what is queued is dropped."""
        self._pool.shut_down_pool()


class SharedRead(Generic[T]):
    """One read for all who ask before it begins: each gets what the database held after it asked.

    So however many ask while the threads are busy, they cost one read.
    """

    def __init__(self, threads: EdgeThreads, read: Callable[[], T]) -> None:
        self._threads = threads
        self._read = read
        self._queued: asyncio.Task[T] | None = None

    async def get_fresh_value(self) -> T:
        """Return what `read` returns, called from now on, or raise what it raises."""
        queued = self._queued  # read once: the thread takes it away as it begins
        if queued is None or queued.done():
            queued = self._queued = asyncio.ensure_future(self._run_queued_read())
        return await asyncio.shield(queued)

    async def _run_queued_read(self) -> T:
        clear_current_caller()
        return await self._threads.run_in_thread(self._run_read_and_clear_queue_slot)

    def _run_read_and_clear_queue_slot(self) -> T:
        self._queued = None  # who asks from here on may not have what is read now
        return self._read()


def call_after_closing_broken_connections(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    close_broken_database_connections()
    return work(*args, **kwargs)


def close_broken_database_connections() -> None:
    """Close this thread's database connections that broke or grew too old; the next use opens a new one."""
    for connection in connections.all(initialized_only=True):
        connection.close_if_unusable_or_obsolete()
