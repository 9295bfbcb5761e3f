"""Where the edge touches the database: a few threads, so that no ORM call ever runs on the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.db import connections

P = ParamSpec("P")
T = TypeVar("T")


class EdgeThreads:
    """A bounded pool whose threads keep their database connections and replace those that broke."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="edge")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work` in a thread, with the request's trace id, and return what it returns or raise what it raises."""
        loop = asyncio.get_running_loop()
        context, call = contextvars.copy_context(), functools.partial(_call, work, *args, **kwargs)
        return await loop.run_in_executor(self._pool, context.run, call)

    def close(self) -> None:
        """Let the threads end; what is queued is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _call(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    refresh_connections()
    return work(*args, **kwargs)


def refresh_connections() -> None:
    """Close this thread's database connections that broke or grew too old; the next use opens a new one."""
    for connection in connections.all(initialized_only=True):
        connection.close_if_unusable_or_obsolete()
