"""Where the edge touches the database: a few threads, so that no ORM call ever runs on the event loop."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import connections

from coordinator.lib.turns import CALLER, FairThreads

P = ParamSpec("P")
T = TypeVar("T")


class EdgeThreads:
    """A bounded pool whose threads keep their database connections and replace those that broke.

    Callers (turns.CALLER) take turns.
    """

    def __init__(self, count: int) -> None:
        self._pool = FairThreads(count, "edge")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work` in a thread, with the request's trace id, and return what it returns or raise what it raises."""
        context, call = contextvars.copy_context(), functools.partial(_call, work, *args, **kwargs)
        return await self._pool.run(functools.partial(context.run, call), CALLER.get())

    def close(self) -> None:
        """Let the threads end; what is queued is dropped."""
        self._pool.close()


def _call(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    refresh_connections()
    return work(*args, **kwargs)


def refresh_connections() -> None:
    """Close this thread's database connections that broke or grew too old; the next use opens a new one."""
    for connection in connections.all(initialized_only=True):
        connection.close_if_unusable_or_obsolete()
