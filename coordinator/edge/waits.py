"""Long polls: check, sleep until the feed reports something relevant, check again. Nobody polls the database."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from coordinator.edge.bridge import Receive
from coordinator.edge.hub import Hub, Topics
from coordinator.edge.threads import EdgeThreads
from coordinator.feed import Change

T = TypeVar("T")

# A change that slipped by (a trigger dropped by hand) costs a waiter at most this many seconds.
LOOK_ANYWAY = 15.0


class Disconnect:
    """Whether the client of a held request has gone away, and how to learn of it."""

    def __init__(self, receive: Receive) -> None:
        self.happened = False
        self._watch = asyncio.ensure_future(self._until_gone(receive))
        self._then: list[Callable[[], object]] = []

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.happened = True
        for call in self._then:
            call()

    def then(self, call: Callable[[], object]) -> None:
        """Have `call` called when it happens."""
        self._then.append(call)

    def close(self) -> None:
        """Watch no longer."""
        self._watch.cancel()


class Waits:
    """All waiters of one process."""

    def __init__(self, hub: Hub, threads: EdgeThreads) -> None:
        self._threads = threads
        self._hub = hub
        self._waiting: dict[asyncio.Event, Topics] = {}
        self._closing = False
        hub.hearers.append(self._heard)

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait_until(
        self,
        check: Callable[[], T | None],
        *,
        topics: Iterable[str],
        timeout: float,
        gone: Disconnect | None = None,
    ) -> T | None:
        """Return the first answer of `check` that is not None; None after `timeout` seconds or at shutdown.

        `check` runs in a thread, at once and after each change of one of `topics` (`runs`, or `runs:KEY` where
        KEY is a change's key or parent). What it raises is raised here. With `gone`, the wait also ends when
        the client goes away; a check that runs just then is still awaited, so that its answer is not lost.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        changed = asyncio.Event()
        if gone is not None:
            gone.then(changed.set)
        self._waiting[changed] = Topics(topics)
        self._hub.feed.watchers += 1
        try:
            while True:
                changed.clear()  # before the check: what changes while it runs is looked at again
                found = await self._threads.run(check)
                left = deadline - asyncio.get_running_loop().time()
                if found is not None or left <= 0 or self._closing or (gone is not None and gone.happened):
                    return found
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), min(left, LOOK_ANYWAY))
        finally:
            if gone is not None:
                gone.close()
            self._hub.feed.watchers -= 1
            del self._waiting[changed]

    def close(self) -> None:
        """Answer every waiter now, with what its check finds or None."""
        self._closing = True
        for changed in self._waiting:
            changed.set()

    def _heard(self, batch: Sequence[Change]) -> None:
        for changed, topics in self._waiting.items():
            if not changed.is_set() and any(topics.want(change) for change in batch):
                changed.set()
